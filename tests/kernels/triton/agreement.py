"""Triton's kernels under its interpreter against the reference and the C++ library.

The interpreter is chosen when a kernel is defined, so the modules that use this (check_*.py) run
in processes of their own: see test_interpreted.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from triton.runtime import interpreter

from actzip import kernels
from actzip.codecs import Codec, Payload

#: numpy says so where a GPU says nothing: a sum that overflows, a value that is no number
QUIET = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _sum_by_numpy() -> None:
    """The interpreter (3.7.1) adds up element by element, as it does not know its own sum again:
    a second for a chunk of 4096 values."""
    slow = interpreter.ScanOps.apply_impl

    def scan(self: Any, given: Any) -> Any:
        adds = getattr(self.combine_fn, "fn", self.combine_fn).__name__ == "_sum_combine"
        return self.cumsum(given[0]) if adds and not self.reverse else slow(self, given)

    interpreter.ScanOps.apply_impl = scan


def _patch_once() -> None:
    """The interpreter takes the language's place in a module with each call of one of its device
    functions, for a fifth of all time; once in a launch will do."""
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    done: set[int] = set()

    def once(fn: Any) -> Any:
        if id(fn.__globals__) in done:
            return None
        done.add(id(fn.__globals__))
        return patch(fn)

    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        done.clear()
        return launch(self, *args, **kwargs)

    interpreter._patch_lang = once
    interpreter.GridExecutor.__call__ = launched


_sum_by_numpy()
_patch_once()


def as_bits(x: Tensor) -> Tensor:
    return x.view(BITS[x.element_size()])


def _run(codec: Codec, x: Tensor, seed: int) -> tuple[Payload, list[Tensor]]:
    payload = codec.encode(x, seed=seed)
    read = [codec.decode(payload)]
    if getattr(codec, "zero", False):
        read.append(codec.mask(payload))
    return payload, read


def assert_same(
    codec: Codec,
    x: Tensor,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    others: tuple[str, ...] = ("reference", "native"),
) -> None:
    """The bytes, and the values and masks read from them, are equal bit for bit."""
    case = (codec, tuple(x.shape), x.stride(), x.dtype, seed)
    monkeypatch.setattr(kernels, "FORCED", "triton")
    assert kernels.backend_name("cpu") == "triton"
    payload, values = _run(codec, x, seed)
    for other in others:
        monkeypatch.setattr(kernels, "FORCED", other)
        expected, read = _run(codec, x, seed)
        assert torch.equal(payload.data, expected.data), (other, case)
        for one, two in zip(values, read, strict=True):
            assert torch.equal(as_bits(one), as_bits(two)), (other, case)
