"""Group payloads with their codes entropy-coded.

    flag u8: 0 | the plain payload
    flag u8: 1 | metadata | for each number of bits, ascending: length u64, coded codes, rests |
               raw groups

Codes are far from uniform: 2-bit codes of Gaussian data hold 1.5 bits. Samples with the same number
of bits share a table; where coding gains nothing the length is 0 and their packed codes follow.
Metadata and raw groups stay as they are.

Codes of up to 4 bits are coded several at a time, 32 elements apart. That costs nothing: the bit
planes of 128 codes of 2 bits are, byte for byte, those of 32 codes of 8 bits. It takes a quarter of
the coder's steps, and sees what neighbours have in common: 2-bit codes of a BatchNorm's input went
from 1.78 to 1.56 bits. What is left over in a sample, less than 256 codes, is the rest: packed as
it was.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs.entropy import entropy_decode, entropy_encode
from actzip.codecs.payload import Allocate, PayloadError
from actzip.kernels.group_layout import GroupLayout

_LENGTH = struct.Struct("<Q")
_PLAIN, _CODED = 0, 1


def squeeze(plain: Tensor, layout: GroupLayout, allocate: Allocate) -> Tensor:
    """A plain group payload, made smaller if its codes allow."""
    first, last = layout.offsets[0], layout.offsets[-1]
    parts = [plain.new_full((1,), _CODED), plain[:first]]
    for bits, rows in _samples(layout):
        packed = [plain[a:b] for a, b in rows]
        together = _together(bits, len(rows) * layout.n)
        whole = layout.n // (32 * together) * 32 * together
        coded = _encode(packed, bits, whole, together)
        parts.append(_number(0 if coded is None else coded.numel(), plain.device))
        if coded is None:
            parts += packed
        else:
            parts += [coded, *(p[whole * bits // 8 :] for p in packed)]
    parts.append(plain[last:])
    if sum(p.numel() for p in parts) > plain.numel():
        parts = [plain.new_full((1,), _PLAIN), plain]
    data = allocate(sum(p.numel() for p in parts), plain.device)
    torch.cat(parts, out=data)
    return data


def unsqueeze(data: Tensor, layout: GroupLayout) -> Tensor:
    """The plain payload again; a PayloadError for bytes that no encoder writes."""
    if data.numel() == 0 or int(data[0]) not in (_PLAIN, _CODED):
        raise PayloadError("a squeezed payload starts with 0 or 1; the bytes are damaged")
    if int(data[0]) == _PLAIN:
        return data[1:]
    first, last = layout.offsets[0], layout.offsets[-1]
    rest = _Reader(data[1:])
    plain = torch.empty(last, dtype=torch.uint8, device=data.device)
    plain[:first] = rest.take(first)
    for bits, rows in _samples(layout):
        (length,) = _LENGTH.unpack(bytes(rest.take(_LENGTH.size).tolist()))
        packed = [plain[a:b] for a, b in rows]
        together = _together(bits, len(rows) * layout.n)
        whole = layout.n // (32 * together) * 32 * together if length else 0
        if whole:
            _decode(rest.take(length), packed, bits, whole, together)
        for row in packed:
            row[whole * bits // 8 :] = rest.take(row.numel() - whole * bits // 8)
    return torch.cat([plain, rest.data])


class _Reader:
    """Takes bytes from the front of `data`."""

    def __init__(self, data: Tensor) -> None:
        self.data = data

    def take(self, count: int) -> Tensor:
        if count > self.data.numel():
            raise PayloadError(f"{count} bytes are to follow, {self.data.numel()} are there")
        taken, self.data = self.data[:count], self.data[count:]
        return taken


def _samples(layout: GroupLayout) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """For each number of bits, where the packed codes of its samples are."""
    places = list(zip(layout.offsets[:-1], layout.offsets[1:], strict=True))
    for bits in sorted(set(layout.bits)):
        yield bits, [place for place, b in zip(places, layout.bits, strict=True) if b == bits]


def _together(bits: int, codes: int) -> int:
    """How many codes make a symbol: as many as a byte holds, if the table is no more than 1 %."""
    fits = [t for t in range(1, 8 // bits + 1) if 100 * 2 * 2 ** (t * bits) <= codes * bits // 8]
    return max(fits, default=1)


def _encode(packed: list[Tensor], bits: int, whole: int, together: int) -> Tensor | None:
    """The first `whole` codes of each sample, entropy-coded; None where that gains nothing."""
    planes, size = kernels.of(packed[0], "planes"), whole * bits // 8
    symbols = [planes.unpack(p[:size], whole // together, bits * together) for p in packed]
    joined = symbols[0] if len(symbols) == 1 else torch.cat(symbols)
    return entropy_encode(joined, size * len(packed)) if whole else None


def _decode(coded: Tensor, packed: list[Tensor], bits: int, whole: int, together: int) -> None:
    """Fills in the first `whole` codes of each sample."""
    planes = kernels.of(coded, "planes")
    symbols = torch.empty(len(packed), whole // together, dtype=torch.uint8, device=coded.device)
    entropy_decode(coded, symbols.view(-1))
    for row, found in zip(packed, symbols, strict=True):
        row[: whole * bits // 8] = planes.pack(found, bits * together)


def _number(value: int, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(_LENGTH.pack(value)), dtype=torch.uint8).to(device)
