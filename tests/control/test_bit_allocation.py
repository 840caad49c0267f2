"""Bits over sites: small problems with answers known by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from actzip.control.bit_allocation import CodedSite, averages, squared_ranges
from actzip.control.propagation import Effect
from actzip.control.reading import Reading


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def a_reading(parameter: list[float], **others: float) -> Reading:
    values: dict[str, Any] = {
        "parameter": torch.tensor(parameter, dtype=torch.float64),
        "input": torch.zeros(len(parameter), dtype=torch.float64),
    }
    for name in ("channel_parameter", "channel_input", "worst_parameter", "worst_input", "peak"):
        values[name] = torch.ones(1, dtype=torch.float64)
    for name in ("zeros", "power", "parameter_signal", "parameter_count", "input_signal"):
        values[name] = number(0.0)
    values.update({n: number(v) for n, v in others.items() if n != "input"})
    if "input" in others:
        values["input"] = torch.full_like(values["parameter"], others["input"])
    return Reading(**values)


def a_site(elements: int, samples: int = 1, **options: Any) -> CodedSite:
    known = {"relu": False, "norm": False, "split": samples > 1, "curved": False, **options}
    return CodedSite(elements, ranges=torch.ones(samples, dtype=torch.float64), **known)


# -- averages -------------------------------------------------------------------------------------


def test_the_sensitive_layer_gets_the_bits() -> None:
    sites = {"a": a_site(100), "b": a_site(100)}
    effects = {"a": [Effect(a_reading([1e4]), 0)], "b": [Effect(a_reading([1.0]), 0)]}
    found = averages(sites, effects, bits=3)
    assert found["a"] > found["b"]
    assert found["a"] + found["b"] == 6


def test_a_site_of_which_no_error_shows_has_the_average() -> None:
    """Its values were all equal, and may be others in the next pass: it was left a single bit,
    whatever the budget."""
    sites = {n: a_site(100) for n in "abc"}
    sites["c"].ranges.zero_()
    effects = {n: [Effect(a_reading([w]), 0)] for n, w in (("a", 1e4), ("b", 1.0), ("c", 1.0))}
    found = averages(sites, effects, bits=3)
    assert found["c"] == 3
    assert found["a"] + found["b"] == 6
    assert set(averages(sites, effects, bits=8).values()) == {8}


def test_what_travels_and_what_all_positions_share_count_too() -> None:
    sites = {"a": a_site(100), "b": a_site(100)}
    for loud in (
        Effect(a_reading([1.0], input=1.0), factor=1e4),
        Effect(a_reading([1.0]), 0, trail=1e4),
        Effect(a_reading([1.0], parameter_focus=1e4), 0),
        Effect(a_reading([1.0], zeros=0.9999), 0),
    ):
        found = averages(sites, {"a": [loud], "b": [Effect(a_reading([1.0]), 0)]}, bits=3)
        assert found["a"] > found["b"], loud


def test_two_ops_that_read_one_tensor_add_up() -> None:
    sites = {"a": a_site(100), "b": a_site(100)}
    once, twice = [Effect(a_reading([4.0]), 0)], [Effect(a_reading([2.0]), 0)] * 2
    assert averages(sites, {"a": once, "b": twice}, bits=3) == {"a": 3, "b": 3}


def test_a_relus_zeros_have_no_error() -> None:
    """At 2 bits one code is the zero's, so there is no 1-bit code to go down to."""
    sites = {"a": a_site(100, relu=True), "b": a_site(100)}
    effects = {"a": [Effect(a_reading([1e-9]), 0)], "b": [Effect(a_reading([1.0]), 0)]}
    assert averages(sites, effects, bits=2) == {"a": 2, "b": 2}


def test_curved_sites_keep_three_bits_where_others_keep_two() -> None:
    sites = {"a": a_site(100, curved=True), "b": a_site(300)}
    effects = {"a": [Effect(a_reading([1e-9]), 0)], "b": [Effect(a_reading([1.0]), 0)]}
    assert averages(sites, effects, bits=2.25) == {"a": 3, "b": 2}
    assert averages(sites, effects, bits=1)["a"] == 1, "there is no more"


def test_samples_count_by_themselves_only_when_the_next_batch_is_known() -> None:
    sites = {"a": a_site(800, samples=8), "b": a_site(800, samples=8)}
    uneven = [1e6, *[1e-6] * 7]
    even = [sum(uneven) / 8] * 8
    effects = {"a": [Effect(a_reading(uneven), 0)], "b": [Effect(a_reading(even), 0)]}
    unknown = averages(sites, effects, bits=3)
    assert unknown["a"] == unknown["b"]
    known = averages(sites, effects, bits=3, by_sample=True)
    assert known["a"] < known["b"], "most of its samples need nothing"


@pytest.mark.parametrize("bn_bits", [None, 5.0, "conv"])
def test_batch_norms_bits(bn_bits: float | str | None) -> None:
    sites = {"a": a_site(100), "n": a_site(300, norm=True), "b": a_site(100)}
    effects = {n: [Effect(a_reading([w]), 0)] for n, w in (("a", 50.0), ("n", 1.0), ("b", 1.0))}
    found = averages(sites, effects, 2.4, bn_bits)
    spent = sum(found[n] * sites[n].elements for n in sites)
    if bn_bits == 5.0:
        assert found["n"] == 5
        assert spent - 1500 <= 2.4 * 200
    else:
        assert spent <= 2.4 * 500
        assert (found["n"] == found["a"]) == (bn_bits == "conv")


def test_sensitivities_that_overflow_keep_the_last_answer() -> None:
    sites = {"a": a_site(100)}
    assert averages(sites, {"a": [Effect(a_reading([1e300], input=1e300), 1e300)]}, 2) == {}
    assert averages(sites, {}, 2) == {}


# -- ranges -------------------------------------------------------------------------------------


def test_ranges_of_each_sample() -> None:
    x = torch.rand(4, 512) * torch.tensor([1.0, 2.0, 3.0, 4.0]).view(-1, 1)
    found = squared_ranges(x, 256).sqrt()
    assert torch.allclose(found, torch.tensor([1.0, 2.0, 3.0, 4.0]).double(), rtol=0.05)


def test_small_samples_share_groups() -> None:
    x = torch.zeros(8, 32)
    x[::2] = 10  # within a sample all is equal, within a group of 8 samples it is not
    assert squared_ranges(x, 256).tolist() == [100] * 8


def test_ranges_of_odd_tensors() -> None:
    assert squared_ranges(torch.zeros(0, 5), 256).shape == (0,)
    assert squared_ranges(torch.zeros(3, 0), 256).tolist() == [0, 0, 0]
    assert squared_ranges(torch.tensor(3.0), 256).tolist() == [0]
    bad = torch.ones(2, 512)
    bad[0, 0], bad[1] = torch.nan, torch.inf
    assert squared_ranges(bad, 256).tolist() == [0, 0]
    half = torch.tensor([[-60000.0, 60000.0] * 128] * 2, dtype=torch.float16)
    assert squared_ranges(half, 256)[0] == pytest.approx(120000.0**2, rel=1e-3)
