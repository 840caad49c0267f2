"""Attention: how an error in each of its stored operands bends its gradients, to first order.

With S = c·Q·Kᵀ, P = exp(S − lse) with the exact lse, and D = rowsum(gO∘O):

    gV = Pᵀ·gO,   gS = P∘(gO·Vᵀ − D),   gQ = c·gS·K,   gK = c·gSᵀ·Q.

All four operands are stored with errors of their own; this is the effect of one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from actzip.control.backward import Backward, ErrorWeights, Formula, chunks, wide
from actzip.control.curves import probe, probes

_SCORES = 1 << 17  #: of P computed with together: attention never holds all of P, nor may we
_LONGEST = 1 << 26  #: scores of one head; above, nothing is told

_OPERANDS = ("query", "key", "value", "output")


@dataclass(frozen=True)
class _Part:
    """Some samples and heads; query heads that share a key head come together."""

    operands: dict[str, Tensor]
    outer: Tensor
    lse: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    wanted: tuple[bool, bool, bool]  #: which of gQ, gK and gV are needed

    def gradients(self, slot: str, x: Tensor) -> Tensor:
        q, k, v, o = ({**self.operands, slot: x}[n] for n in _OPERANDS)
        shared = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(shared, 1) if shared > 1 else t for t in (k, v))
        p = self._scores(q, k)
        gs = p * (self.outer @ v.transpose(-1, -2) - (self.outer * o).sum(-1, keepdim=True))
        made = []
        if self.wanted[0]:
            made.append(self.scale * gs @ k)
        if self.wanted[1]:
            made.append(_joined(self.scale * gs.transpose(-1, -2) @ q, shared))
        if self.wanted[2]:
            made.append(_joined(p.transpose(-1, -2) @ self.outer, shared))
        return torch.cat([g.flatten() for g in made])

    def of_output(self) -> Tensor:
        """w of O, which enters through D alone: gO²·(‖c·P·K‖² + c²·‖P‖²·‖Q‖²), row by row."""
        q, k = self.operands["query"], self.operands["key"]
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        p = self._scores(q, k)
        row = torch.zeros_like(p[..., :1])
        if self.wanted[0]:
            row = row + (self.scale * p @ k).square().sum(-1, keepdim=True)
        if self.wanted[1]:
            squares = (p.square().sum(-1, keepdim=True), q.square().sum(-1, keepdim=True))
            row = row + self.scale**2 * squares[0] * squares[1]
        return self.outer.square() * row

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        s = self.scale * q @ k.transpose(-1, -2)
        if self.mask is not None:
            s = s + self.mask
        if self.causal:
            s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
        return (s - self.lse.unsqueeze(-1)).exp()


def _joined(g: Tensor, shared: int) -> Tensor:
    """The gradients of query heads that share a key head add up."""
    return g.unflatten(1, (-1, shared)).sum(2) if shared > 1 else g


def _cut(t: Tensor, samples: slice, heads: slice, dtype: torch.dtype) -> Tensor:
    """That part of a tensor (B, H, …); one that is broadcast stays so."""
    t = t if t.shape[0] == 1 else t[samples]
    return (t if t.shape[1] == 1 else t[:, heads]).to(dtype)


def attention(slot: str) -> Formula:
    """Of one of the four operands, whatever the backend: heads are the second dimension."""

    def formula(b: Backward) -> ErrorWeights:
        wanted = (b.gives(0), b.gives(1), b.gives(2))
        if not any(wanted):
            return ErrorWeights()
        if b.saved["dropout_p"]:
            raise ValueError("what attention's own dropout left out is not known")
        q, k = b.saved["query"], b.saved["key"]
        scores = q.shape[-2] * k.shape[-2] * (q.shape[1] // k.shape[1])
        if scores > _LONGEST:
            raise ValueError(f"sequences of {q.shape[-2]} by {k.shape[-2]} are too long to look at")
        generator = torch.Generator().manual_seed(b.x.numel())
        w = torch.empty(b.x.shape, dtype=wide(b.x), device=b.x.device)
        for i, j in chunks(q.shape[0], q.shape[0] * k.shape[1] * scores, _SCORES):
            for first, last in chunks(k.shape[1], (j - i) * k.shape[1] * scores, _SCORES):
                part, own = _part(b, wanted, slice(i, j), first, last)
                heads = own if slot in ("query", "output") else slice(first, last)
                if slot == "output":
                    w[i:j, heads] = part.of_output()
                    continue
                bent = partial(part.gradients, slot)
                w[i:j, heads] = probe(b.x[i:j, heads], bent, probes(b.x), generator)
        return ErrorWeights(input=w)

    return formula


def _part(
    b: Backward, wanted: tuple[bool, bool, bool], samples: slice, first: int, last: int
) -> tuple[_Part, slice]:
    """The key heads `first` to `last`, and the query heads that read them."""
    q, k, dtype = b.saved["query"], b.saved["key"], wide(b.x)
    shared = q.shape[1] // k.shape[1]
    own, others = slice(first * shared, last * shared), slice(first, last)
    operands = {
        name: _cut(b.saved[name], samples, own if name in ("query", "output") else others, dtype)
        for name in _OPERANDS
    }
    # CUDA's nodes pad the rows, or have one more dimension, or another name for it
    lse = b.saved["logsumexp"] if "logsumexp" in b.saved else b.saved["log_sumexp"]
    lse = lse.reshape(*q.shape[:2], -1)[..., : q.shape[-2]]
    # a row without any score to attend to has P = 0
    lse = _cut(lse.masked_fill(lse.isinf(), torch.inf), samples, own, dtype)
    mask = b.saved.get("attn_mask", b.saved.get("attn_bias"))
    if mask is not None:
        mask = _cut(mask.view((1,) * (4 - mask.dim()) + tuple(mask.shape)), samples, own, dtype)
    given = b.saved.get("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if given is None else float(given)
    outer = _cut(b.outer, samples, own, dtype)
    return _Part(operands, outer, lse, mask, bool(b.saved["is_causal"]), scale, wanted), own
