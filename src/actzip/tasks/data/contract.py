"""What every data set is to a training loop: two splits of numbered examples, read in batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

TASKS = ("classify", "detect", "segment", "text", "lm")
WORDS = "words"  #: tokens that are whole words, numbered by how frequent they are
PADDING = 0  #: token id that fills a text up to its length
IGNORE = -100  #: pixel label that counts neither in loss nor in metric; cross_entropy's own default


@dataclass(frozen=True)
class Request:
    """What `load` was asked for."""

    name: str
    task: str
    side: int | None = None
    length: int | None = None
    limit: int | None = None
    seed: int = 0
    void: int | None = None  #: value of a mask's pixels that do not count; None: 255
    text_column: str | None = None  #: name or number of a table's column; None: guessed
    label_column: str | None = None
    strict: bool = False  #: refuse a set in which anything is wrong
    tokens: str = WORDS  #: of texts; else a pretrained model, whose tokenizer cuts them

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise DataError(f"unknown task {self.task!r}; allowed are {', '.join(TASKS)}")
        least = {"side": 8, "length": 2, "limit": 1}
        for field, smallest in least.items():
            value = getattr(self, field)
            if value is not None and value < smallest:
                raise DataError(f"{field} must be at least {smallest}, got {value}")
        for field, task in (("void", "segment"), ("text_column", "text"), ("label_column", "text")):
            value = getattr(self, field)
            if value is not None and self.task != task:
                raise DataError(f"{field} is for {task} data, these are for {self.task}: {value!r}")
        if self.void is not None and not 0 <= self.void <= 255:
            raise DataError(f"void must be a value of a mask, 0 to 255, got {self.void}")
        wrong = "side" if self.task in ("text", "lm") else "length"
        if getattr(self, wrong) is not None:
            raise DataError(
                f"{self.task} data have no {wrong}, got {wrong}={getattr(self, wrong)}; "
                "side is for pictures, length for texts"
            )


class DataError(ValueError):
    """Data that cannot be trained with: what was asked, what is there, what to do."""


class Examples(Protocol):
    """Numbered examples; the same indices and the same `rng` state give the same batch."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Any]:
        """Inputs and targets of these examples; with `rng`, augmented for training.

        Inputs: normalised float32 pictures (n, C, H, W), or int64 token ids (n, T).
        Targets: int64 (n,) for classify and text, int64 (n, H, W) for segment, a list of n
        Boxes for detect, int64 (n, T), the next tokens, for lm.
        """
        ...


@dataclass(frozen=True, eq=False)
class Boxes:
    """The objects of one picture."""

    corners: Tensor  #: float32 (k, 4): left, top, right, bottom in pixels, right and bottom outside
    labels: Tensor  #: int64 (k,)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set for one task. What a task does not have is empty or 0."""

    name: str
    task: str
    train: Examples
    test: Examples
    classes: tuple[str, ...] = ()  #: names by label; for segment the first is the background
    channels: int = 0  #: of the pictures
    side: int = 0  #: height and width of the pictures
    vocabulary: int = 0  #: token ids are below this
    length: int = 0  #: tokens per example
    padding: int = PADDING
    ignore: int = IGNORE
    layout: str = ""  #: of a user's own data, in words
    problems: tuple[str, ...] = ()  #: what was left out, and why
