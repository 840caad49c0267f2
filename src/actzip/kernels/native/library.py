"""Finds, loads and calls the shared library; ctypes, so that one build fits every torch.

Torch is imported first: its OpenMP runtime is then the one that the library binds to, and both
share one pool of threads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.native.prototypes import PROTOTYPES, difference

#: Equals actzip_interface() in csrc/common/isa.cpp, and changes with what an entry does; what it
#: takes is in prototypes.py. A library built from other sources is not used.
INTERFACE = 6

#: Instruction sets by the numbers of csrc/common/isa.cpp; ACTZIP_ISA names the one to use.
ISA = ("portable", "avx2", "avx512")

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
            other = difference(loaded)
            if not other and loaded.actzip_interface() == INTERFACE:
                _choose(loaded, os.environ.get("ACTZIP_ISA"))
                return loaded
            reason = f"{path.name} was built from other sources" + (other and f": {other}")
        except (OSError, AttributeError) as error:
            reason = f"{path.name} does not load ({error})"
    warnings.warn(_HOW_TO_BUILD.format(reason=reason), RuntimeWarning, stacklevel=2)
    return None


def _choose(loaded: ctypes.CDLL, asked: str | None) -> None:
    """Use the instruction set that ACTZIP_ISA names; if it is not there, warn and use the best."""
    if not asked:
        return
    if asked not in ISA:
        reason = f"the instruction sets are {', '.join(ISA)}"
    else:
        used = ISA[loaded.actzip_set_isa_level(ISA.index(asked))]
        reason = "" if used == asked else f"this processor has {used}"
    if reason:
        text = f"ACTZIP_ISA={asked} is not used: {reason}; the best that is there is used"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def available() -> bool:
    """True when the library is loaded; warns once, with the way to build it, when it is not."""
    return _load() is not None


def isa_level() -> int:
    """The instruction set in use, a place in `ISA`."""
    return int(_require().actzip_isa_level())


def set_isa_level(level: int) -> int:
    """Use a lower level than the processor offers; -1 for the best. All write the same bytes."""
    return int(_require().actzip_set_isa_level(level))


def call(name: str, *args: int | Tensor) -> int:
    """Call an entry; a tensor goes as its address and its bytes, so that the entry can check both.

    Tensors are dense: elements that lie apart in memory would reach past these bytes. Raises
    DamagedError or ValueError for a negative status, else returns the result.
    """
    entry, places, pack = _ENTRIES.get(name) or _entry(name)
    words: list[Any] = [*args]
    try:
        for place in places:
            t = words[place]
            words[place : place + 1] = t.data_ptr(), t.nbytes
        packed = pack(*words)
    except (AttributeError, IndexError, TypeError, struct.error):  # to ask first takes longer
        _check(name, args)
        raise
    status = entry(packed, len(words))
    if status >= 0:
        return status
    if status == DAMAGED:
        raise DamagedError(f"{name}: the stored bytes are damaged")
    what = "a value that the format does not hold" if status == BAD_VALUE else "bad arguments"
    raise ValueError(f"{name}: {what}")


def _check(name: str, args: tuple[int | Tensor, ...]) -> None:
    """Say which argument is not what the entry takes."""
    letters = PROTOTYPES[name]
    if len(args) != len(letters):
        raise TypeError(f"{name}({letters}) takes {len(letters)} parameters, got {len(args)}")
    for letter, a in zip(letters, args, strict=True):
        if isinstance(a, Tensor) != (letter in "rw"):
            what = "a tensor" if letter in "rw" else "a number"
            raise TypeError(f"{name}({letters}) takes {what} where {type(a).__name__} was given")


#: An entry that takes its parameters as words of 64 bits and how many there are, which of its
#: parameters are tensors, the last one first, and what packs the words.
_Entry = tuple[Callable[[bytes, int], int], tuple[int, ...], Callable[..., bytes]]
_ENTRIES: dict[str, _Entry] = {}


def _entry(name: str) -> _Entry:
    letters = PROTOTYPES[name]
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64)
    places = tuple(i for i in reversed(range(len(letters))) if letters[i] in "rw")
    entry = prototype((f"actzip_{name}", _require()))
    words = len(letters) + len(places)
    return _ENTRIES.setdefault(name, (entry, places, struct.Struct(f"={words}q").pack))


def _require() -> ctypes.CDLL:
    loaded = _load()
    if loaded is None:
        raise RuntimeError("the C++ library of actzip is not there; build it with `make setup`")
    return loaded


#: Threads a kernel may use here: torch's own number, 1 in a data-loader worker.
threads = torch.get_num_threads


def signed(seed: int | Tensor) -> int:
    """A 64-bit seed as the int64 that carries the same bits."""
    seed = int(seed) & 0xFFFFFFFFFFFFFFFF
    return seed - (1 << 64) if seed >> 63 else seed
