"""Max-pool indices as places in their windows on the device (reference/window.py).

GEOMETRY: for depth, height and width the places of the output, the window, strides, padding,
dilations, the sides of the input; then how many elements lie beside each other in memory.
"""

import triton
import triton.language as tl


@triton.jit
def corners(i, GEOMETRY: tl.constexpr):
    """The first coordinate of element i's window in each dimension."""
    i = i // GEOMETRY[18]
    x, i = i % GEOMETRY[2], i // GEOMETRY[2]
    y, z = i % GEOMETRY[1], i // GEOMETRY[1] % GEOMETRY[0]
    z = z * GEOMETRY[6] - GEOMETRY[9]
    return z, y * GEOMETRY[7] - GEOMETRY[10], x * GEOMETRY[8] - GEOMETRY[11]


@triton.jit
def step(at, corner, KERNEL: tl.constexpr, DILATION: tl.constexpr):
    """The place of a coordinate in its window, and whether it is one."""
    offset = at - corner
    place = offset // DILATION
    good = (offset >= 0) & (place * DILATION == offset) & (place < KERNEL)
    return place, good


@triton.jit
def put(target_ptr, local, values, inside, good, misfit_ptr):
    """Values where they are good, else zeros, and then misfit_ptr becomes 1."""
    values = tl.where(good, values, 0).to(target_ptr.dtype.element_ty)
    tl.store(target_ptr + local, values, mask=inside)
    if tl.max((inside & ~good).to(tl.int32)) > 0:
        tl.store(misfit_ptr, 1)


@triton.jit
def encode_window(index_ptr, place_ptr, misfit_ptr, n, SIZE: tl.constexpr, GEOMETRY: tl.constexpr):
    """misfit_ptr becomes 1 when an index lies outside its window."""
    M0: tl.constexpr = GEOMETRY[15]
    M1: tl.constexpr = GEOMETRY[16]
    M2: tl.constexpr = GEOMETRY[17]
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    inside = local < n - first
    index = tl.load(index_ptr + first + local, mask=inside, other=0)
    good = (index >= 0) & (index < M0 * M1 * M2)
    at = tl.where(good, index, 0).to(tl.int32)
    z, y, x = corners(first + local, GEOMETRY)
    c, good_z = step(at // (M1 * M2), z, GEOMETRY[3], GEOMETRY[12])
    b, good_y = step(at // M2 % M1, y, GEOMETRY[4], GEOMETRY[13])
    a, good_x = step(at % M2, x, GEOMETRY[5], GEOMETRY[14])
    good &= good_z & good_y & good_x
    place = (c * GEOMETRY[4] + b) * GEOMETRY[5] + a
    put(place_ptr + first, local, place, inside, good, misfit_ptr)


@triton.jit
def decode_window(place_ptr, index_ptr, misfit_ptr, n, SIZE: tl.constexpr, GEOMETRY: tl.constexpr):
    """misfit_ptr becomes 1 when a place lies outside its window or the map."""
    K0: tl.constexpr = GEOMETRY[3]
    K1: tl.constexpr = GEOMETRY[4]
    K2: tl.constexpr = GEOMETRY[5]
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    inside = local < n - first
    place = tl.load(place_ptr + first + local, mask=inside, other=0).to(tl.int32)
    z, y, x = corners(first + local, GEOMETRY)
    z += place // (K1 * K2) * GEOMETRY[12]
    y += place // K2 % K1 * GEOMETRY[13]
    x += place % K2 * GEOMETRY[14]
    good = (place < K0 * K1 * K2) & (z >= 0) & (z < GEOMETRY[15])
    good &= (y >= 0) & (y < GEOMETRY[16]) & (x >= 0) & (x < GEOMETRY[17])
    index = (z * GEOMETRY[16] + y) * GEOMETRY[17] + x
    put(index_ptr + first, local, index, inside, good, misfit_ptr)
