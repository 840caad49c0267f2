"""Group payloads with their codes entropy-coded.

    flag u8: 0 | the plain payload
    flag u8: 1 | length of the coded codes u64 | metadata | coded codes | raw groups

Codes are far from uniform: 2-bit codes of Gaussian data hold 1.5 bits. Metadata and raw groups stay
as they are; where coding gains nothing the plain payload is kept.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs.base import Allocate, PayloadError
from actzip.codecs.entropy import entropy_decode, entropy_encode
from actzip.kernels.layout import GroupLayout

_LENGTH = struct.Struct("<Q")
_PLAIN, _CODED = 0, 1


def squeeze(plain: Tensor, layout: GroupLayout, allocate: Allocate) -> Tensor:
    """A plain group payload, made smaller if its codes allow."""
    first, last = layout.offsets[0], layout.offsets[-1]
    planes = kernels.of(plain, "planes")
    spans = zip(layout.offsets[:-1], layout.offsets[1:], layout.bits, strict=True)
    codes = [planes.unpack(plain[a:b], layout.n, bits) for a, b, bits in spans]
    budget = last - first - _LENGTH.size
    coded = entropy_encode(torch.cat(codes), budget) if codes and budget > 0 else None
    if coded is None:
        data = allocate(1 + plain.numel(), plain.device)
        data[0] = _PLAIN
        data[1:] = plain
        return data
    data = allocate(1 + _LENGTH.size + coded.numel() + plain.numel() - last + first, plain.device)
    data[0] = _CODED
    length = torch.frombuffer(bytearray(_LENGTH.pack(coded.numel())), dtype=torch.uint8)
    parts = (length.to(plain.device), plain[:first], coded, plain[last:])
    torch.cat(parts, out=data[1:])
    return data


def unsqueeze(data: Tensor, layout: GroupLayout) -> Tensor:
    """The plain payload again; a PayloadError for bytes that no encoder writes."""
    if data.numel() == 0 or int(data[0]) not in (_PLAIN, _CODED):
        raise PayloadError("a squeezed payload starts with 0 or 1; the bytes are damaged")
    if int(data[0]) == _PLAIN:
        return data[1:]
    first, last = layout.offsets[0], layout.offsets[-1]
    start = 1 + _LENGTH.size
    if data.numel() < start + first:
        raise PayloadError(f"metadata needs {first} bytes, {data.numel()} are there in all")
    (length,) = _LENGTH.unpack(bytes(data[1:start].tolist()))
    if length > data.numel() - start - first:
        raise PayloadError(f"{length} bytes of codes are more than the payload has")
    coded, tail = data[start + first :][:length], data[start + first + length :]
    codes = torch.empty(layout.samples * layout.n, dtype=torch.uint8, device=data.device)
    entropy_decode(coded, codes)
    plain = torch.empty(last + tail.numel(), dtype=torch.uint8, device=data.device)
    planes = kernels.of(data, "planes")
    plain[:first] = data[start : start + first]
    for row, bits in enumerate(layout.bits):
        here = codes[row * layout.n : (row + 1) * layout.n]
        plain[layout.offsets[row] : layout.offsets[row + 1]] = planes.pack(here, bits)
    plain[last:] = tail
    return plain
