"""Bounds from readings: shares are kept, budgets are used, trails are what they are said to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.autograd import slots
from actzip.control import batchnorm_trail, bounds
from actzip.control.backward import Backward
from actzip.control.conservative_mean import cautious, middle, unlikely
from actzip.control.layers import Route
from actzip.control.momentum import Momentum
from actzip.control.propagation import Propagation, absorbed
from actzip.control.reading import Reading


def _reading(
    own: list[float] | float = 0.0,
    travels: list[float] | float = 0.0,
    signal: float = 1.0,
    passed: float = 1.0,
    power: float = 1.0,
    peak: float = 100.0,
    outer: float = 1.0,
) -> Reading:
    """A reading of one sample with these weights per channel."""
    q, t = (torch.tensor(np.atleast_1d(v), dtype=torch.float64) for v in (own, travels))
    q, t = (v.expand(max(q.numel(), t.numel())).clone() for v in (q, t))
    number = lambda v: torch.tensor(v, dtype=torch.float64)  # noqa: E731
    return Reading(
        parameter=q.sum().view(1),
        input=t.sum().view(1),
        channel_parameter=q,
        channel_input=t,
        worst_parameter=100 * q,
        worst_input=100 * t,
        peak=number(peak).expand(q.numel()),
        zeros=number(0.0),
        power=number(power),
        parameter_signal=number(signal),
        parameter_count=number(10.0),
        input_signal=number(passed),
        outer_signal=number(outer),
    )


def _site(
    reading: Reading, tolerance: float, elements: int = 100, channels: bool = False
) -> bounds.BoundedSite:
    return bounds.BoundedSite({"layer": bounds.Limit(reading, tolerance)}, elements, channels)


def _named(sites: dict[str, bounds.BoundedSite]) -> dict[str, bounds.BoundedSite]:
    """Each layer named as its site."""
    return {
        n: bounds.BoundedSite({n: s.limits["layer"]}, s.elements, s.channels, s.dense)
        for n, s in sites.items()
    }


def _chain(sites: dict[str, bounds.BoundedSite]) -> Propagation:
    """Each layer below the one before it, without branches."""
    readings = {n: v.reading for site in sites.values() for n, v in site.limits.items()}
    names = list(readings)
    routes = {n: Route((n,), tuple(names[i - 1 : i]), 0, 0) for i, n in enumerate(names)}
    return Propagation(routes, readings)


def _cheapest(
    sites: dict[str, bounds.BoundedSite], trails: bounds.Trails | None = None, worst: bool = False
) -> dict[str, bounds.Floats]:
    return bounds.cheapest(sites, trails or {}, _chain(sites), worst)


# -- bounds --------------------------------------------------------------------------------


def test_noise_whose_way_is_not_known_is_limited_as_if_a_parameter_got_it() -> None:
    """A reading says that noise travels on, the last graph says to nowhere."""
    site = _site(_reading(travels=2.0, passed=5.0), tolerance=0.0)
    found = bounds.cheapest({"a": site}, {}, _chain({"a": site}), ends=0.01)
    # ρ = eb²/3·Σt/‖g‖² = 0.01
    assert found["a"].tolist() == pytest.approx([math.sqrt(0.01 * 5 * 3 / 2)])


def test_a_linear_layer_alone_gets_all_it_tolerates() -> None:
    found = _cheapest({"a": _site(_reading(own=4.0), tolerance=3.0)})
    # eb²/3·Σw = 3
    assert found["a"].tolist() == pytest.approx([1.5])
    assert _cheapest({"a": _site(_reading(own=4.0), 3.0)}, worst=True)["a"] == (
        pytest.approx(math.sqrt(3 / 400))
    )


def test_the_strictest_of_several_readers_decides() -> None:
    limits = {
        "first": bounds.Limit(_reading(own=4.0), 3.0),
        "second": bounds.Limit(_reading(own=1.0), 0.03),
    }
    found = _cheapest({"a": bounds.BoundedSite(limits, 10)})
    assert found["a"].tolist() == pytest.approx([0.3])


def test_channels_add_the_same_error_each() -> None:
    site = _site(_reading(own=[1.0, 4.0, 16.0]), 3.0, channels=True)
    found = _cheapest({"a": site})["a"]
    assert (found**2 * [1, 4, 16] / 3).tolist() == pytest.approx([1.0, 1.0, 1.0])


def _predicted(
    sites: dict[str, bounds.BoundedSite], trails: bounds.Trails, chosen: dict[str, bounds.Floats]
) -> dict[str, float]:
    """E‖Δg‖² of each layer's parameters for these bounds: own code, trails, and what travels."""
    found: dict[str, float] = {}
    above = 0.0
    for name in reversed(list(sites)):
        site, square = sites[name], chosen[name] ** 2
        for layer, limit in reversed(list(site.limits.items())):
            q, t = site.coefficients(limit.reading, False)
            found[layer] = float((square * q).sum()) + above * absorbed(limit.reading)
            above += float((square * t).sum()) / float(limit.reading.input_signal)
    for (site_name, layer), h in trails.items():
        found[layer] += float((chosen[site_name] ** 2 * h).sum()) / 3
    return dict(reversed(found.items()))


def test_what_every_layer_gets_is_what_it_tolerates() -> None:
    """A chain of linear and curved sites, as of a small network: all that is tolerated is used."""
    sites = _named(
        {
            "conv": _site(_reading(own=2.0, power=3.0, signal=9.0), 1.0, 1000),
            "norm": _site(_reading([1.0, 2.0], [1e-3, 1e-2], 5.0), 0.5, 1000, channels=True),
            "linear": _site(_reading(own=1.0, signal=2.0), 0.2, 500),
            "curve": _site(_reading(travels=0.5), 0.0, 2000),
            "head": _site(_reading(own=1.0), 0.1, 10),
        }
    )
    trails = {("norm", "conv"): np.array([0.3, 0.1])}
    found = _cheapest(sites, trails)
    predicted = _predicted(sites, trails, found)
    for layer in ("conv", "norm", "linear", "head"):
        tolerance = sites[layer].limits[layer].tolerance
        assert predicted[layer] <= tolerance * (1 + 1e-9), layer
        assert predicted[layer] >= 0.6 * tolerance, layer
    assert found["curve"][0] < 100, "its noise travels: the layers below limit it"


def test_a_branch_that_is_diluted_may_be_noisier() -> None:
    """The curve is in a branch that brings a hundredth of the gradient that the layer gets."""

    def noise(outer: float) -> float:
        sites = _named(
            {
                "linear": _site(_reading(own=1.0, outer=outer), 0.1, 100),
                "curve": _site(_reading(travels=3.0), 0.0, 100),
            }
        )
        return float(_cheapest(sites)["curve"][0] ** 2)

    assert noise(outer=1.0) == pytest.approx(0.05), "half of 0.1, by the elements"
    assert noise(outer=100.0) == pytest.approx(5.0)


def test_a_trail_and_the_layers_own_code_share_what_it_tolerates() -> None:
    def pair(h: float) -> tuple[float, float]:
        sites = _named(
            {
                "conv": _site(_reading(own=3.0), 1.0, 100),
                "norm": _site(_reading(own=3.0), 1.0, 300),
            }
        )
        found = _cheapest(sites, {("norm", "conv"): np.array([h])})
        return float(found["conv"][0] ** 2), float(found["norm"][0] ** 2)

    assert pair(0.0) == pytest.approx((1.0, 1.0))
    assert pair(0.3) == pytest.approx((0.9, 1.0)), "a small trail is allowed as it is"
    # a large one gets its share by elements: 3/4
    assert pair(30.0) == pytest.approx((0.25, 0.075))


def test_bounds_stay_between_the_peak_and_what_float32_can_hold() -> None:
    wide = _cheapest({"a": _site(_reading(own=1e-30, peak=2.0), 1.0)})
    fine = _cheapest({"a": _site(_reading(own=1e30, peak=2.0), 1.0)})
    free = _cheapest({"a": _site(_reading(peak=2.0), 0.0)})
    assert wide["a"] == [2.0]
    assert fine["a"] == pytest.approx([2.0**-19])
    assert free["a"] == [2.0]


# -- caution -------------------------------------------------------------------------------


def test_the_signal_is_taken_as_small_as_in_the_worst_reading() -> None:
    rows = [(100, _reading(2.0, signal=8.0)), (200, _reading(4.0, signal=4.0))]
    found = cautious(rows, min)
    assert found is not None
    assert float(found.parameter) == 3.0
    assert float(found.parameter_signal) == 3.0, "one to one, as in the second"


def test_errors_grow_with_the_tensor() -> None:
    rows = [
        (100, _reading(2.0, signal=2.0, power=1.0)),
        (200, _reading(2.0, signal=32.0, power=16)),
    ]
    found = cautious(rows, min)
    assert found is not None
    assert float(found.parameter_signal) == 2.0 * 16 * 1.0


def test_readings_of_the_first_eighth_of_a_run_are_forgotten() -> None:
    old, new = _reading(1.0, signal=1e-6), _reading(1.0, signal=1.0)

    def signal(rows: list[tuple[int, Reading]]) -> float:
        found = cautious(rows, min)
        assert found is not None
        return float(found.parameter_signal)

    assert signal([(10, old), (100, new)]) == 1.0
    assert signal([(20, old), (100, new)]) == 1e-6
    assert cautious([], min) is None
    rows = [(10, torch.tensor([9.0])), (100, torch.tensor([1.0])), (110, torch.tensor([2.0]))]
    assert middle(rows).tolist() == [1.5]


def test_what_is_unlikely_follows_the_spread_of_the_looks() -> None:
    assert unlikely([2.0, 3.0]) == pytest.approx(0.1), "of two nobody knows the spread"
    assert unlikely([5.0, 5.0, 5.0]) == pytest.approx(5.0)
    assert unlikely([1.0, 0.0, 1.0]) == 0.0, "a layer without a gradient tolerates nothing"
    steady, wild = unlikely([1.0, 1.1, 0.9, 1.0]), unlikely([4.0, 0.25, 2.0, 0.5])
    assert wild < 0.1 < 0.5 < steady < 1.0


def test_what_is_unlikely_hardly_ever_comes() -> None:
    rng = np.random.default_rng(0)
    for spread in (0.3, 1.0):
        draws = np.exp(rng.normal(1.0, spread, (4000, 11)))
        below = sum(row[10] < unlikely(row[:10].tolist()) for row in draws)
        # three deviations that ten numbers told: Student's t with nine degrees of freedom
        assert 10 < below < 55, f"{below} of 4000, 30 are to be expected"


# -- momentum ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, 0.1),
        lambda p: torch.optim.AdamW(p, 0.1),
        lambda p: torch.optim.NAdam(p, 0.1),
        lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9),
    ],
)
def test_momentum_is_found_in_the_optimizers_own_buffer(make) -> None:  # type: ignore[no-untyped-def]
    layer = nn.Linear(6, 5)
    optimizer = make(layer.parameters())
    found = Momentum(optimizer)
    place = found.place([layer.bias, layer.weight])
    assert place == 0, "the weight, not the bias"
    assert found.size(place) is None, "before the first step"
    layer(torch.randn(3, 6)).sum().backward()
    optimizer.step()
    state = optimizer.state[layer.weight]
    buffer = state.get("momentum_buffer", state.get("exp_avg"))
    assert found.size(place) == pytest.approx(float(buffer.abs().mean()))


def test_without_a_buffer_there_is_no_momentum() -> None:
    layer = nn.Linear(6, 5)
    bare = Momentum(torch.optim.SGD(layer.parameters(), 0.1))
    assert bare.size(bare.place([layer.weight])) is None
    assert Momentum(None).place([layer.weight]) is None
    assert Momentum(None).size(3) is None
    assert bare.place([nn.Parameter(torch.zeros(2))]) is None


# -- trails --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["conv", "strided", "grouped", "linear"])
def test_the_trail_of_a_batch_norm_is_what_its_noise_leaves_below(kind: str) -> None:
    """Noise in BatchNorm's stored input, drawn many times: E‖ΔgW‖² of the op that made it."""
    torch.manual_seed(1)
    if kind == "linear":
        x = torch.randn(256, 12) @ torch.randn(12, 12) / 3
        weight = torch.randn(8, 12) / 4
        make = lambda: x @ weight.t()  # noqa: E731
        options: dict[str, object] = {}
    else:
        x = F.avg_pool2d(torch.randn(16, 4, 22, 22), 3, 1)  # neighbours are alike, as in pictures
        groups, stride = (2, 1) if kind == "grouped" else (1, 2 if kind == "strided" else 1)
        weight = torch.randn(8, 4 // groups, 3, 3) / 4
        make = lambda: F.conv2d(x, weight, None, stride, 1, 1, groups)  # noqa: E731
        options = {"stride": [stride] * 2, "padding": [1, 1], "dilation": [1, 1], "groups": groups}
    y = make()
    gamma, rest = torch.rand(8) + 0.5, [d for d in range(y.dim()) if d != 1]
    around = [1, -1] + [1] * (y.dim() - 2)
    mean, r = y.mean(rest), (y.var(rest, unbiased=False) + 1e-5).rsqrt()
    gz = torch.randn_like(y)
    m = y.numel() / 8

    def gradient(noisy: Tensor) -> Tensor:
        """gW with BatchNorm's backward reading a noisy input."""
        normal = (noisy - mean.view(around)) * r.view(around)
        g_gamma = (gz * normal).sum(rest)
        centred = gz - gz.mean(rest).view(around) - normal * (g_gamma / m).view(around)
        gx = (gamma * r).view(around) * centred
        if kind == "linear":
            return gx.t() @ x
        conv_weight: Tensor = nn.grad.conv2d_weight(
            x, weight.shape, gx, options["stride"], 1, 1, options["groups"]
        )
        return conv_weight

    s = 0.3
    exact, error = gradient(y), 0.0
    for _ in range(60):
        error += float((gradient(y + s * torch.randn_like(y)) - exact).square().sum()) / 60
    node = "NativeBatchNormBackward0"
    norm = Backward(
        node, slots.op(node), "input", y, gz, (gz,), (False,),
        {"training": True, "result1": mean, "result2": r, "weight": gamma},
    )  # fmt: skip
    left = batchnorm_trail.trail(norm)
    assert left is not None
    node, slot = (
        ("AddmmBackward0", "mat1") if kind == "linear" else ("ConvolutionBackward0", "input")
    )
    made = Backward(
        node,
        slots.op(node),
        slot,
        x,
        gz,
        (weight,),
        (True,),
        {"transposed": False, "weight": weight, **options},
    )
    h = batchnorm_trail.trail_weights(made, left)
    assert h is not None
    predicted = float(s**2 * h.sum())
    assert predicted == pytest.approx(error, rel=0.35)


def test_other_ops_leave_no_trail_and_take_none() -> None:
    x = torch.randn(4, 3, 8, 8)
    node = "NativeLayerNormBackward0"
    b = Backward(node, slots.op(node), "input", x, x, (x,), (False,), {})
    assert batchnorm_trail.trail(b) is None
    left = batchnorm_trail.Trail(x, torch.ones(3))
    assert batchnorm_trail.trail_weights(b, left) is None


def test_parameters_that_are_no_layers_get_no_more_noise_than_they_tolerate() -> None:
    """Two sites above an embedding, the upper one diluted fourfold on its way."""
    low = _site(_reading(travels=4.0, signal=0.0, passed=2.0, outer=8.0), 0.0)
    top = _site(_reading(travels=1.0, signal=0.0, passed=2.0), 0.0)
    sites = _named({"low": low, "top": top})
    readings = {n: site.limits[n].reading for n, site in sites.items()}
    routes = {"low": Route(("low",), (), 1, 0), "top": Route(("top",), ("low",), 0, 0)}
    propagation = Propagation(routes, readings)
    assert propagation.relative_at_ends("top").tolist() == [2.0 / 8.0]
    found = bounds.cheapest(sites, {}, propagation, ends=0.01)
    noise = {n: found[n][0] ** 2 * t / 3 / 2.0 for n, t in (("low", 4.0), ("top", 1.0))}
    assert noise["low"] + noise["top"] / 4 == pytest.approx(0.01, rel=0.05)
    free = bounds.cheapest(sites, {}, propagation)
    assert free["low"][0] == pytest.approx(100.0)  # its peak
