"""How many bits the codes of a dithered quantizer take, from a few values."""

from __future__ import annotations

import torch
from torch import Tensor

#: Where the dither is looked at, from |v| = 1/2 on: the codes of large steps differ there only.
_EDGES = (0, *(k / 256 for k in (1, 2, 3, 5, 7, 10, 14, 19, 25, 32, 40, 50, 64, 80, 100, 128)))
_CODES = 512


def conditional_entropy(t: Tensor, above: Tensor | None = None) -> float:
    """Mean bits of round(t + v) given v, for v uniform in ±1/2 and independent of these t; with
    `above`, which tells two sides apart, of both together."""
    if t.numel() == 0:
        return 0.0
    edges = torch.tensor(_EDGES, dtype=torch.float64, device=t.device)
    v = 0.5 - (edges[1:] + edges[:-1]) / 2
    v, share = torch.cat([v, -v]), (edges[1:] - edges[:-1]).repeat(2)
    finite = torch.where(t.isfinite(), t, torch.zeros_like(t))
    codes = torch.round(finite + v[:, None])
    scale = max(1.0, float(codes.abs().max()) / (_CODES // 2 - 1))
    if scale > 1:  # of so many codes that merging neighbours takes away the bits of their number
        codes = torch.round(codes / scale)
    codes = codes.long() + _CODES // 2
    if above is not None:
        codes = codes + _CODES * (~above).long()
    width = _CODES * 2
    rows = torch.arange(len(v), device=t.device)[:, None] * width
    counts = torch.bincount((codes + rows).view(-1), minlength=width * len(v)).view(-1, width)
    p = counts.double() / t.numel()
    logs = torch.where(counts > 0, p, torch.ones_like(p)).log2()
    entropy = -(p * logs).sum(1)
    # few values see too few of the codes (Miller and Madow)
    entropy += ((counts > 0).sum(1) - 1) / (2 * t.numel() * 0.6931471805599453)
    bits = torch.log2(torch.tensor(scale, dtype=torch.float64)).item()
    return float((entropy * share).sum()) + bits


def stored_bits(entropy: float) -> float:
    """What is stored for an element of so many bits, with tables and states, in large tensors."""
    return 1.015 * entropy + 0.003
