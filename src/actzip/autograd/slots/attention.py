"""Rows of attention, softmax and what is sampled by position.

A bias or a mask that is added to the scores is `exact`: it holds -inf or the lowest float, and a
code whose range spans those leaves nothing of the zeros beside them.
"""

from __future__ import annotations

from actzip.autograd.slots.rule import Row, Rule, row
from actzip.control.attention import attention
from actzip.control.curves import log_softmax, softmax
from actzip.control.op import Channels, Kind, Op
from actzip.methods.base import Role

_SMALL, _MASK = Role.SMALL, Role.MASK
_LINEAR, _NONLINEAR, _EXACT = Role.LINEAR, Role.NONLINEAR, Role.EXACT

_ATTENTION = Op(Kind.ATTENTION, Channels.HEADS)
_SOFTMAX = Op(Kind.SOFTMAX, Channels.NOWHERE)
_SAMPLER = Op()

# value meets the gradient in a matmul, output in a sum of products over each row: both linear
_roles = {"query": _NONLINEAR, "key": _NONLINEAR, "value": _LINEAR, "output": _LINEAR}
_qkv = {slot: Rule(role, error=attention(slot)) for slot, role in _roles.items()}
_lengths = {"cum_seq_q": _EXACT, "cum_seq_k": _EXACT}
_philox = {"philox_seed": _EXACT, "philox_offset": _EXACT}
_rng = {"rng_state": _EXACT, "unused": _EXACT}
# cuDNN's, and whatever a device of its own puts in its place
_cudnn = row(_ATTENTION, **_qkv, **_lengths, **_philox, attn_bias=_EXACT, logsumexp=_SMALL)

_softmax, _log_softmax = (
    row(_SOFTMAX, result=Rule(_NONLINEAR, error=f)) for f in (softmax, log_softmax)
)
# Where to sample is a position, of which a rounded value is another pixel; what is sampled
# enters the gradient of the grid linearly.
_sampler = row(_SAMPLER, input=_LINEAR, grid=_EXACT)

ROWS: dict[str, Row] = {
    "ScaledDotProductCudnnAttentionBackward0": _cudnn,
    "ScaledDotProductEfficientAttentionBackward0": row(
        _ATTENTION, **_qkv, **_philox, attn_bias=_EXACT, log_sumexp=_SMALL
    ),
    "ScaledDotProductFlashAttentionBackward0": row(
        _ATTENTION, **_qkv, **_lengths, **_rng, logsumexp=_SMALL
    ),
    "ScaledDotProductFlashAttentionForCpuBackward0": row(
        _ATTENTION, **_qkv, attn_mask=_EXACT, logsumexp=_SMALL
    ),
    "ScaledDotProductFusedAttentionOverrideableBackward0": _cudnn,
    # what these three store has the positions before the heads: the formula is of the others
    "CudnnAttentionBackward0": row(
        _ATTENTION, **_roles, **_lengths, **_philox, attn_bias=_EXACT, logsumexp=_SMALL
    ),
    "EfficientAttentionBackward0": row(
        _ATTENTION,
        **_roles,
        **_philox,
        bias=_EXACT,
        cu_seqlens_q=_EXACT,
        cu_seqlens_k=_EXACT,
        logsumexp=_SMALL,
    ),
    "FlashAttentionBackward0": row(
        _ATTENTION, **_roles, **_lengths, **_rng, softmax_logsumexp=_SMALL
    ),
    "LogSoftmaxBackward0": _log_softmax,
    "MaskedSoftmaxBackward0": row(_SOFTMAX, result=_NONLINEAR, mask=_MASK),
    "SafeSoftmaxBackward0": _softmax,
    "SoftmaxBackward0": _softmax,
    "CudnnGridSamplerBackward0": row(_SAMPLER, self=_LINEAR, grid=_EXACT),
    "GridSampler2DBackward0": _sampler,
    "GridSampler2DCpuFallbackBackward0": _sampler,
    "GridSampler3DBackward0": _sampler,
}
