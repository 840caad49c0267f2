"""Threads that share a model, over many steps, while the number of OpenMP threads changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.methods import ActNN, Division, Lossless

_STEPS = 200
_SELDOM = 25  #: steps from one with two OpenMP threads to the next: these are slow on busy cores


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _model() -> nn.Sequential:
    """Layers whose gradients in plain PyTorch are the same for any number of threads.

    Those of convolutions and LayerNorm are not. No dropout: all threads draw from one stream.
    """
    return nn.Sequential(
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 256),
        nn.GELU(),
        nn.Linear(256, 16),
        nn.Softmax(-1),
    )


def _gradients(model: nn.Module, seed: int, samples: int | None = None) -> Tensor:
    """All gradients of one step in one vector. With two threads the batch is one whose masks and
    codes the kernels spread over both: they take a chunk of 65536 elements at a time."""
    if samples is None:
        samples = 16 if torch.get_num_threads() == 1 else 512
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, 8, 8, generator=generator)
    loss = F.mse_loss(model(x), torch.eye(samples, 16))
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def _set_threads(step: int) -> None:
    torch.set_num_threads(2 if step % _SELDOM == 0 else 1)


def _at_once(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_plain_gradients_do_not_depend_on_the_number_of_threads() -> None:
    model, found = _model(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append([_gradients(model, seed, samples) for seed in (0, 1) for samples in (16, 512)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(
    "method", [Lossless(), ActNN(interval=20), Division()], ids=["lossless", "actnn", "division"]
)
def test_two_sessions_that_share_a_model_do_not_meet(method: Any) -> None:
    model = _model()

    def run(seed: int, found: list[Tensor]) -> None:
        with actzip.compress(method=method, min_bytes=0, seed=seed) as session:
            for step in range(_STEPS):
                _set_threads(step + seed)
                found.append(_gradients(model, 1000 * seed + step))
        assert session.stats().compressed
        assert session.live_bytes == 0

    alone: list[list[Tensor]] = [[], []]
    together: list[list[Tensor]] = [[], []]
    for seed in (0, 1):
        run(seed, alone[seed])
    _at_once([lambda s=s: run(s, together[s]) for s in (0, 1)])  # type: ignore[misc]
    for seed in (0, 1):
        assert len(together[seed]) == _STEPS
        for step, (mine, expected) in enumerate(zip(together[seed], alone[seed], strict=True)):
            assert torch.equal(mine, expected), f"session {seed}, step {step}"
    if isinstance(method, Lossless):
        for step, mine in enumerate(together[0]):
            _set_threads(step)
            assert torch.equal(mine, _gradients(model, step)), f"plain PyTorch, step {step}"


@pytest.mark.parametrize(
    # which steps ActNN learns from depends on whose backward comes first
    "method",
    [Lossless(), ActNN(per_layer=False), Division()],
    ids=["lossless", "actnn", "division"],
)
def test_one_session_gives_each_of_its_steps_to_one_of_four_threads(method: Any) -> None:
    """The rounding of a step follows from its number, not from the thread that runs it."""
    model = _model()

    def run(threads: int) -> list[bytes]:
        found: list[bytes] = []
        with actzip.compress(model, method, min_bytes=0) as session:

            def work() -> None:
                for step in range(_STEPS // threads):
                    _set_threads(step)
                    found.append(_gradients(model, 0, 16).numpy().tobytes())

            _at_once([work] * threads)
            assert session.step == _STEPS
            assert session.live_bytes == 0
        return sorted(found)

    alone = run(1)
    assert len(set(alone)) == (1 if isinstance(method, Lossless) else _STEPS)
    assert run(4) == alone
