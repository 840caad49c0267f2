"""Whether a model runs on tensors without memory, to see what its training would take.

`actzip plan` runs the library's own code on PyTorch's fake tensors, which have shapes, strides and
storages but no values. Here is what that code asks meanwhile. Where only values could tell, it is
taken for granted that things are as they mostly are: what can be made again comes back bit for
bit, nothing is NaN, indices fit into 16 bits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from actzip.torch_private import StorageWeakRef, fake_tensors, without_dispatch_modes

#: Bits that an index is taken to need.
INDEX_BITS = 16

_lock = threading.Lock()
active = False  #: a plan is made in this process, and nothing else is trained in it
_fake: Any = None  # the class of fake tensors
_mode: Any = None  # that makes them
_noise: dict[int, Any] = {}  # storages that hold a dropout's factor


@contextlib.contextmanager
def fakes() -> Iterator[Any]:
    """Fake tensors count as tensors inside; gives the mode that makes them."""
    global active, _fake, _mode
    with _lock:
        module = fake_tensors()
        active, _fake = True, module.FakeTensor
        try:
            # a model may hold tensors that were made before
            _mode = module.FakeTensorMode(allow_non_fake_inputs=True)
            yield _mode
        finally:
            active, _fake, _mode = False, None, None
            _noise.clear()


def real() -> contextlib.AbstractContextManager[Any]:
    """Tensors that are made inside have values."""
    mode: contextlib.AbstractContextManager[Any] = without_dispatch_modes()
    return mode


def is_fake(t: object) -> bool:
    """Whether this is a tensor of a plan that is being made."""
    return active and type(t) is _fake


def tensor_of(storage: torch.UntypedStorage, place: Any, dtype: torch.dtype) -> Tensor:
    """A fake tensor in the storage of another."""
    size, stride, offset = place
    with real():
        inner = torch.empty(0, dtype=dtype, device="meta").set_(storage, offset, size, stride)
        made: Tensor = _fake(_mode, inner, torch.device("cpu"))
    return made


def draws(t: Tensor) -> None:
    """Random bits were written to this fake tensor."""
    storage = t.untyped_storage()
    _noise[storage._cdata] = StorageWeakRef(storage)


def is_noise(t: Tensor) -> bool:
    """Whether this fake tensor is 0 or one scale, because random bits were written to it."""
    return t.untyped_storage()._cdata in _noise
