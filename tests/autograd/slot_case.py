"""What a case is: an op in one variant, how to run it, and on what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MAP, LINE, CUBE = (4, 8, 12, 12), (4, 8, 64), (2, 4, 8, 8, 8)
ROWS, SQUARE = (64, 48), (48, 48)
HEADS = (2, 4, 24, 16)


@dataclass(frozen=True)
class Case:
    """`run(*inputs)` with one leaf that requires grad per shape; gives one or more tensors."""

    name: str
    run: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    positive: bool = False  #: inputs lie in [0.25, 0.75]
    half: bool = True  #: also runs in fp16
    brain: bool = True  #: also runs in bf16
    last: bool = True  #: a 4-D input may be channels_last

    @property
    def dtypes(self) -> list[torch.dtype]:
        return [
            torch.float32,
            torch.float64,
            *([torch.bfloat16] if self.brain else []),
            *([torch.float16] if self.half else []),
        ]


CASES: list[Case] = []


def case(
    name: str,
    run: Callable[..., Any],
    *shapes: tuple[int, ...],
    positive: bool = False,
    half: bool = True,
    brain: bool | None = None,
    last: bool = True,
) -> None:
    brain = half if brain is None else brain
    CASES.append(Case(name, run, shapes or (ROWS,), positive, half, brain, last))


def unary(functions: dict[str, Callable[[Tensor], Any]], **options: bool) -> None:
    for name, run in functions.items():
        case(name, run, ROWS, **options)


def ids(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(5))


def coin(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(6)) < 0.5


def const(*shape: int) -> Callable[[Tensor], Tensor]:
    """A constant of x's dtype, for slots that are only saved beside one."""
    values = torch.rand(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return lambda x: values.to(x.dtype)
