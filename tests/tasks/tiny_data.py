"""A tiny data set for every task, made from random numbers, that a model can learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from actzip.tasks.data import Boxes, Data


@dataclass(frozen=True, eq=False)
class Tiny:
    """Examples held as tensors; augmentation adds a little noise to pictures."""

    inputs: Tensor
    targets: Any

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Any]:
        inputs = self.inputs[indices]
        if rng is not None and inputs.is_floating_point():
            inputs = inputs + 0.1 * torch.randn(inputs.shape, generator=rng)
        if isinstance(self.targets, list):
            return inputs, [self.targets[index] for index in indices.tolist()]
        return inputs, self.targets[indices]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int, seed: int) -> Tiny:
    """The class is the quarter of the picture that is bright."""
    rng = _generator(seed)
    labels = torch.randint(4, (count,), generator=rng)
    images = torch.randn(count, 1, 8, 8, generator=rng) * 0.3
    for index, label in enumerate(labels.tolist()):
        top, left = 4 * (label // 2), 4 * (label % 2)
        images[index, :, top : top + 4, left : left + 4] += 1
    return Tiny(images, labels)


def texts(count: int, seed: int) -> Tiny:
    """The class is whether words of the upper half prevail; short texts end with padding."""
    rng = _generator(seed)
    labels = torch.randint(2, (count,), generator=rng)
    ids = torch.randint(2, 11, (count, 12), generator=rng) + 9 * labels[:, None]
    lengths = torch.randint(4, 13, (count, 1), generator=rng)
    return Tiny(ids * (torch.arange(12) < lengths), labels)


def sequences(count: int, seed: int) -> Tiny:
    """Counting upwards: the next token is the present one plus one."""
    start = torch.randint(10, (count, 1), generator=_generator(seed))
    run = (start + torch.arange(9)) % 10
    return Tiny(run[:, :-1].clone(), run[:, 1:].clone())


def scenes(count: int, seed: int) -> tuple[Tensor, list[Boxes], Tensor]:
    """One bright square of 16 pixels on 32; its class is its sign."""
    rng = _generator(seed)
    images = torch.randn(count, 3, 32, 32, generator=rng) * 0.1
    masks = torch.zeros(count, 32, 32, dtype=torch.int64)
    boxes = []
    for index in range(count):
        left, top = torch.randint(17, (2,), generator=rng).tolist()
        label = int(torch.randint(2, (1,), generator=rng))
        images[index, :, top : top + 16, left : left + 16] += 2 * label - 1
        masks[index, top : top + 16, left : left + 16] = label + 1
        corners = torch.tensor([[left, top, left + 16, top + 16]], dtype=torch.float32)
        boxes.append(Boxes(corners, torch.tensor([label])))
    return images, boxes, masks


def tiny(task: str, train: int = 48, test: int = 16) -> Data:
    """The data of a task; the same in every call."""
    if task == "classify":
        parts = (pictures(train, 0), pictures(test, 1))
        return Data("tiny", task, *parts, classes=("a", "b", "c", "d"), channels=1, side=8)
    if task == "text":
        parts = (texts(train, 0), texts(test, 1))
        return Data("tiny", task, *parts, classes=("low", "high"), vocabulary=20, length=12)
    if task == "lm":
        parts = (sequences(train, 0), sequences(test, 1))
        return Data("tiny", task, *parts, vocabulary=10, length=8)
    kinds = []
    for count, seed in ((train, 0), (test, 1)):
        images, boxes, masks = scenes(count, seed)
        kinds.append(Tiny(images, boxes if task == "detect" else masks))
    names = ("dark", "bright") if task == "detect" else ("ground", "dark", "bright")
    return Data("tiny", task, *kinds, classes=names, channels=3, side=32)
