"""Attention: how an error in each of its stored operands bends its gradients, to first order.

With S = c·Q·Kᵀ, P = exp(S − lse) with the exact lse, and D = rowsum(gO∘O):

    gV = Pᵀ·gO,   gS = P∘(gO·Vᵀ − D),   gQ = c·gS·K,   gK = c·gSᵀ·Q.

All four operands are stored with errors of their own; this is the effect of one of them: w of an
element is the sum over all gradients of the squares of what it adds to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.control.backward import Backward, ErrorWeights, Formula, chunks, wide

_SCORES = 1 << 16  #: of P computed with together: attention never holds all of P, nor may we
_LONGEST = 1 << 26  #: scores of one head; above, nothing is told

_EXACT = 1 << 10  #: elements of a head up to which nothing is left to chance
_SIGNS = 8  #: random signs where it is

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

    def of_query(self) -> Tensor:
        """In gQ Σⱼ c²·gS·K·Kᵀ, in gK c·gSᵀ and c²·gS·K·Q, in gV c·P·K·gO."""
        q, k, p, gs = self._all()
        c, squares = self.scale, gs.square()
        w = torch.zeros_like(q)
        if self.wanted[0]:
            w = w + c**4 * self._mixed(gs, k, k)
        if self.wanted[1]:
            own = squares.sum(-1, keepdim=True) + 2 * c * q * (squares @ k)
            w = w + c**2 * (own + c**2 * _energy(q) * (squares @ k.square()))
        if self.wanted[2]:
            w = w + c**2 * _energy(self.outer) * (p.square() @ k.square())
        return w

    def of_key(self) -> Tensor:
        """As of the query, the other way round; heads that share it add up."""
        q, k, p, gs = self._all()
        c, turned = self.scale, gs.transpose(-1, -2)
        w = torch.zeros_like(self.operands["key"])
        if self.wanted[0]:
            squares = turned.square()
            own = squares.sum(-1, keepdim=True) + 2 * c * k * (squares @ q)
            w = w + c**2 * self._joined(own + c**2 * _energy(k) * (squares @ q.square()))
        if self.wanted[1]:
            w = w + c**4 * self._mixed(turned, q, q, joined=True)
        if self.wanted[2]:
            w = w + c**2 * self._mixed(p.transpose(-1, -2), q, self.outer, joined=True)
        return w

    def of_value(self) -> Tensor:
        """It enters through gO·Vᵀ: in gQ c·P·gO·K, in gK c·P·gO·Q."""
        q, k, p, _ = self._all()
        turned, c = p.transpose(-1, -2), self.scale
        w = torch.zeros_like(self.operands["value"])
        if self.wanted[0]:
            w = w + c**2 * self._joined(_energy(k) * (turned.square() @ self.outer.square()))
        if self.wanted[1]:
            w = w + c**2 * self._mixed(turned, self.outer, q, joined=True)
        return w

    def _all(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Q, K of the same heads, P and gS."""
        q, o = self.operands["query"], self.operands["output"]
        k, v = (self._spread(self.operands[name]) for name in ("key", "value"))
        p = self._scores(q, k)
        came = self.outer @ v.transpose(-1, -2) - (self.outer * o).sum(-1, keepdim=True)
        return q, k, p, p * came

    def _spread(self, t: Tensor) -> Tensor:
        shared = self.operands["query"].shape[1] // t.shape[1]
        return t.repeat_interleave(shared, 1) if shared > 1 else t

    def _joined(self, g: Tensor) -> Tensor:
        """What query heads that share a key head give adds up."""
        shared = g.shape[1] // self.operands["key"].shape[1]
        return g.unflatten(1, (-1, shared)).sum(2) if shared > 1 else g

    def _mixed(self, a: Tensor, b: Tensor, c: Tensor, joined: bool = False) -> Tensor:
        """Σₑ (Σⱼ a_ij·b_jd·c_je)² of each i and d.

        e is summed by some random signs: (Σₑ rₑ·…)² is that sum on average, with a deviation of at
        most √2 of it in each element, independent from head to head: a sum over h heads is off
        by at most √(2/(8·h)).
        """
        size = c.shape[-1]
        exact = a.shape[-2] * b.shape[-1] <= _EXACT or size <= _SIGNS
        if exact:
            signs = torch.eye(size, dtype=c.dtype, device=c.device)
        else:
            shape = (c.shape[0], self.operands["key"].shape[1], size, _SIGNS)
            generator = torch.Generator().manual_seed(c.numel())
            made = torch.randint(0, 2, shape, generator=generator).mul_(2).sub_(1)
            signs = self._spread(made.to(c.device, c.dtype) / math.sqrt(_SIGNS))
        probes = c @ signs
        product = (b.unsqueeze(-1) * probes.unsqueeze(-2)).flatten(-2)
        found = a @ product
        found = self._joined(found) if joined else found
        squares: Tensor = found.unflatten(-1, (b.shape[-1], -1)).square().sum(-1)
        return squares

    def of_output(self) -> Tensor:
        """w of O, which enters through D alone: gO²·(‖c·P·K‖² + c²·‖P‖²·‖Q‖²), row by row."""
        q, k = self.operands["query"], self.operands["key"]
        k = self._spread(k)
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


def _energy(t: Tensor) -> Tensor:
    return t.square().sum(-1, keepdim=True)


def _cut(t: Tensor, samples: slice, heads: slice, dtype: torch.dtype) -> Tensor:
    """That part of a tensor (B, H, …); one that is broadcast stays so."""
    t = t if t.shape[0] == 1 else t[samples]
    return (t if t.shape[1] == 1 else t[:, heads]).to(dtype)


_FORMULAS: dict[str, Callable[[_Part], Tensor]] = {
    "query": _Part.of_query,
    "key": _Part.of_key,
    "value": _Part.of_value,
    "output": _Part.of_output,
}


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
        # a product with random signs is larger than the scores of short sequences
        longest, width = max(q.shape[-2], k.shape[-2]), q.shape[-1]
        scores = max(scores, longest * width * max(16, _SIGNS) * (q.shape[1] // k.shape[1]))
        w = torch.empty(b.x.shape, dtype=wide(b.x), device=b.x.device)
        for i, j in chunks(q.shape[0], q.shape[0] * k.shape[1] * scores, _SCORES):
            for first, last in chunks(k.shape[1], (j - i) * k.shape[1] * scores, _SCORES):
                part, own = _part(b, wanted, slice(i, j), first, last)
                heads = own if slot in ("query", "output") else slice(first, last)
                w[i:j, heads] = _FORMULAS[slot](part)
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
