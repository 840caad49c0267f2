"""Forked children and data-loader workers finish; nothing hangs in a thread pool."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from nets import convnet, loss_of

import actzip


@pytest.fixture(autouse=True)
def _a_pool_of_threads() -> Iterator[None]:
    """The parent's pool is what a child must not wait for; the suite itself has one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _child(work) -> int:  # type: ignore[no-untyped-def]
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_encodes_and_decodes() -> None:
    x = torch.randn(1 << 16)
    codec = actzip.codecs.BitMask()
    assert codec.encode(x).nbytes > 0  # the parent's thread pool is up before the fork

    def work() -> bool:
        torch.set_num_threads(1)
        return torch.equal(codec.decode(codec.encode(x)), (x > 0).float())

    assert _child(work) == 0


class Encoding(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> torch.Tensor:
        codec = actzip.codecs.BitMask()
        return codec.decode(codec.encode(torch.full((1 << 14,), float(i - 3))))


def test_data_loader_workers_can_use_codecs_beside_a_session() -> None:
    model = convnet()
    with actzip.compress(model):
        loss_of()(model).backward()
        loader = torch.utils.data.DataLoader(Encoding(), batch_size=4, num_workers=2, timeout=20)
        sums = torch.cat([b.sum(1) for b in loader])
        loss_of()(model).backward()
    assert torch.equal(sums, torch.tensor([0.0] * 4 + [float(1 << 14)] * 4))
