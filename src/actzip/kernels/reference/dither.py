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

import torch
from torch import Tensor

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_WEYL, _MIX_A, _MIX_B = 0x9E3779B9, 0x7FEB352D, 0x846CA68B


def _mix64(z: int) -> int:
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _M64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _M64
    return z ^ z >> 31


def stream_key(seed: int, high: int) -> tuple[int, int]:
    """The two 32-bit keys of the 2^32 words whose number has the high part `high`."""
    inner = _mix64((seed + 0x9E3779B97F4A7C15) & _M64)
    key = _mix64((inner + high * 0xD1342543DE82EF95) & _M64)
    return key & _M32, key >> 32


def dither_at(seed: int, index: Tensor) -> Tensor:
    """v for each element index (an int64 tensor), as float32."""
    word = index // 32 * 16 + index % 16
    high = word >> 32
    out = torch.empty(index.shape, dtype=torch.float32, device=index.device)
    for part in torch.unique(high).tolist():
        here = high == part
        start, middle = stream_key(seed, part)
        x = ((word[here] & _M32) * _WEYL + start) & _M32
        x = ((x ^ x >> 16) * _MIX_A + middle) & _M32
        x = ((x ^ x >> 15) * _MIX_B) & _M32
        x = x ^ x >> 16
        half = torch.where((index[here] & 16) > 0, x >> 16, x & 0xFFFF)
        signed = half - ((half & 0x8000) << 1)
        out[here] = signed.float() * 2.0**-16 + 2.0**-17
    return out


def dither(seed: int, start: int, count: int, device: torch.device) -> Tensor:
    """v for the elements start, start + 1, …, start + count - 1, as float32."""
    return dither_at(seed, torch.arange(start, start + count, device=device))
