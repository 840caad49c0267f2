"""A small ResNet and a small GPT, and steps of them in which the host's reads are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.codecs import unsettled
from actzip.kernels import transfers
from host_reads import counted


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.one, self.two = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in "12")
        self.norm, self.last = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.last(self.two(F.relu(self.norm(self.one(x))))))


class Attention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.other = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).reshape(b, t, d)), 0.1, self.training)
        return x + self.mlp(self.other(x))


def resnet() -> tuple[nn.Module, Tensor, Tensor]:
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(8, 5)),
    )
    return net, torch.randn(4, 3, 16, 16), torch.randint(5, (4,))


def gpt() -> tuple[nn.Module, Tensor, Tensor]:
    net = nn.Sequential(nn.Embedding(50, 32), Attention(32), nn.LayerNorm(32), nn.Linear(32, 50))
    return net, torch.randint(50, (4, 16)), torch.randint(50, (4, 16))


MODELS = {"resnet": resnet, "gpt": gpt}


def like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading is not free, and what is sent to the host never comes before somebody waits."""
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: False)
    monkeypatch.setattr("actzip.methods.actnn.reading_is_free", lambda device: False)
    monkeypatch.setattr(transfers.Transfer, "arrived", lambda self: False)


def reads(
    model: str,
    method: str,
    passes: int,
    before: Callable[[int], None] | None = None,
    **options: Any,
) -> Counter[str]:
    """The host's reads in the last of so many training steps, which neither looks at gradients nor
    learns from a look. `before` is told before each step how many are left."""
    torch.manual_seed(0)
    net, x, y = MODELS[model]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    session = actzip.compress(net, method, optimizer=optimizer, min_bytes=1024, **options)
    begin, looked = session._policy.begin, []  # type: ignore[var-annotated]

    def begins(*args: Any) -> bool:
        looked.append(begin(*args))
        return bool(looked[-1])

    object.__setattr__(session._policy, "begin", begins)
    found: Counter[str] = Counter()
    for i in range(passes):
        if before is not None:
            before(passes - i)
        with counted() if i == passes - 1 else nullcontext(found) as found:
            loss = F.cross_entropy(net(x).flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert looked[-2:] == [False, False], looked
    stats = session.stats()
    assert stats.stored_bytes < stats.raw_bytes
    session.remove()
    return found
