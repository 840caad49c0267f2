"""Train a small image classifier, plain or with actzip, and tell what it cost."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip import methods
from actzip.memory.measure import live_peak, reset_resident_peak, resident
from actzip.tasks import digits
from actzip.tasks.models.resnet import cifar_resnet

#: plain is PyTorch as it is; the others are what `actzip.compress` is given
METHODS = ("plain", *methods.METHODS)
MODELS = {"resnet8": 8, "resnet14": 14, "resnet20": 20, "resnet32": 32}
_WARMUP = 2  #: steps that are not timed: oneDNN builds its kernels in them


@dataclass(frozen=True)
class Config:
    """A training run; the same config gives the same run."""

    method: str = "plain"
    model: str = "resnet20"
    epochs: int = 5
    batch: int = 64
    side: int = 32
    rate: float = 0.1
    seed: int = 0
    threads: int | None = None  #: None leaves PyTorch's own choice

    def __post_init__(self) -> None:
        for name, allowed in (("method", METHODS), ("model", tuple(MODELS))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"unknown {name} {getattr(self, name)!r}; allowed are {', '.join(allowed)}"
                )
        for name in ("epochs", "batch", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.batch > digits.TRAIN:
            raise ValueError(
                f"a batch of {self.batch} is more than the {digits.TRAIN} training images"
            )


@dataclass(frozen=True)
class Progress:
    """Where a run is; sent after every step."""

    step: int
    steps: int
    epoch: int
    loss: float
    accuracy: float | None  #: on the test images, after the last finished epoch
    step_seconds: float


@dataclass(frozen=True)
class Cost:
    """What one training step keeps, measured on a model of its own, untimed.

    For a plain run nothing is stored otherwise, so both byte counts are what a lossless
    session counts as raw: the unique storages that autograd keeps.
    """

    raw_bytes: int
    stored_bytes: int
    ratio: float
    live_peak: int  #: above model and data; gradients and optimizer state count


@dataclass(frozen=True)
class Result:
    """What a run reached and what it cost."""

    config: Config
    accuracy: float  #: on the test images, at the end
    loss: float  #: of the last step
    step_seconds: float  #: median over all steps but the first ones
    cost: Cost
    resident_peak: int | None  #: growth of the process from the first step on; None without /proc


def run(config: Config, notify: Callable[[Progress], None] | None = None) -> Result:
    """Train as `config` says and measure; peaks are true only in a fresh process."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    data = digits.load(config.side, config.seed)
    trainer = _Trainer(config)
    low = reset_resident_peak()
    loss, accuracy, seconds = _train(trainer, data, notify)
    high = resident("VmHWM")
    trainer.close()
    return Result(
        config,
        accuracy,
        loss,
        statistics.median(seconds[_WARMUP:] or seconds),
        _cost(config, data),
        None if low is None or high is None else max(0, high - low),
    )


class _Trainer:
    """Model, optimizer, schedule and, unless plain, an actzip session."""

    def __init__(self, config: Config) -> None:
        torch.manual_seed(config.seed)
        self.config = config
        self.model: nn.Module = cifar_resnet(MODELS[config.model], digits.CLASSES, digits.CHANNELS)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), config.rate, momentum=0.9, weight_decay=5e-4
        )
        self.session = _attach(config.method, self.model, self.optimizer)

    def step(self, x: Tensor, y: Tensor) -> float:
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def close(self) -> None:
        if self.session is not None:
            self.session.remove()


def _attach(
    method: str, model: nn.Module, optimizer: torch.optim.Optimizer
) -> actzip.Session | None:
    if method == "plain":
        return None
    return actzip.compress(model, method=method, optimizer=optimizer)


def _train(
    trainer: _Trainer, data: digits.Split, notify: Callable[[Progress], None] | None
) -> tuple[float, float, list[float]]:
    config = trainer.config
    per_epoch = len(data.train_x) // config.batch
    steps = config.epochs * per_epoch
    schedule = torch.optim.lr_scheduler.OneCycleLR(trainer.optimizer, config.rate, steps)
    order = torch.Generator().manual_seed(config.seed)
    accuracy: float | None = None
    seconds: list[float] = []
    loss = float("nan")
    for epoch in range(config.epochs):
        trainer.model.train()
        for index in _batches(len(data.train_x), config.batch, order):
            x, y = data.train_x[index], data.train_y[index]
            began = time.perf_counter()
            loss = trainer.step(x, y)
            seconds.append(time.perf_counter() - began)
            schedule.step()
            if notify is not None:
                notify(Progress(len(seconds), steps, epoch, loss, accuracy, seconds[-1]))
        accuracy = _accuracy(trainer.model, data, config.batch)
    if accuracy is None:
        raise ValueError(f"a run needs at least one epoch, got {config.epochs}")
    return loss, accuracy, seconds


def _batches(count: int, batch: int, order: torch.Generator) -> Iterator[Tensor]:
    """Shuffled indices in full batches; the rest waits for another epoch."""
    shuffled = torch.randperm(count, generator=order)
    for start in range(0, count - batch + 1, batch):
        yield shuffled[start : start + batch]


@torch.no_grad()
def _accuracy(model: nn.Module, data: digits.Split, batch: int) -> float:
    model.eval()
    right = 0
    for start in range(0, len(data.test_x), batch):
        logits = model(data.test_x[start : start + batch])
        right += int((logits.argmax(1) == data.test_y[start : start + batch]).sum())
    return right / len(data.test_x)


def _cost(config: Config, data: digits.Split) -> Cost:
    x, y = data.train_x[: config.batch], data.train_y[: config.batch]
    trainer = _Trainer(config)
    gc.collect()  # the profiler counts only releases of memory whose allocation it saw

    def two_steps() -> None:  # optimizer state is there from the second step on
        trainer.step(x, y)
        trainer.step(x, y)

    peak = live_peak(two_steps)
    session = trainer.session
    if session is None:
        session = actzip.compress(trainer.model, method="lossless", optimizer=trainer.optimizer)
        trainer.step(x, y)
        raw = session.stats().raw_bytes
        session.remove()
        return Cost(raw, raw, 1.0, peak)
    stats = session.stats()
    trainer.close()
    return Cost(stats.raw_bytes, stats.stored_bytes, stats.ratio, peak)
