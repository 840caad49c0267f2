"""What else one could store a tensor with, where it is installed: rows beside ours.

Each rival is a function of a float32 tensor that gives (encode, decode, stored bytes), and raises
ImportError when its package is not there. Their defaults are used, at 2 to 8 bits or 1 % of the
maximum, whatever they offer nearest to ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rival:
    encode: Callable[[], Any]
    decode: Callable[[], Any]
    nbytes: int


def eager_pytorch(x: Tensor) -> Rival:
    """2-bit stochastic groups of 256 in plain eager operations: what a first version would do."""
    shift = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)

    def encode() -> tuple[Tensor, Tensor, Tensor]:
        groups = x.view(-1, 256)
        lo = groups.amin(1, keepdim=True)
        step = (groups.amax(1, keepdim=True) - lo) / 3
        q = ((groups - lo) / step + torch.rand_like(groups)).floor_().clamp_(0, 3)
        packed = (q.to(torch.uint8).view(-1, 4) << shift).sum(1, dtype=torch.uint8)
        return packed, lo, step

    packed, lo, step = encode()

    def decode() -> Tensor:
        q = (packed.view(-1, 1) >> shift & 3).view(-1, 256)
        return q * step + lo

    return Rival(encode, decode, packed.numel() + 4 * (lo.numel() + step.numel()))


def bitsandbytes(x: Tensor) -> Rival:
    """Blockwise 8 bits, block 256: the format of its 8-bit optimizers."""
    from bitsandbytes import functional

    codes, state = functional.quantize_blockwise(x, blocksize=256)
    return Rival(
        lambda: functional.quantize_blockwise(x, blocksize=256),
        lambda: functional.dequantize_blockwise(codes, state),
        codes.numel() + 4 * state.absmax.numel(),
    )


def torchao(x: Tensor) -> Rival:
    """Affine 4 bits in blocks of 256; a byte is kept for each code."""
    from torchao.quantization.quant_primitives import (
        MappingType,
        choose_qparams_affine,
        dequantize_affine,
        quantize_affine,
    )

    rows = x.view(-1, 256)

    def encode() -> tuple[Tensor, Tensor, Tensor]:
        scale, zero = choose_qparams_affine(
            rows, MappingType.ASYMMETRIC, (1, 256), torch.uint8, 0, 15
        )
        return quantize_affine(rows, (1, 256), scale, zero, torch.uint8, 0, 15), scale, zero

    codes, scale, zero = encode()
    return Rival(
        encode,
        lambda: dequantize_affine(codes, (1, 256), scale, zero, torch.uint8, 0, 15),
        codes.numel() + 8 * scale.numel(),
    )


def pysz(x: Tensor) -> Rival:
    """SZ3, absolute error 1 % of the maximum."""
    from pysz import sz, szConfig, szErrorBoundMode

    config = szConfig()
    config.errorBoundMode = szErrorBoundMode.ABS
    config.absErrorBound = 0.01 * float(x.abs().max())
    array = x.numpy()
    data, _ = sz.compress(array, config)
    return Rival(
        lambda: sz.compress(array, config),
        lambda: sz.decompress(data, array.dtype, array.shape),
        int(data.nbytes),
    )


def zfpy(x: Tensor) -> Rival:
    """zfp, absolute error 1 % of the maximum, as a matrix of rows of 256."""
    import zfpy as zfp

    array, error = x.view(-1, 256).numpy(), 0.01 * float(x.abs().max())
    data = zfp.compress_numpy(array, tolerance=error)
    return Rival(
        lambda: zfp.compress_numpy(array, tolerance=error),
        lambda: zfp.decompress_numpy(data),
        len(data),
    )


def blosc2(x: Tensor) -> Rival:
    """Lossless: shuffled bytes through LZ4, two threads."""
    import blosc2 as blosc

    blosc.set_nthreads(2)
    array = x.numpy()
    data = blosc.pack_tensor(array)
    return Rival(lambda: blosc.pack_tensor(array), lambda: blosc.unpack_tensor(data), len(data))


RIVALS = (eager_pytorch, bitsandbytes, torchao, pysz, zfpy, blosc2)
