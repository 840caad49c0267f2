"""fp32 tensors that hold nothing but bfloat16 numbers: 16 bits for each are enough.

A model in bfloat16 whose results are cast to fp32 (for an adapter, a norm, a loss) saves such
tensors. Where the bfloat16 tensor is still there, derivation finds it; here are those whose source
is gone or was never seen: a cast under `no_grad`, a batch that was cast before, a gather of casts.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from actzip import planning
from actzip.codecs import Cast, unsettled
from actzip.codecs.base import Payload

#: What is stored instead.
SHORT = Cast(torch.bfloat16)

_GLANCE = 64
_LOW = 0xFFFF  # the bits of an fp32 that bfloat16 does not have


def is_short(x: Tensor) -> bool:
    """Whether x looks like bfloat16 numbers in fp32: a glance at a few elements all over it.

    Only where that is free: on a device the host would have to wait for them.
    """
    if x.dtype is not torch.float32 or planning.is_fake(x):
        return False
    if not unsettled.reading_is_free(x.device):
        return False
    return not (x.take(_all_over(x.numel())).view(torch.int32) & _LOW).any()


@functools.lru_cache(256)
def _all_over(numel: int) -> Tensor:
    return torch.arange(_GLANCE, device="cpu").mul_(numel).div_(_GLANCE, rounding_mode="floor")


def comes_back(x: Tensor, payload: Payload) -> bool:
    """Whether every bit of x does: NaN may carry bits that a cast does not keep."""
    decoded = payload.codec.decode(payload)
    return torch.equal(decoded.view(torch.int32), x.view(torch.int32))
