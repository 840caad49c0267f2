"""The dither hash in plain PyTorch: (seed, element index) -> v in (-1/2, 1/2).

Elements go in blocks of 32 that share 16 words of 32 bits: element i of a block takes the low
half of word i when i < 16, else the high half of word i - 16. A word is a Weyl sequence put
through a two-round multiply mix, keyed by the seed at its start and in its middle, so that the
streams of two seeds are no shifts of each other. v = (s + 1/2) / 2^16 for the half word s read
as a signed number: 65536 values, symmetric about zero, never zero, exact in float32. (With 8 bits
a value the bias of a dithered code, up to 1/512 of a step, would show in a million draws.)

csrc/common/core.hpp holds the same function; nothing else in the package makes random numbers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_WEYL, _MIX_A, _MIX_B = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
#: Elements that have the same keys: 2^32 words of two.
_KEYED = 1 << 33

_Word = TypeVar("_Word", int, Tensor)


def _signed(word: int) -> int:
    """64 bits as the int64 that carries them, which is what tensors compute with."""
    word &= _M64
    return word - (1 << 64) if word >> 63 else word


def _plus(z: _Word, number: int) -> _Word:
    return z + _signed(number) if isinstance(z, Tensor) else (z + number) & _M64


def _times(z: _Word, number: int) -> _Word:
    return z * _signed(number) if isinstance(z, Tensor) else (z * number) & _M64


def _fold(z: _Word, shift: int) -> _Word:
    """z ^ (z >> shift), the shift a logical one."""
    return z ^ z >> shift & (_M64 >> shift)


def _mix64(z: _Word) -> _Word:
    z = _times(_fold(z, 30), 0xBF58476D1CE4E5B9)
    z = _times(_fold(z, 27), 0x94D049BB133111EB)
    return _fold(z, 31)


def stream_key(seed: _Word, high: int) -> tuple[_Word, _Word]:
    """The two 32-bit keys of the 2^32 words whose number has the high part `high`.

    The seed is a number, or an int64 on a device, which then is not read.
    """
    inner = _mix64(_plus(seed, 0x9E3779B97F4A7C15))
    key = _mix64(_plus(inner, high * 0xD1342543DE82EF95 & _M64))
    return key & _M32, key >> 32 & _M32


def _halves(seed: int | Tensor, start: int, count: int, device: torch.device) -> Tensor:
    """v of whole blocks of 32 elements that have the same keys."""
    first: int | Tensor
    middle: int | Tensor
    if isinstance(seed, Tensor):
        first, middle = stream_key(seed, start // _KEYED)
    else:
        first, middle = stream_key(seed, start // _KEYED)
    word = start % _KEYED // 2
    x = torch.arange(word, word + count // 2, device=device)
    x = x.mul_(_WEYL).add_(first).bitwise_and_(_M32)
    x = x.bitwise_xor_(x >> 16).mul_(_MIX_A).add_(middle).bitwise_and_(_M32)
    x = x.bitwise_xor_(x >> 15).mul_(_MIX_B).bitwise_and_(_M32)
    x = x.bitwise_xor_(x >> 16).view(-1, 1, 16)
    # the low half of a word, read as a signed number, and then the high half
    both = torch.cat([x << 48 >> 48, x << 32 >> 48], 1)
    return both.view(-1).to(torch.float32).mul_(2.0**-16).add_(2.0**-17)


def dither(seed: int | Tensor, start: int, count: int, device: torch.device) -> Tensor:
    """v for the elements start, start + 1, …, start + count - 1, as float32."""
    begin, end = start // 32 * 32, -(-(start + count) // 32) * 32
    cuts = [begin, *range(begin // _KEYED * _KEYED + _KEYED, end, _KEYED), end]
    parts = [_halves(seed, a, b - a, device) for a, b in pairwise(cuts)]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole[start - begin : start - begin + count]
