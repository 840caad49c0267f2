"""One bit per element on the device: a byte holds eight elements, in order."""

import triton
import triton.language as tl

from actzip.kernels.triton.device.numbers import widen


@triton.jit(do_not_specialize=["on"])
def encode_mask(x_ptr, data_ptr, misfit_ptr, on, n, OCTETS: tl.constexpr, TEST: tl.constexpr):
    """TEST 0: a bool's value; 1: not (x <= 0); 2: bits equal to `on`, where all others must be
    zero bits, else misfit_ptr becomes 1. Elements come as bits for 0 and 2."""
    SIZE: tl.constexpr = OCTETS * 8
    first = tl.program_id(0).to(tl.int64) * SIZE
    limit = tl.minimum(n - first, SIZE).to(tl.int32)
    octet = tl.arange(0, OCTETS)
    local = octet[:, None] * 8 + tl.arange(0, 8)[None, :]
    inside = local < limit
    if limit == SIZE:
        x = tl.load(x_ptr + first + local)
    else:
        x = tl.load(x_ptr + first + local, mask=inside, other=0)
    if TEST == 0:
        bit = x != 0
    elif TEST == 1:
        bit = inside & ~(widen(x) <= 0)
    else:
        bit = inside & (x == on.to(x.dtype))
        wrong = tl.sum(tl.max((~bit & (x != 0)).to(tl.int32), axis=1))
        if wrong > 0:
            tl.store(misfit_ptr, 1)
    octets = tl.sum(bit.to(tl.int32) << tl.arange(0, 8)[None, :], axis=1).to(tl.uint8)
    tl.store(data_ptr + first // 8 + octet, octets, mask=octet * 8 < limit)


@triton.jit(do_not_specialize=["on"])
def decode_mask(data_ptr, out_ptr, on, n, OCTETS: tl.constexpr):
    """The bits `on` where a bit is set, zero bits elsewhere."""
    SIZE: tl.constexpr = OCTETS * 8
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    first = tl.program_id(0).to(tl.int64) * SIZE
    limit = tl.minimum(n - first, SIZE).to(tl.int32)
    octet = tl.arange(0, OCTETS)
    lane = tl.arange(0, 8)[None, :]
    local = octet[:, None] * 8 + lane
    octets = tl.load(data_ptr + first // 8 + octet, mask=octet * 8 < limit, other=0).to(tl.int32)
    value = tl.where(((octets[:, None] >> lane) & 1) != 0, on.to(KIND), tl.full([], 0, KIND))
    if limit == SIZE:
        tl.store(out_ptr + first + local, value)
    else:
        tl.store(out_ptr + first + local, value, mask=local < limit)
