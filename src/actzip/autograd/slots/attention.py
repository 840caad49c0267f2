"""Rows of attention, softmax and what is sampled by position.

A bias or a mask that is added to the scores is `exact`: it holds -inf or the lowest float, and a
code whose range spans those leaves nothing of the zeros beside them.
"""

from __future__ import annotations

from actzip.autograd.slots.rule import Row, row
from actzip.methods.base import Role

_SMALL, _MASK = Role.SMALL, Role.MASK
_LINEAR, _NONLINEAR, _EXACT = Role.LINEAR, Role.NONLINEAR, Role.EXACT

# value meets the gradient in a matmul, output in a sum of products over each row: both linear
_qkv = row(query=_NONLINEAR, key=_NONLINEAR, value=_LINEAR, output=_LINEAR)
_lengths = row(cum_seq_q=_EXACT, cum_seq_k=_EXACT)
_philox = row(philox_seed=_EXACT, philox_offset=_EXACT)
_rng = row(rng_state=_EXACT, unused=_EXACT)
_softmax = row(result=_NONLINEAR)
# Where to sample is a position, of which a rounded value is another pixel; what is sampled
# enters the gradient of the grid linearly.
_sampler = row(input=_LINEAR, grid=_EXACT)

ROWS: dict[str, Row] = {
    "CudnnAttentionBackward0": {
        **_qkv,
        **_lengths,
        **_philox,
        **row(attn_bias=_EXACT, logsumexp=_SMALL),
    },
    "EfficientAttentionBackward0": {
        **_qkv,
        **_philox,
        **row(bias=_EXACT, cu_seqlens_q=_EXACT, cu_seqlens_k=_EXACT, logsumexp=_SMALL),
    },
    "FlashAttentionBackward0": {**_qkv, **_lengths, **_rng, **row(softmax_logsumexp=_SMALL)},
    "ScaledDotProductCudnnAttentionBackward0": {
        **_qkv,
        **_lengths,
        **_philox,
        **row(attn_bias=_EXACT, logsumexp=_SMALL),
    },
    "ScaledDotProductEfficientAttentionBackward0": {
        **_qkv,
        **_philox,
        **row(attn_bias=_EXACT, log_sumexp=_SMALL),
    },
    "ScaledDotProductFlashAttentionBackward0": {
        **_qkv,
        **_lengths,
        **_rng,
        **row(logsumexp=_SMALL),
    },
    "ScaledDotProductFlashAttentionForCpuBackward0": {
        **_qkv,
        **row(attn_mask=_EXACT, logsumexp=_SMALL),
    },
    "ScaledDotProductFusedAttentionOverrideableBackward0": {
        **_qkv,
        **_lengths,
        **_philox,
        **row(attn_bias=_EXACT, logsumexp=_SMALL),
    },
    "LogSoftmaxBackward0": _softmax,
    "MaskedSoftmaxBackward0": {**_softmax, **row(mask=_MASK)},
    "SafeSoftmaxBackward0": _softmax,
    "SoftmaxBackward0": _softmax,
    "CudnnGridSamplerBackward0": row(self=_LINEAR, grid=_EXACT),
    "GridSampler2DBackward0": _sampler,
    "GridSampler2DCpuFallbackBackward0": _sampler,
    "GridSampler3DBackward0": _sampler,
}
