"""Max-pool indices as places in their windows on the device (reference/window.py)."""

import triton
import triton.language as tl


@triton.jit
def corners(i, P1: tl.constexpr, P2: tl.constexpr, P0: tl.constexpr, S0: tl.constexpr,
            S1: tl.constexpr, S2: tl.constexpr, A0: tl.constexpr, A1: tl.constexpr,
            A2: tl.constexpr, BESIDE: tl.constexpr):  # fmt: skip
    """The first coordinate of element i's window in each dimension."""
    i = i // BESIDE
    x, i = i % P2, i // P2
    y, z = i % P1, i // P1 % P0
    return z * S0 - A0, y * S1 - A1, x * S2 - A2


@triton.jit
def step(at, corner, KERNEL: tl.constexpr, DILATION: tl.constexpr):
    """The place of a coordinate in its window, and whether it is one."""
    offset = at - corner
    place = offset // DILATION
    good = (offset >= 0) & (place * DILATION == offset) & (place < KERNEL)
    return place, good


@triton.jit
def encode_window(
    index_ptr, place_ptr, misfit_ptr, n, SIZE: tl.constexpr,
    P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    S0: tl.constexpr, S1: tl.constexpr, S2: tl.constexpr,
    A0: tl.constexpr, A1: tl.constexpr, A2: tl.constexpr,
    D0: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr,
    M0: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, BESIDE: tl.constexpr,
):  # fmt: skip
    """misfit_ptr becomes 1 when an index lies outside its window."""
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    inside = local < n - first
    index = tl.load(index_ptr + first + local, mask=inside, other=0)
    good = (index >= 0) & (index < M0 * M1 * M2)
    at = tl.where(good, index, 0).to(tl.int32)
    z, y, x = corners(first + local, P1, P2, P0, S0, S1, S2, A0, A1, A2, BESIDE)
    c, good_z = step(at // (M1 * M2), z, K0, D0)
    b, good_y = step(at // M2 % M1, y, K1, D1)
    a, good_x = step(at % M2, x, K2, D2)
    good &= good_z & good_y & good_x
    place = tl.where(good, (c * K1 + b) * K2 + a, 0)
    tl.store(place_ptr + first + local, place.to(tl.uint8), mask=inside)
    if tl.max((inside & ~good).to(tl.int32)) > 0:
        tl.store(misfit_ptr, 1)


@triton.jit
def decode_window(
    place_ptr, index_ptr, misfit_ptr, n, SIZE: tl.constexpr,
    P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr,
    S0: tl.constexpr, S1: tl.constexpr, S2: tl.constexpr,
    A0: tl.constexpr, A1: tl.constexpr, A2: tl.constexpr,
    D0: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr,
    M0: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, BESIDE: tl.constexpr,
):  # fmt: skip
    """misfit_ptr becomes 1 when a place lies outside its window or the map."""
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    inside = local < n - first
    place = tl.load(place_ptr + first + local, mask=inside, other=0).to(tl.int32)
    z, y, x = corners(first + local, P1, P2, P0, S0, S1, S2, A0, A1, A2, BESIDE)
    z += place // (K1 * K2) * D0
    y += place // K2 % K1 * D1
    x += place % K2 * D2
    good = (place < K0 * K1 * K2) & (z >= 0) & (z < M0)
    good &= (y >= 0) & (y < M1) & (x >= 0) & (x < M2)
    index = tl.where(good, (z * M1 + y) * M2 + x, 0)
    tl.store(index_ptr + first + local, index.to(tl.int64), mask=inside)
    if tl.max((inside & ~good).to(tl.int32)) > 0:
        tl.store(misfit_ptr, 1)
