"""session.gradient_noise: right figures, and not a trace of having asked."""

from __future__ import annotations

import copy
import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.noise import Noise, NoiseReport, compare, pieces
from trained import batch, resnet


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(8 * 256, 10),
    )


# -- the figures --------------------------------------------------------------------------------


def test_figures_against_known_noise() -> None:
    """Draws around a shifted mean: bias, variance and signal are those that were put in."""
    generator = torch.Generator().manual_seed(1)
    exact = [torch.randn(2000, generator=generator), torch.ones(3)]
    shift = 0.05

    def draw() -> list[Tensor]:
        noisy = exact[0] + shift + 0.2 * torch.randn(2000, generator=generator)
        return [noisy, exact[1]]

    parts = [[torch.full((2000,), float(i)), torch.ones(3)] for i in range(4)]
    first, second = compare(["a", "b"], exact, draw, parts, draws=50)
    assert first.parameter == "a"
    assert first.signal == pytest.approx(float(exact[0].square().sum()), rel=1e-5)
    assert first.bias == pytest.approx(2000 * shift**2, rel=0.1)
    assert first.quantization == pytest.approx(2000 * 0.2**2, rel=0.05)
    # the mean of 0, 1, 2, 3 has the variance 5/3/4
    assert first.sgd == pytest.approx(2000 * 5 / 12)
    assert first.share == pytest.approx(first.quantization / first.sgd)
    assert (second.bias, second.quantization, second.sgd) == (0, 0, 0)
    assert math.isnan(second.share)


def test_the_total_adds_up_and_is_printed_below() -> None:
    report = NoiseReport([Noise("a.weight", 4, 1, 2, 8), Noise("b", 1, 0, 1, 2)])
    assert report.total == Noise("total", 5, 1, 3, 10)
    lines = str(report).splitlines()
    assert len(lines) == 4
    assert lines[0].split() == ["parameter", "|g|²", "bias²", "quantized", "sgd", "share"]
    assert lines[1].split()[-1] == "25.0%"
    assert lines[-1].startswith("total")


def test_a_row_per_trained_parameter_with_the_exact_signal() -> None:
    model = resnet()
    next(model.parameters()).requires_grad_(False)  # the stem's
    x, y = batch(960)
    F.cross_entropy(model(x), y).backward()
    exact = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    with actzip.compress(model, "actnn", min_bytes=0) as session:
        report = session.gradient_noise((x, y), draws=4)
    assert [row.parameter for row in report] == list(exact)
    for row in report:
        assert row.signal == pytest.approx(float(exact[row.parameter].square().sum()), rel=1e-5)
        assert row.sgd > 0


def test_quantization_is_what_repeated_steps_show() -> None:
    model = resnet()
    x, y = batch(960)
    parameters = list(model.parameters())

    def gradients() -> Tensor:
        found = torch.autograd.grad(F.cross_entropy(model(x), y), parameters)
        return torch.cat([g.flatten() for g in found]).double()

    with actzip.compress(model, actzip.Fixed(), min_bytes=0) as session:
        report = session.gradient_noise((x, y), draws=24)
        draws = torch.stack([gradients() for _ in range(24)])
    measured = float(draws.var(0).sum())
    assert report.total.quantization == pytest.approx(measured, rel=0.15)


def test_a_lossless_method_adds_nothing() -> None:
    model = model_of()
    with actzip.compress(model, "lossless") as session:
        total = session.gradient_noise(batch(), draws=2).total
    assert total.quantization == total.bias == 0 < total.sgd


def test_sgd_noise_is_that_of_batches_of_this_size() -> None:
    """Against the spread of the gradients of many batches of a linear model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 10))
    batches = [batch(32 * i) for i in range(30)]
    parameters = list(model.parameters())
    found = []
    for x, y in batches:
        g = torch.autograd.grad(F.cross_entropy(model(x), y), parameters)
        found.append(torch.cat([t.flatten() for t in g]).double())
    spread = float(torch.stack(found).var(0).sum())
    with actzip.compress(model, actzip.Fixed(), min_bytes=0) as session:
        told = [session.gradient_noise(b, draws=2, parts=16).total.sgd for b in batches[:10]]
    assert sum(told) / len(told) == pytest.approx(spread, rel=0.2)


# -- no trace -----------------------------------------------------------------------------------


def _run(ask: bool) -> tuple[list[Tensor], Any]:
    """Ten steps of training, with or without questions in between."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    history = []
    torch.manual_seed(5)
    with actzip.compress(model, "actnn", bits=2.5, interval=4, min_bytes=0) as session:
        for i in range(10):
            x, y = batch(16 * i, 16)
            optimizer.zero_grad()
            session.samples(torch.arange(16 * i, 16 * i + 16) % 60)
            if ask and i in (0, 3, 5):
                session.gradient_noise(batch(640, 16), draws=2, parts=2)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            history.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
            history += [b.clone() for b in model.buffers()]
        state = copy.deepcopy(session.state_dict())
    return history, state


def test_a_run_that_asks_is_bit_equal_to_one_that_never_did() -> None:
    asked, asked_state = _run(ask=True)
    never, state = _run(ask=False)
    for a, b in zip(asked, never, strict=True):
        assert torch.equal(a, b)
    assert repr(asked_state) == repr(state)


def test_gradients_modes_streams_and_numbers_are_as_they_were() -> None:
    model = model_of()
    model[1].eval()  # a frozen norm in a model that trains
    x, y = batch(0, 16)
    with actzip.compress(model, "actnn", min_bytes=0) as session:
        F.cross_entropy(model(x), y).backward()
        gradients = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
        modes = [m.training for m in model.modules()]
        stats, step = session.stats(), session.step
        streams = torch.get_rng_state(), random.getstate(), repr(np.random.get_state())
        session.gradient_noise((x, y), draws=2)
        for p, g in zip(model.parameters(), gradients, strict=True):
            assert torch.equal(p.grad, g)  # type: ignore[arg-type]
        assert [m.training for m in model.modules()] == modes
        assert session.step == step
        assert session.stats().sites is stats.sites
        assert torch.equal(torch.get_rng_state(), streams[0])
        assert random.getstate() == streams[1]
        assert repr(np.random.get_state()) == streams[2]
        assert session.live_bytes == 0


def test_a_model_in_eval_mode_is_asked_as_if_it_trained_and_stays_in_eval_mode() -> None:
    model = model_of().eval()
    before = copy.deepcopy(model.state_dict())
    with actzip.compress(model, "actnn", min_bytes=0) as session:
        report = session.gradient_noise(batch(0, 16), draws=2)
    assert report.total.quantization > 0
    assert not any(m.training for m in model.modules())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_error_in_the_loss_leaves_no_trace_either() -> None:
    model = model_of()
    x, y = batch(0, 16)
    with actzip.compress(model, "actnn", min_bytes=0) as session:
        F.cross_entropy(model(x), y).backward()
        policy, step, before = session._policy, session.step, copy.deepcopy(model.state_dict())

        def broken(output: Tensor, target: Tensor) -> Tensor:
            raise ArithmeticError("on purpose")

        with pytest.raises(ArithmeticError):
            session.gradient_noise((x, y), broken)
        assert session._policy is policy
        assert session.step == step
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name])


def test_a_model_without_masks_gets_no_warning_for_its_exact_pass() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 10))
    with actzip.compress(model, "actnn") as session:
        session.gradient_noise(batch(), draws=2)  # a warning would be an error


# -- questions that cannot be answered ------------------------------------------------------------


@pytest.mark.parametrize("options", [{"draws": 1}, {"parts": 1}, {"draws": 0}])
def test_too_few_draws_or_parts(options: dict[str, int]) -> None:
    model = model_of()
    with (
        actzip.compress(model, "actnn") as session,
        pytest.raises(ValueError, match="at least 2 draws and parts"),
    ):
        session.gradient_noise(batch(), **options)  # type: ignore[arg-type]


def test_a_session_without_a_model() -> None:
    session = actzip.compress(method="actnn")
    with pytest.raises(RuntimeError, match="a session of a model"):
        session.gradient_noise(batch())
    model = model_of()
    removed = actzip.compress(model, "actnn")
    removed.remove()
    with pytest.raises(RuntimeError, match="a session of a model"):
        removed.gradient_noise(batch())


# -- batches by name ------------------------------------------------------------------------------


class Named(nn.Module):
    """Takes its inputs by name and returns its loss, in the form that is asked for."""

    def __init__(self, form: str):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 10))
        self.form = form

    def forward(
        self, pixels: Tensor, labels: Tensor | None = None, scale: Tensor | None = None, k: int = 1
    ) -> Any:
        assert k == 3
        assert scale is not None
        assert scale.shape == (2,)
        output = self.body(pixels) * scale[0]
        if labels is None:
            return output
        loss = F.cross_entropy(output, labels)
        if self.form == "attribute":
            return SimpleNamespace(loss=loss, logits=output)
        return {"loss": loss, "logits": output} if self.form == "item" else loss


def named(labels: bool = True) -> dict[str, Any]:
    x, y = batch(0, 32)
    inputs = {"pixels": x.flatten(1), "scale": torch.ones(2), "k": 3}
    return {**inputs, "labels": y} if labels else inputs


@pytest.mark.parametrize("form", ["attribute", "item", "scalar"])
def test_named_inputs_give_the_figures_of_the_pair(form: str) -> None:
    x, y = batch(0, 32)
    model = Named(form)
    with actzip.compress(model.body, actzip.Fixed(), min_bytes=0) as session:
        pair = session.gradient_noise((x.flatten(1), y), draws=4)
    with actzip.compress(model, actzip.Fixed(), min_bytes=0) as session:
        found = session.gradient_noise(named(), draws=4)
    assert [row.parameter for row in found] == [f"body.{row.parameter}" for row in pair]
    for ours, theirs in zip(found, pair, strict=True):
        assert ours.signal == pytest.approx(theirs.signal, rel=1e-4)
        assert ours.sgd == pytest.approx(theirs.sgd, rel=1e-4)


def test_a_loss_of_named_inputs_is_given_output_and_batch() -> None:
    model, inputs = Named("scalar"), named(labels=False)
    x = inputs["pixels"]
    with actzip.compress(model.body, actzip.Fixed(), min_bytes=0) as session:
        pair = session.gradient_noise((x, x[:, :10]), F.mse_loss, draws=2).total
    with actzip.compress(model, actzip.Fixed(), min_bytes=0) as session:
        found = session.gradient_noise(
            inputs, lambda output, given: F.mse_loss(output, given["pixels"][:, :10]), draws=2
        ).total
    assert found.signal == pytest.approx(pair.signal, rel=1e-4)
    assert found.sgd == pytest.approx(pair.sgd, rel=1e-4)


def test_named_inputs_beside_targets() -> None:
    _, y = batch(0, 32)
    model = Named("scalar")
    with actzip.compress(model, actzip.Fixed(), min_bytes=0) as session:
        found = session.gradient_noise((named(labels=False), y), draws=2)
        same = session.gradient_noise(named(), draws=2)
    assert found.total.signal == pytest.approx(same.total.signal, rel=1e-5)
    assert found.total.sgd == pytest.approx(same.total.sgd, rel=1e-5)


def test_named_inputs_without_a_loss_or_a_tensor() -> None:
    model = Named("scalar")
    with actzip.compress(model, actzip.Fixed(), min_bytes=0) as session:
        with pytest.raises(TypeError, match="must return its loss"):
            session.gradient_noise(named(labels=False))
        assert (session.step, len(session.log)) == (0, 0)
    with pytest.raises(ValueError, match="sample dimension"):
        pieces({"k": 3}, 4)


def test_a_batch_is_cut_along_its_samples() -> None:
    cut = pieces({"a": torch.arange(9), "b": torch.ones(2), "c": "word"}, 8)
    assert [piece["a"].tolist() for piece in cut] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    assert all(piece["b"].shape == (2,) and piece["c"] == "word" for piece in cut)
