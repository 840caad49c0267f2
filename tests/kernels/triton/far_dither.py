"""A kernel that writes the dither of 128 elements from a far place on."""

import triton
import triton.language as tl

from actzip.kernels.triton.device.numbers import dither, load_seed


@triton.jit(do_not_specialize=["seed", "base"])
def far_dither(out_ptr, seed, base, REAL: tl.constexpr):
    i = tl.arange(0, 128)
    tl.store(out_ptr + i, dither(load_seed(seed), base.to(tl.int64), i, REAL, True))
