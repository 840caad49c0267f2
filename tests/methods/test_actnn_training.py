"""ActNN in training: resumed runs, samples by index, 16 bits, accumulation, several processes.

What holds for a method that learns and for one that does not is asked of DIVISION as well.
"""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.methods.base import Method
from processes import in_two_processes
from trained import batch, resnet


def model_of(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, stride=2),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )


def train(
    model: nn.Module,
    session: actzip.Session,
    optimizer: torch.optim.Optimizer,
    steps: range,
    by_index: bool = False,
) -> list[Tensor]:
    """The weights' sums after each step, bit for bit."""
    history = []
    for i in steps:
        torch.manual_seed(i)
        size = 16 if i % 3 else 12
        x, y = batch(16 * i, size)
        if by_index:
            session.samples(torch.arange(16 * i, 16 * i + size) % 40)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        history.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return history


def saved(*states: Any) -> Any:
    """Through a file, as a checkpoint goes, without trusting any code in it."""
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("method", "by_index"),
    [
        (actzip.ActNN(bits=2.5, interval=5), False),
        (actzip.ActNN(bits=2.5, interval=5), True),
        (actzip.Division(), False),
    ],
)
def test_a_run_resumed_at_any_point_is_bit_equal(method: Method, by_index: bool) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    states, history = [], []
    with actzip.compress(model, method, min_bytes=0, seed=3) as session:
        for i in range(14):
            states.append(saved(model.state_dict(), optimizer.state_dict(), session.state_dict()))
            history += train(model, session, optimizer, range(i, i + 1), by_index)
    for point in (0, 1, 2, 4, 5, 6, 9, 10, 11):
        again = model_of(seed=7)
        optimizer = torch.optim.SGD(again.parameters(), lr=0.05, momentum=0.9)
        with actzip.compress(again, method, min_bytes=0, seed=99) as session:
            weights, moments, state = states[point]
            again.load_state_dict(weights)
            optimizer.load_state_dict(moments)
            session.load_state_dict(state)
            found = train(again, session, optimizer, range(point, min(point + 4, 14)), by_index)
        for mine, theirs in zip(found, history[point:], strict=False):
            assert torch.equal(mine, theirs), f"resumed at {point}"


def test_what_is_loaded_is_not_shared_with_the_run_it_came_from() -> None:
    method = actzip.ActNN(interval=2)
    model, other = model_of(), model_of()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (model, other)]
    with (
        actzip.compress(model, method, min_bytes=0) as session,
        actzip.compress(other, method, min_bytes=0) as twin,
    ):
        train(model, session, optimizers[0], range(4), by_index=True)
        other.load_state_dict(model.state_dict())
        twin.load_state_dict(session.state_dict())
        before = copy.deepcopy(twin.state_dict())
        train(model, session, optimizers[0], range(4, 8), by_index=True)
        assert repr(before) == repr(twin.state_dict())


# -- samples --------------------------------------------------------------------------------------


def table(session: actzip.Session, site: str, *indices: int) -> Tensor:
    known = session._statistics.recall(site, torch.tensor(indices))
    assert known is not None
    return known


def test_samples_are_remembered_and_decide_who_gets_the_bits() -> None:
    """A sample whose gradient was large gets more bits the next time, at the same budget."""
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 8, 3))
    x = batch(0, 8)[0]
    weight = torch.tensor([1000.0] + [1.0] * 7).view(-1, 1, 1, 1)
    codes = []
    with actzip.compress(model, "actnn", bits=2, min_bytes=0) as session:
        for _ in range(3):
            session.samples(range(8))
            (model(x) * weight).square().mean().backward()
            row = next(r for r in session.stats().sites if r.name.startswith("2:Conv"))
            codes.append(row.codec)
    bits = eval(codes[-1], {"Group": actzip.codecs.Group}).bits
    assert isinstance(bits, tuple)
    assert bits[0] == max(bits) > min(bits)
    assert "bits=(" not in codes[0], "nothing was known"


def test_a_sample_seen_again_is_half_old_half_new() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1))
    x = batch(0, 4)[0]
    site = "0:ConvolutionBackward0.input"
    with actzip.compress(model, "actnn", min_bytes=0) as session:
        for factor in (1.0, 3.0):
            session.samples([5, 6, 7, 8])
            (model(x).sum() * factor).backward()
        known = table(session, site, 5, 6, 7, 8)
        alone = session._statistics.of(site)
    assert alone is not None
    # w grows with the square of the gradient: (1 + 9)/2 of the first, 5/9 of the last
    assert torch.allclose(known, alone.parameter * 5 / 9, rtol=1e-4)


def test_samples_are_said_for_one_pass_only() -> None:
    model = model_of()
    with actzip.compress(model, "actnn", min_bytes=0) as session:
        session.samples([0, 1, 2, 3])
        F.cross_entropy(model(batch(0, 4)[0]), batch(0, 4)[1]).backward()
        state = copy.deepcopy(session.state_dict()["statistics"]["table"])
        F.cross_entropy(model(batch(4, 4)[0]), batch(4, 4)[1]).backward()
        after = session.state_dict()["statistics"]["table"]
        assert len(state) >= 5, "something was remembered"
        assert after.keys() == state.keys()
        assert all(torch.equal(known, state[site]) for site, known in after.items())


def test_indices_of_another_batch_size_are_not_used() -> None:
    model = model_of()
    with actzip.compress(model, "actnn", min_bytes=0) as session:
        session.samples([0, 1, 2])
        x, y = batch(0, 16)
        F.cross_entropy(model(x), y).backward()
        assert session.state_dict()["statistics"]["table"] == {}
        assert session._statistics.of("3:ConvolutionBackward0.input") is not None


@pytest.mark.parametrize("bad", [[-1], [0.5], [], [[0]], "ab", None])
def test_bad_indices_are_refused(bad: Any) -> None:
    with (
        actzip.compress(model_of(), "actnn") as session,
        pytest.raises(ValueError, match="samples needs a row of indices"),
    ):
        session.samples(bad)


# -- 16 bits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_learns_and_trains(dtype: torch.dtype) -> None:
    model = resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    with actzip.compress(model, "actnn", bits=3, min_bytes=0) as session:
        for i in range(8):
            x, y = batch(32 * (i % 2))
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert not session._statistics.missing
        assert len(session._policy._average) >= 10  # type: ignore[attr-defined]
        assert session.live_bytes == 0
    assert losses[-1] < losses[0]


def test_a_scaler_sees_the_overflow_and_the_bits_survive_it() -> None:
    model = resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, growth_interval=1000)
    with actzip.compress(model, "actnn", min_bytes=0, interval=4) as session:
        scales = []
        for i in range(24):
            x, y = batch(32 * (i % 4))
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        assert scales[0] < 2.0**30, "the overflow was seen"
        assert scales[-1] == scales[-2], "and is over"
        averages = session._policy._average  # type: ignore[attr-defined]
        assert len(averages) >= 10, "bits were spread after it"
        assert all(1 <= b <= 8 for b in averages.values())
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_loss_that_is_nan_once_does_not_spoil_the_next_steps() -> None:
    model = model_of()
    x, y = batch(0, 16)
    with actzip.compress(model, "actnn", min_bytes=0, interval=1) as session:
        for i in range(6):
            session.samples(torch.arange(16))
            loss = F.cross_entropy(model(x), y)
            (loss * (torch.nan if i == 2 else torch.inf if i == 3 else 1.0)).backward()
            model.zero_grad()
        bits = session._policy._average  # type: ignore[attr-defined]
        assert len(bits) >= 5, "bits were spread before it"
        assert all(1 <= b <= 8 for b in bits.values())
        F.cross_entropy(model(x), y).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())  # type: ignore[union-attr]


# -- accumulation, several forwards, several processes ---------------------------------------------


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "method", [actzip.ActNN(bits=4, interval=4), actzip.Division(bits=4, norm=4)]
)
def test_gradient_accumulation(method: Method, together: bool) -> None:
    """Four parts of a batch, each with its backward, or all with one."""
    model = model_of()
    with actzip.compress(model, method, min_bytes=0) as session:
        for i in range(3):
            model.zero_grad()
            losses = []
            for part in range(4):
                x, y = batch(64 * i + 16 * part, 16)
                losses.append(F.cross_entropy(model(x), y) / 4)
                if not together:
                    losses.pop().backward()
            if together:
                torch.stack(losses).sum().backward()
        assert session.step == 12
        assert getattr(session._policy, "_average", True), "it has learned, if it does"
        assert session.live_bytes == 0
    ours = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    model.zero_grad()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for part in range(4):
        x, y = batch(128 + 16 * part, 16)
        (F.cross_entropy(model(x), y) / 4).backward()
    exact = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    pairs = zip(ours, exact, strict=True)
    error = torch.stack([(a - b).square().sum() for a, b in pairs]).sum()
    assert error < 0.5 * torch.stack([b.square().sum() for b in exact]).sum()


def test_graphs_without_backward_do_not_stop_the_learning() -> None:
    model = model_of()
    x, y = batch(0, 16)
    with actzip.compress(model, "actnn", min_bytes=0, interval=50) as session:
        for _ in range(3):
            model(x)
        assert not session._policy._average  # type: ignore[attr-defined]
        for _ in range(2):
            F.cross_entropy(model(x), y).backward()
        assert session._policy._average  # type: ignore[attr-defined]


def _worker(rank: int, method: Method) -> None:
    model = model_of()
    session = actzip.compress(model, method, min_bytes=0)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for i in range(7):
        generator = torch.Generator().manual_seed(2 * i + rank)
        x = torch.randn(16, 1, 16, 16, generator=generator)
        y = torch.randint(0, 10, (16,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
    assert getattr(session._policy, "_average", True), "it has learned, if it does"
    assert session.live_bytes == 0
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    both = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(both, weights)
    assert torch.equal(*both), "both processes have the same weights"


@pytest.mark.parametrize("method", [actzip.ActNN(interval=3), actzip.Division()])
def test_two_processes_stay_together(method: Method, tmp_path: Path) -> None:
    in_two_processes(tmp_path, _worker, method)
