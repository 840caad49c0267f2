"""How long codecs take beside `copy_`, and training steps beside plain PyTorch's, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip import accelerator
from actzip.codecs import BitMask, Bounded, Codec, Dithered, Dual, FixedPoint, Group
from actzip.memory.measure import measure
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.resnet import resnet50

#: Steps before any is timed: adaptive methods learn in them, and kernels are built.
WARM = 3


@dataclass(frozen=True)
class Size:
    """How much is done."""

    elements: int = 1 << 24  #: of a tensor whose codes are timed
    rounds: int = 5
    pictures: int = 16
    side: int = 224
    texts: int = 8
    length: int = 256
    width: int = 768  #: of the GPT; ResNet-50's is a twelfth of it
    depth: int = 12
    words: int = 8192  #: that the GPT knows

    @classmethod
    def small(cls) -> Size:
        """Enough to see that it runs."""
        return cls(1 << 20, 2, pictures=2, side=64, texts=2, length=64, width=192, depth=2)


@dataclass(frozen=True)
class CodeTime:
    """Medians in one run; ratios are copy's time over the codec's, so that more is faster."""

    codec: str
    dtype: str
    copy_ms: float
    encode_ms: float
    decode_ms: float
    bits_per_element: float

    @property
    def encode_ratio(self) -> float:
        return self.copy_ms / self.encode_ms

    @property
    def decode_ratio(self) -> float:
        return self.copy_ms / self.decode_ms

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        ratios = {"encode_ratio": self.encode_ratio, "decode_ratio": self.decode_ratio}
        return {**asdict(self), **ratios}


@dataclass(frozen=True)
class StepTime:
    """Medians of one model's steps."""

    model: str
    method: str
    step_ms: float
    times_plain: float
    peak_bytes: int  #: of tensors, above weights and optimizer state
    ratio: float  #: of saved bytes; 1 for plain

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


CODECS: tuple[Codec, ...] = (
    *(Group(bits=2), Group(bits=4), Group(bits=2, zero=True), BitMask(), Dual(bits=2)),
    *(FixedPoint(bits=6), Bounded(error=0.1), Bounded(error=0.1, entropy=True), Dithered(2.0)),
)
METHODS = ("plain", "lossless", "fixed", "actnn")


def codec_times(device: torch.device, size: Size, codec: Codec) -> CodeTime:
    """Of one codec; its encode, its decode and a copy run in turns."""
    made = torch.Generator().manual_seed(0)
    side = max(8, int((size.elements / 256) ** 0.5))
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    x = torch.randn(4, 64, side, side, generator=made).to(device, dtype)
    x = x.relu() if getattr(codec, "zero", False) else x
    y, out = torch.empty_like(x), torch.empty_like(x)
    payload = codec.encode(x, seed=1)
    acts: tuple[Callable[[], object], ...] = (
        lambda: y.copy_(x),
        lambda: codec.encode(x, seed=1),
        lambda: codec.decode(payload, out=out),
    )
    found = _in_turns(acts, size.rounds, device)
    copy, encode, decode = (1e3 * seconds for seconds in found)
    bits = 8 * payload.used().numel() / x.numel()
    name = str(dtype).removeprefix("torch.")
    return CodeTime(repr(codec), name, copy, encode, decode, bits)


def step_times(device: torch.device, size: Size, model: str) -> list[StepTime]:
    """Of one model with each method; steps of all run in turns."""
    runs = {method: _Run(MODELS[model], device, size, method) for method in METHODS}
    for run in runs.values():
        for _ in range(WARM):
            run.step()
    acts = tuple(run.step for run in runs.values())
    found = dict(zip(runs, _in_turns(acts, size.rounds, device), strict=True))
    return [
        StepTime(model, method, 1e3 * found[method], found[method] / found["plain"],
                 run.peak(), run.ratio)
        for method, run in runs.items()
    ]  # fmt: skip


def _in_turns(
    acts: tuple[Callable[[], object], ...], rounds: int, device: torch.device
) -> list[float]:
    """Median seconds of each, one after another so that all see the same machine."""
    found: list[list[float]] = [[] for _ in acts]
    for turn in range(rounds + 1):
        for act, times in zip(acts, found, strict=True):
            accelerator.synchronize(device)
            began = time.perf_counter()
            act()
            accelerator.synchronize(device)
            if turn:  # the first builds kernels and fills caches
                times.append(time.perf_counter() - began)
    return [statistics.median(times) for times in found]


def _resnet(size: Size) -> tuple[nn.Module, Tensor, Tensor]:
    x = torch.randn(size.pictures, 3, size.side, size.side)
    return resnet50(width=max(8, size.width // 12)), x, torch.randint(1000, (size.pictures,))


def _gpt(size: Size) -> tuple[nn.Module, Tensor, Tensor]:
    heads = max(1, size.width // 64)
    model = Decoder(size.words, size.length, size.width, size.depth, heads, 0.0)
    ids = torch.randint(size.words, (size.texts, size.length + 1))
    return model, ids[:, :-1], ids[:, 1:]


_Made = tuple[nn.Module, Tensor, Tensor]
MODELS: dict[str, Callable[[Size], _Made]] = {"ResNet-50": _resnet, "GPT": _gpt}


class _Run:
    """One model that is trained with one method."""

    def __init__(
        self, make: Callable[[Size], _Made], device: torch.device, size: Size, method: str
    ) -> None:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            model, x, y = make(size)
        self.device, self.model = device, model.to(device)
        self.x, self.y = x.to(device), y.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.session = None
        if method != "plain":
            self.session = actzip.compress(self.model, method, optimizer=self.optimizer)

    def step(self) -> None:
        loss = F.cross_entropy(self.model(self.x).flatten(0, -2), self.y.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def peak(self) -> int:
        """Most bytes in a step, above what is held between steps."""
        with measure(self.device) as found:
            self.step()
        return found.live_peak

    @property
    def ratio(self) -> float:
        return 1.0 if self.session is None else self.session.stats().ratio
