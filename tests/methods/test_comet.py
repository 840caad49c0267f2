"""COMET: strict bounds, zeros that stay zeros, and noise that is what was asked for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from digit_run import adamw, assert_resumes, batches, checked_run, plain, resnet, sgd, step
from torch import Tensor, nn

import actzip
from actzip.codecs import Bounded
from actzip.codecs.base import Payload
from actzip.codecs.verified import BrokenBoundError, Verified
from actzip.methods.comet import paper_sigma

CONV = ":ConvolutionBackward0.input"


def _trained(
    method: actzip.Comet, optimizer: Any = sgd, steps: int = 12
) -> tuple[nn.Module, Any, actzip.Session]:
    model = plain()
    optimizer = optimizer(model)
    session = actzip.compress(model, method=method, optimizer=optimizer)
    data = batches()
    for _ in range(steps):
        step(model, optimizer, *next(data))
    return model, optimizer, session


def _bounds(session: actzip.Session) -> dict[str, float]:
    """The error of each convolution's code in the last forward pass."""
    codes = {row.name: row.codec for row in session.stats().sites if CONV in row.name}
    return {name: eval(code, {"Bounded": Bounded}).error for name, code in codes.items() if code}


# -- the promise ---------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["conv", "all"])
@pytest.mark.parametrize("predict", [None, "lorenzo"])
def test_every_element_of_every_tensor_of_a_run_is_within_its_bound(
    scope: str, predict: str | None
) -> None:
    method = actzip.Comet(scope=scope, predict=predict, interval=4, verify=True)
    checks, session = checked_run(resnet, sgd, method, steps=8, every=4)
    coded = [row.codec for row in session.stats().sites if row.codec.startswith("Verified")]
    assert len(coded) >= (7 if scope == "conv" else 15)
    assert checks.worst[0] < 0.5


def test_a_broken_promise_is_an_error_that_names_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Bounded._decode

    def decode(self: Bounded, payload: Payload, out: Tensor) -> None:
        sound(self, payload, out)
        assert isinstance(self.error, float)
        out.view(-1)[7] += 3 * self.error

    monkeypatch.setattr(Bounded, "_decode", decode)
    model, (x, y) = plain(), next(batches())
    with (
        actzip.compress(model, method="comet", verify=True),
        pytest.raises(BrokenBoundError, match=f"0{CONV}: 1 of"),
    ):
        F.cross_entropy(model(x), y).backward()


def test_a_zero_that_comes_back_as_something_else_breaks_the_promise() -> None:
    x = torch.tensor([0.0, 1.0, float("nan"), float("inf")])
    code = Verified(0.5, site="here")
    code._verify(x, torch.tensor([0.0, 1.4, float("nan"), float("inf")]))
    for wrong in ([0.1, 1, float("nan"), float("inf")], [0.0, 1, 0.0, float("inf")]):
        with pytest.raises(BrokenBoundError, match="here: 1 of 4"):
            code._verify(x, torch.tensor(wrong))


def test_zeros_of_a_relu_stay_zeros_and_cost_no_mask() -> None:
    _, _, session = _trained(actzip.Comet(), steps=3)
    rows = {row.name: row for row in session.stats().sites}
    assert rows["1:ReluBackward0.result"].shared_with == f"2{CONV}"
    assert rows[f"2{CONV}"].codec.startswith("Bounded(error=")


# -- the prediction ------------------------------------------------------------------------


@pytest.mark.parametrize("build", [plain, resnet], ids=["plain", "resnet"])
def test_the_noise_of_each_layer_is_what_the_exact_model_says(build: Any) -> None:
    model = build()
    optimizer = sgd(model)
    method = actzip.Comet(interval=1, sigma=0.05, rest_bits=None)
    session = actzip.compress(model, method=method, optimizer=optimizer)
    data = batches()
    for _ in range(25):
        x, y = next(data)
        step(model, optimizer, x, y)
    F.cross_entropy(model(x), y).backward()  # the readings are now of this batch
    F.cross_entropy(model(x), y)  # and so are the bounds
    noise = {row.parameter: row for row in session.gradient_noise((x, y), draws=48)}
    errors, layers = session._policy._errors, session._statistics.layers  # type: ignore[attr-defined]
    seen = 0
    for layer in layers:
        if CONV not in layer:
            continue
        reading = layers.readings(layer)[-1][1]
        eb = float(errors[layers.site(layer)][0])
        weight = noise[layer.replace(CONV, ".weight")]
        measured = math.sqrt(weight.quantization / float(reading.weight_count))
        each = float(reading.parameter.sum()) / (3 * float(reading.weight_count))
        assert measured == pytest.approx(eb * math.sqrt(each), rel=0.1), layer
        assert paper_sigma(reading, eb) > 0
        seen += 1
    assert seen == (3 if build is plain else 9)


def test_the_bound_is_sigma_of_the_momentum_by_the_formula() -> None:
    for optimizer, name in ((sgd, "momentum_buffer"), (adamw, "exp_avg")):
        model, opt, session = _trained(actzip.Comet(interval=1, sigma=0.02), optimizer)
        layers = session._statistics.layers
        model(next(batches())[0])  # learns from the last step
        for at in (0, 2, 4):
            weight = model[at].weight  # type: ignore[index]
            r = layers.readings(f"{at}{CONV}")[-1][1]
            target = 0.02 * float(opt.state[weight][name].abs().mean())
            expected = target * math.sqrt(3 * weight.numel() / float(r.parameter.sum()))
            assert _bounds(session)[f"{at}{CONV}"] == pytest.approx(expected, rel=1e-4)


def test_without_a_momentum_the_gradients_themselves_are_taken() -> None:
    def bare(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.02)

    found = []
    for optimizer in (bare, lambda model: None):
        if optimizer is bare:
            model, _, session = _trained(actzip.Comet(interval=1), bare, steps=3)
        else:
            model = plain()
            session = actzip.compress(model, method=actzip.Comet(interval=1))
            data, opt = batches(), bare(model)
            for _ in range(3):
                step(model, opt, *next(data))
        model(next(batches())[0])
        found.append(_bounds(session))
        r = session._statistics.layers.readings(f"2{CONV}")[-1][1]
        size = math.sqrt(float(r.parameter_signal) / float(r.parameter_count) * 0.1 / 1.9)
        expected = 0.01 * size * math.sqrt(3 * 8 * 16 * 9 / float(r.parameter.sum()))
        assert found[-1][f"2{CONV}"] == pytest.approx(expected, rel=1e-4)
    assert found[0] == found[1]


def test_the_papers_model_gives_wider_bounds() -> None:
    ours = _bounds(_trained(actzip.Comet(interval=1))[2])
    theirs = _bounds(_trained(actzip.Comet(interval=1, model="paper"))[2])
    assert all(theirs[name] > ours[name] for name in ours)


def test_the_scope_decides_what_gets_a_bound() -> None:
    def codes(**options: Any) -> dict[str, str]:
        _, session = checked_run(resnet, sgd, actzip.Comet(**options), steps=2, every=2)
        return {row.name: row.codec for row in session.stats().sites}

    norm = "stages.0.0.bn1:NativeBatchNormBackward0.input"
    assert codes()[norm] == "Group(bits=4, entropy=True)"
    assert codes(scope="all")[norm].startswith("Bounded(error=(")
    assert codes(rest_bits=None)[norm] == ""


# -- the pace ------------------------------------------------------------------------------


def test_the_interval_halves_while_a_bound_moves_and_comes_back() -> None:
    model = plain()
    optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=0.5)
    session = actzip.compress(model, method="comet", interval=8, optimizer=optimizer)
    x, y = next(batches())
    looks = []
    for n in range(80):
        optimizer.zero_grad()
        # what the momentum smooths is a hundred times larger for one look
        scale = 100.0 if 35 <= n < 43 else 1.0
        (scale * F.cross_entropy(model(x), y)).backward()
        if session._policy._looking:  # type: ignore[attr-defined]
            looks.append(n)
        optimizer.step()
    gaps = [b - a for a, b in itertools.pairwise(looks)]
    jump = next(i for i, n in enumerate(looks) if n >= 35)
    assert gaps[:3] == [2, 4, 8]
    assert gaps[jump - 1] == 8
    assert min(gaps[jump:]) < 8
    assert gaps[-1] == max(gaps) == 8


def test_the_published_warm_up_compresses_nothing_before_the_first_look() -> None:
    model = plain()
    optimizer = sgd(model)
    session = actzip.compress(
        model, method="comet", warmup="uncompressed", interval=3, optimizer=optimizer
    )
    data, codes, reasons = batches(), [], []
    for _ in range(4):
        step(model, optimizer, *next(data))
        row = next(r for r in session.stats().sites if r.name == f"2{CONV}")
        codes.append(row.codec.split("(")[0])
        reasons.append(row.reason)
    assert codes == ["", "", "Keep", "Bounded"]
    assert "after 3 steps" in reasons[0]


# -- state ---------------------------------------------------------------------------------


def test_a_resumed_run_goes_on_bit_for_bit() -> None:
    assert_resumes(actzip.Comet(interval=2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sigma": 0.0}, "sigma"),
        ({"interval": 0}, "interval"),
        ({"interval": 1.5}, "interval"),
        ({"model": "guess"}, "exact"),
        ({"scope": "linear"}, "conv"),
        ({"warmup": "none"}, "safe"),
        ({"predict": "spline"}, "lorenzo"),
        ({"rest_bits": 9}, "1 to 8"),
    ],
)
def test_wrong_options_are_refused_when_the_method_is_built(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        actzip.Comet(**options)


def test_its_repr_gives_the_method_back() -> None:
    method = actzip.Comet(sigma=0.02, scope="all", predict="lorenzo")
    assert eval(repr(method), {"Comet": actzip.Comet}) == method
