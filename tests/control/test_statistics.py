"""Statistics: readings of several ops and passes, and the table of samples."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from actzip.control.reading import Reading
from actzip.control.statistics import Statistics, sample_indices


def a_reading(parameter: list[float], channels: int = 2, **others: float) -> Reading:
    known: dict[str, Tensor] = {
        "parameter": torch.tensor(parameter, dtype=torch.float64),
        "input": torch.zeros(len(parameter), dtype=torch.float64),
    }
    for name in ("channel_parameter", "channel_input", "worst_parameter", "worst_input", "peak"):
        known[name] = torch.ones(channels, dtype=torch.float64)
    for f in fields(Reading):
        known.setdefault(f.name, torch.tensor(0.5, dtype=torch.float64))
    for name in ("parameter_focus", "input_focus"):
        known[name] = torch.ones(len(parameter), dtype=torch.float64)
    for name, value in others.items():
        known[name] = torch.full_like(known[name], value)
    return Reading(**known)


def totals(statistics: Statistics, site: str) -> list[float]:
    found = statistics.of(site)
    assert found is not None
    return found.parameter.tolist()


def test_ops_that_read_one_tensor_add_up() -> None:
    both = a_reading([1, 2], peak=3) + a_reading([10, 20], peak=7)
    assert both.parameter.tolist() == [11, 22]
    assert both.peak.tolist() == [7, 7]
    assert both.parameter_signal == 1.0
    assert both.zeros == 0.5


def test_the_focus_of_two_ops_is_that_of_their_sum() -> None:
    both = a_reading([1, 1], parameter_focus=2) + a_reading([3, 3], parameter_focus=4)
    assert both.parameter_focus.tolist() == [3.5, 3.5]
    assert both.input_focus.tolist() == [1, 1], "nothing travels: the focus says nothing"


def test_an_op_that_sees_other_samples_is_spread_evenly() -> None:
    both = a_reading([1, 2, 3], channels=2) + a_reading([6], channels=4)
    assert both.parameter.tolist() == [3, 4, 5]
    assert both.channel_parameter.tolist() == [3, 3]


def test_readings_of_one_pass_add_up_and_the_next_pass_replaces_them() -> None:
    s = Statistics()
    assert s.of("a") is None
    assert s.newest == -1
    s.add(0, "a", a_reading([1, 1]))
    s.add(0, "a", a_reading([2, 2]))
    assert totals(s, "a") == [3, 3]
    s.add(4, "a", a_reading([7, 7]))
    assert totals(s, "a") == [7, 7]
    assert s.newest == 4


def test_passes_whose_backwards_run_together_are_kept_apart() -> None:
    """The readings of two passes and two ops come mixed: those of the last pass count, whole."""
    s = Statistics()
    for step in (1, 0, 1, 0):
        s.add(step, "a", a_reading([10.0**step] * 2))
    assert totals(s, "a") == [20, 20]


def test_a_longer_history_is_averaged() -> None:
    s = Statistics(history=2)
    for step, value in enumerate((100.0, 1.0, 3.0)):
        s.add(step, "a", a_reading([value, value]))
    assert totals(s, "a") == [2, 2]


def test_a_batch_of_another_size_is_left_out_of_the_mean_by_sample() -> None:
    s = Statistics(history=3)
    s.add(0, "a", a_reading([5, 5, 5], parameter_signal=1))
    s.add(1, "a", a_reading([1, 3], parameter_signal=3))
    found = s.of("a")
    assert found is not None
    assert found.parameter.tolist() == [1, 3]
    assert found.parameter_signal == 2


def test_sites_keep_the_order_of_the_forward_pass() -> None:
    s = Statistics()
    for name in ("c", "a", "b"):
        s.expect(name)
    s.add(0, "b", a_reading([1]))
    assert s.sites == ["c", "a", "b"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["channel_input", "power", "peak", "worst_input"])
def test_a_reading_knows_whether_it_is_finite(name: str, value: float) -> None:
    assert a_reading([1, 2]).is_finite()
    good = a_reading([1, 2])
    bad = torch.full_like(getattr(good, name), value)
    assert not replace(good, **{name: bad}).is_finite()


# -- a table per sample of the data set --------------------------------------------------------


def row(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_samples_are_remembered_half_old_half_new() -> None:
    s = Statistics()
    s.remember("a", torch.tensor([7, 2]), row(4, 8))
    assert s.recall("a", torch.tensor([2, 7])).tolist() == [8, 4]  # type: ignore[union-attr]
    s.remember("a", torch.tensor([2, 3]), row(2, 6))
    assert s.recall("a", torch.tensor([2, 3, 7])).tolist() == [5, 6, 4]  # type: ignore[union-attr]


def test_a_second_op_of_the_same_pass_adds_to_the_first() -> None:
    s = Statistics()
    at = torch.tensor([0, 1])
    s.remember("a", at, row(4, 8))
    share = s.remember("a", torch.tensor([1, 5]), row(10, 10))
    s.remember("a", torch.tensor([1, 5]), row(2, 2), share)
    # sample 1: half of 8 and half of 10 + 2; sample 5 is new: all of 10 + 2
    assert s.recall("a", torch.tensor([0, 1, 5])).tolist() == [4, 10, 12]  # type: ignore[union-attr]


def test_samples_not_seen_yet_count_as_the_mean_of_the_others() -> None:
    s = Statistics()
    s.remember("a", torch.tensor([0, 1]), row(1, 3))
    assert s.recall("a", torch.tensor([0, 9, 1])).tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert s.recall("a", torch.tensor([8, 9])) is None, "all of them are new"
    assert s.recall("b", torch.tensor([0])) is None


def test_a_tensor_without_a_row_for_each_sample_is_not_remembered() -> None:
    s = Statistics()
    assert s.remember("a", torch.tensor([0, 1, 2]), row(1, 2)) is None
    assert s.recall("a", torch.tensor([0])) is None


def test_the_state_holds_everything_and_shares_nothing() -> None:
    s = Statistics(history=2)
    for step in range(3):
        s.add(step, "a", a_reading([step, 1]))
    s.add(0, "b", a_reading([1, 1]))
    s.remember("a", torch.tensor([4]), row(2))
    s.missing["b"] = "no formula"
    state = s.state_dict()
    other = Statistics(history=2)
    other.load_state_dict(state)
    s.remember("a", torch.tensor([4]), row(100))
    assert other.sites == ["a", "b"]
    assert totals(other, "a") == [1.5, 1]
    assert other.missing == {"b": "no formula"}
    assert other.recall("a", torch.tensor([4])).tolist() == [2]  # type: ignore[union-attr]


# -- indices ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [[3, 1], (3, 1), torch.tensor([3, 1]), torch.tensor([3, 1], dtype=torch.int32)]
)
def test_indices_are_a_row_of_whole_numbers(given: object) -> None:
    assert sample_indices(given).tolist() == [3, 1]


def test_indices_are_a_copy() -> None:
    given = torch.tensor([3, 1])
    found = sample_indices(given)
    given.zero_()
    assert found.tolist() == [3, 1]


@pytest.mark.parametrize(
    "given",
    [
        [],
        [-1, 2],
        [[1, 2]],
        [1.5],
        [True, False],
        torch.tensor(3),
        torch.tensor([1 + 2j]),
        "12",
        ["a"],
        None,
        [[1], [2, 3]],
        {1, 2},
    ],
    ids=repr,
)
def test_other_indices_are_refused_with_what_came(given: object) -> None:
    with pytest.raises(ValueError, match=r"a row of indices .* whole numbers from 0 on, got "):
        sample_indices(given)


def test_a_reading_needs_a_gradient_that_came_and_one_where_errors_would_show() -> None:
    assert a_reading([1.0], input=3.0, input_signal=0.5, outer_signal=4.0).is_felt()
    assert a_reading([1.0], input=0.0, input_signal=0.0, outer_signal=4.0).is_felt()
    assert not a_reading([1.0], input=3.0, input_signal=0.0, outer_signal=4.0).is_felt()
    assert not a_reading([0.0], input=0.0, input_signal=0.0, outer_signal=0.0).is_felt()
