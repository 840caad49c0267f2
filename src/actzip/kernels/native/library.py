"""Finds, loads and calls the shared library; ctypes, so that one build fits every torch.

Torch is imported first: its OpenMP runtime is then the one that the library binds to, and both
share one pool of threads.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError

#: Equals actzip_interface() in csrc/common/isa.cpp; a library built from other sources is not used.
INTERFACE = 6

OK, DAMAGED, BAD_ARGUMENT, BAD_VALUE = 0, -1, -2, -3

#: Element types by the numbers of csrc/common/core.hpp.
DTYPES = {
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.float16: 2,
    torch.float64: 3,
    torch.uint8: 4,
    torch.bool: 4,
    torch.int8: 5,
    torch.int16: 6,
    torch.int32: 7,
    torch.int64: 8,
    torch.uint16: 9,
    torch.uint32: 10,
    torch.uint64: 11,
}

_HOW_TO_BUILD = (
    "actzip runs on its plain-PyTorch kernels, which are many times slower: {reason}. "
    "Build the C++ library with `make setup` (or `pip install` with a C++ compiler present); "
    "set ACTZIP_KERNELS=reference to choose the slow kernels without this warning."
)


def _find() -> Path | None:
    package = sys.modules["actzip.kernels"]
    for folder in package.__path__:
        for path in sorted(Path(folder).glob("libactzip.*")):
            if path.suffix in {".so", ".dylib", ".dll"}:
                return path
    return None


@functools.cache
def _load() -> ctypes.CDLL | None:
    path = _find()
    reason = "its C++ library is not there"
    if path is not None:
        try:
            loaded = ctypes.CDLL(str(path))
            if loaded.actzip_interface() == INTERFACE:
                return loaded
            reason = f"{path.name} was built from other sources"
        except (OSError, AttributeError) as error:
            reason = f"{path.name} does not load ({error})"
    warnings.warn(_HOW_TO_BUILD.format(reason=reason), RuntimeWarning, stacklevel=2)
    return None


def available() -> bool:
    """True when the library is loaded; warns once, with the way to build it, when it is not."""
    return _load() is not None


def isa_level() -> int:
    """The instruction set in use: 0 portable, 1 AVX2, 2 AVX-512."""
    return int(_require().actzip_isa_level())


def set_isa_level(level: int) -> int:
    """For tests: use a lower level than the processor offers; -1 for the best. All are equal."""
    return int(_require().actzip_set_isa_level(level))


def call(name: str, *args: int | Tensor) -> int:
    """Call an entry; a tensor goes as its address and its bytes, so that the entry can check both.

    Tensors are dense: elements that lie apart in memory would reach past these bytes. Raises
    DamagedError or ValueError for a negative status, else returns the result.
    """
    words: list[int] = []
    for a in args:
        if isinstance(a, Tensor):
            words += (a.data_ptr(), a.nbytes)
        else:
            words.append(a)
    count = len(words)
    entry = _ENTRIES.get(name) or _entry(name)
    status = int(entry(struct.pack(f"={count}q", *words), count))
    if status >= 0:
        return status
    if status == DAMAGED:
        raise DamagedError(f"{name}: the stored bytes are damaged")
    what = "a value that the format does not hold" if status == BAD_VALUE else "bad arguments"
    raise ValueError(f"{name}: {what}")


_ENTRIES: dict[str, Callable[[bytes, int], int]] = {}


def _entry(name: str) -> Callable[[bytes, int], int]:
    """The entry, which takes its parameters as words of 64 bits, and how many there are."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64)
    return _ENTRIES.setdefault(name, prototype((f"actzip_{name}", _require())))


def _require() -> ctypes.CDLL:
    loaded = _load()
    if loaded is None:
        raise RuntimeError("the C++ library of actzip is not there; build it with `make setup`")
    return loaded


def threads() -> int:
    """Threads a kernel may use here: torch's own number, 1 in a data-loader worker."""
    return torch.get_num_threads()


def signed(seed: int) -> int:
    """A 64-bit seed as the int64 that carries the same bits."""
    seed &= 0xFFFFFFFFFFFFFFFF
    return seed - (1 << 64) if seed >> 63 else seed
