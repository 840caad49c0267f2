"""auto: the noise that was asked for, the bytes that were asked for, from the first step on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from digit_run import adamw, assert_resumes, batches, resnet, sgd, step, transformer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import actzip
from actzip.methods.auto_policy import next_look
from actzip.tasks.models.decoder import Decoder
from processes import in_two_processes

Build = Callable[[], nn.Module]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors; the suite has a process for each core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _run(build: Build, steps: int, **options: Any) -> tuple[nn.Module, actzip.Session]:
    model = build()
    optimizer = (sgd if build is resnet else adamw)(model)
    session = actzip.compress(model, method="auto", optimizer=optimizer, **options)
    data = batches()
    for _ in range(steps):
        step(model, optimizer, *next(data))
    return model, session


@cache
def _settled(build: Build, noise: float) -> tuple[actzip.NoiseReport, float, float]:
    """What is measured and what is predicted after some steps, and the ratio."""
    _, session = _run(build, 32, noise=noise)
    data = batches(seed=1)
    reports = [session.gradient_noise(next(data), draws=6) for _ in range(3)]
    rows = [
        type(each[0])(each[0].parameter, *(sum(getattr(r, n) for r in each) for n in _SUMS))
        for each in zip(*reports, strict=True)
    ]
    report = actzip.NoiseReport(rows)
    return report, session.metrics()["noise_predicted"], session.stats().ratio


_SUMS = ("signal", "bias", "quantization", "sgd")


@pytest.mark.parametrize("build", [resnet, transformer])
def test_the_noise_that_is_measured_is_the_noise_that_was_asked_for(build: Build) -> None:
    report, predicted, ratio = _settled(build, 0.05)
    assert predicted == pytest.approx(0.05, rel=0.1)
    assert predicted / 2 <= report.total.share <= predicted * 2
    assert report.total.bias < 0.1 * report.total.quantization
    assert ratio > 7.5


@pytest.mark.parametrize("build", [resnet, transformer])
def test_no_layer_has_many_times_its_share(build: Build) -> None:
    report, _, _ = _settled(build, 0.05)
    layers: dict[str, list[float]] = {}
    for row in report:
        sums = layers.setdefault(row.parameter.rpartition(".")[0], [0.0, 0.0])
        sums[0] += row.quantization
        sums[1] += row.sgd
    worst = max(layers, key=lambda n: layers[n][0] / max(layers[n][1], 1e-30))
    share = layers[worst][0] / layers[worst][1]
    assert share <= 2 * 6 * 0.05, f"{worst}: {share:.3f}"


@pytest.mark.parametrize("build", [resnet, transformer])
def test_more_noise_takes_fewer_bytes(build: Build) -> None:
    fine, _, large = _settled(build, 0.005)
    coarse, _, small = _settled(build, 0.05)
    assert small > 1.2 * large
    assert coarse.total.share > 3 * fine.total.share


@pytest.mark.parametrize(("build", "ratio"), [(resnet, 12), (resnet, 9), (transformer, 8)])
def test_a_ratio_is_reached_within_five_per_cent(build: Build, ratio: float) -> None:
    _, session = _run(build, 24, ratio=ratio)
    assert session.stats().ratio == pytest.approx(ratio, rel=0.05)


def test_a_ratio_out_of_reach_is_said_once_and_the_coarsest_codes_are_used() -> None:
    with pytest.warns(actzip.ActzipWarning, match="ratio=1000 cannot be reached") as said:
        _, session = _run(resnet, 6, ratio=1000)
    assert len([w for w in said if "cannot be reached" in str(w.message)]) == 1
    assert session.stats().ratio > 15


def test_the_first_steps_are_safe_and_already_small() -> None:
    model, twin = resnet(), resnet()
    x, y = next(batches())
    with actzip.compress(model, method="auto") as session:
        F.cross_entropy(model(x), y).backward()
        F.cross_entropy(twin(x), y).backward()
        assert session.stats().ratio > 6
    pairs = list(zip(model.parameters(), twin.parameters(), strict=True))
    error = sum(float((p.grad - q.grad).square().sum()) for p, q in pairs)  # type: ignore[operator]
    assert error < 0.01 * sum(float(q.grad.square().sum()) for _, q in pairs)  # type: ignore[union-attr]


def test_looks_are_rare() -> None:
    looks, at = [], 0
    while at < 3000:
        looks.append(at)
        at = next_look(at)
    assert sum(n < 1000 for n in looks) <= 30
    assert all(b - a >= 3 for a, b in itertools.pairwise(looks))
    assert sum(1200 <= n < 3000 for n in looks) == 9


def test_a_resumed_run_goes_on_bit_for_bit() -> None:
    assert_resumes(actzip.Auto(noise=0.05), steps=9)
    assert_resumes(actzip.Auto(ratio=10), steps=6)


def test_two_runs_are_equal() -> None:
    first, _ = _run(resnet, 6)
    again, _ = _run(resnet, 6)
    for p, q in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)


def test_random_streams_and_hooks_of_the_user_are_untouched() -> None:
    model = resnet()
    data = batches()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    session = actzip.compress(model, method="auto")
    for _ in range(5):
        x, y = next(data)
        F.cross_entropy(model(x), y).backward()
    assert torch.equal(torch.get_rng_state(), before)
    session.remove()
    assert not any(p._backward_hooks for p in model.parameters())


class _Odd(nn.Module):
    """An op with a row in the slot table, and no error formula."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        out: Tensor = self.last(torch.hypot(h, h + 1))
        return out


def test_an_op_without_a_formula_is_kept_exactly_and_named() -> None:
    model, x = _Odd(), torch.randn(64, 64)
    with actzip.compress(model, method="auto") as session:
        for _ in range(5):
            model(x).square().sum().backward()
        rows = {row.name: row for row in session.stats().sites}
        assert "HypotBackward0.self" in session.report().replace(
            "Hypot.self", "HypotBackward0.self"
        )
    assert not rows[":HypotBackward0.self"].codec
    assert "no error formula" in rows[":HypotBackward0.self"].reason
    assert rows["first:AddmmBackward0.mat1"].codec.startswith("Dithered")


class _Apart(nn.Module):
    """Channels whose means are further apart than their values, as in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 64)
        with torch.no_grad():
            self.first.bias.copy_(torch.randn(128) * 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(F.gelu(self.first(x)))
        return out


def test_channels_apart_are_coded_about_their_means() -> None:
    model = _Apart()
    optimizer = sgd(model)
    rng = torch.Generator().manual_seed(0)
    teacher = torch.randn(64, 64, generator=rng) / 8
    session = actzip.compress(model, method="auto", optimizer=optimizer)
    codecs: list[str] = []
    for _ in range(8):
        x = torch.randn(256, 64, generator=rng)
        optimizer.zero_grad()
        (model(x) - x @ teacher).square().mean().backward()
        optimizer.step()
        codecs.append(next(r.codec for r in session.stats().sites if "Gelu" in r.name))
    assert codecs[0].startswith("Group")
    assert codecs[-1].startswith("Centred")
    again = actzip.compress(_Apart(), method="auto")
    again.load_state_dict(session.state_dict())
    ours, theirs = (s._policy._codes.curves for s in (session, again))  # type: ignore[attr-defined]
    assert ours == theirs
    assert any(len(curve.centre) == 128 for curve in theirs.values())


def test_guarded_it_still_learns_and_says_what_it_has_to_say() -> None:
    model = resnet()
    optimizer = sgd(model)
    session = actzip.compress(model, method="auto", optimizer=optimizer, guard=True, ratio=500)
    data = batches()

    def train() -> None:
        for _ in range(5):
            step(model, optimizer, *next(data))

    with pytest.warns(actzip.ActzipWarning) as said:
        train()
    assert session.metrics()["noise_predicted"] > 0
    assert any("ratio=500 cannot be reached" in str(w.message) for w in said)
    assert session.metrics()["guard_level"] > 0, "that much noise is beyond the guard's limit"


def test_around_code_without_a_model() -> None:
    model = resnet()
    session = actzip.compress(method="auto", noise=0.05)
    data = batches()
    for _ in range(8):
        x, y = next(data)
        with session:
            loss = F.cross_entropy(model(x), y)
        loss.backward()
    assert session.metrics()["noise_predicted"] == pytest.approx(0.05, rel=0.6)
    assert session.stats().ratio > 9


def test_a_small_decoder_trains_with_the_noise_asked_for() -> None:
    torch.manual_seed(0)
    model = Decoder(vocabulary=32, length=32, width=64, depth=2, heads=2)
    optimizer = adamw(model)
    rng = torch.Generator().manual_seed(0)
    start = torch.randint(0, 32, (512, 1), generator=rng)
    text = (start + torch.arange(33) * (1 + start % 3)) % 32

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, -2), y.flatten())

    def batch() -> tuple[Tensor, Tensor]:
        rows = text[torch.randint(0, 512, (32,), generator=rng)]
        return rows[:, :-1], rows[:, 1:]

    session = actzip.compress(model, method="auto", optimizer=optimizer, noise=0.05)
    for _ in range(32):
        x, y = batch()
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    totals = [session.gradient_noise(batch(), loss, draws=6).total for _ in range(3)]
    share = sum(t.quantization for t in totals) / sum(t.sgd for t in totals)
    assert session.metrics()["noise_predicted"] == pytest.approx(0.05, rel=0.1)
    assert 0.02 < share < 0.125
    assert session.stats().ratio > 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"noise": 0.1, "ratio": 8}, "noise and ratio"),
        ({"ratio": 8, "budget": "1GiB"}, "ratio and budget"),
        ({"noise": 0.1, "budget": "1GiB"}, "noise and budget"),
        ({"noise": 0}, "lossless"),
        ({"noise": -1.0}, "above 0"),
        ({"noise": float("nan")}, "above 0"),
        ({"noise": True}, "above 0"),
        ({"ratio": 0.5}, "1 or more"),
        ({"ratio": float("inf")}, "1 or more"),
    ],
)
def test_wrong_options_are_refused_when_the_method_is_built(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        actzip.compress(resnet(), method="auto", **options)


def test_its_repr_gives_the_method_back() -> None:
    for method in (actzip.Auto(), actzip.Auto(ratio=24), actzip.Auto(noise=0.1)):
        assert eval(repr(method), {"Auto": actzip.Auto}) == method


def _errors(rank: int) -> dict[str, Any]:
    """Steps after some passes on data that the ranks do not share."""
    model = DistributedDataParallel(resnet())
    optimizer = sgd(model)
    session = actzip.compress(model, method="auto", optimizer=optimizer)
    data = batches(seed=rank)
    for _ in range(5):
        step(model, optimizer, *next(data))
    errors: dict[str, Any] = session._policy._codes.errors  # type: ignore[attr-defined]
    return {name: e.tolist() for name, e in errors.items()}


def _agree(rank: int) -> None:
    everyone: list[dict[str, Any]] = [{}, {}]
    dist.all_gather_object(everyone, _errors(rank))
    assert len(everyone[0]) > 10
    assert everyone[0] == everyone[1]


def test_processes_agree_on_the_steps_of_a_model_they_share(tmp_path: Path) -> None:
    in_two_processes(tmp_path, _agree)
