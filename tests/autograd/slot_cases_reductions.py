"""Cases of reductions and losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from slot_case import MAP, ROWS, case, const, ids, unary

# reductions
unary(
    {
        "sum": lambda x: x.sum(),
        "mean": lambda x: x.mean(0),
        "var": lambda x: x.var(0),
        "var_mean": lambda x: torch.var_mean(x, 0),
        "std": lambda x: x.std(0),
        "std_mean": lambda x: torch.std_mean(x, 0),
        "cumsum": lambda x: x.cumsum(0),
        "logsumexp": lambda x: x.logsumexp(0),
        "max": lambda x: x.max(),
        "max of dim": lambda x: x.max(0)[0],
        "min": lambda x: x.min(),
        "min of dim": lambda x: x.min(0)[0],
        "amax": lambda x: x.amax(0),
        "amin": lambda x: x.amin(0),
        "aminmax": lambda x: torch.aminmax(x, dim=0),
        "median": lambda x: x.median(),
        "median of dim": lambda x: x.median(0)[0],
        "nanmedian": lambda x: x.nanmedian(),
        "nanmedian of dim": lambda x: x.nanmedian(0)[0],
        "kthvalue": lambda x: x.kthvalue(3, 0)[0],
        "topk": lambda x: x.topk(30, 0)[0],
        "sort": lambda x: x.sort(0)[0],
        "sort stable": lambda x: x.sort(dim=0, stable=True)[0],
        "cummax": lambda x: x.cummax(0)[0],
        "cummin": lambda x: x.cummin(0)[0],
        "norm 2": lambda x: torch.linalg.vector_norm(x, 2, 0),
        "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 0),
        "norm 1": lambda x: torch.linalg.vector_norm(x, 1, 0),
        "norm 3": lambda x: torch.linalg.vector_norm(x, 3, 0),
        "frobenius norm": lambda x: torch.linalg.matrix_norm(x),
        "old norm": lambda x: torch._VF.norm(x, 2),
        "old norm of dim": lambda x: torch._VF.norm(x, 2, (0,), False),
        "old norm of a dtype": lambda x: torch._VF.norm(x, 2, dtype=x.dtype),
        "old norm of dim and dtype": lambda x: torch._VF.norm(x, 2, (0,), False, dtype=x.dtype),
    }
)
unary(
    {
        "prod": lambda x: x.prod(),
        "prod of dim": lambda x: x.prod(0),
        "cumprod": lambda x: x.cumprod(0),
        "logcumsumexp": lambda x: x.logcumsumexp(0),
        "mode": lambda x: x.mode(0)[0],
        "renorm": lambda x: x.renorm(2, 0, 1.0),
        "pdist": F.pdist,
        "fft": lambda x: torch.view_as_real(torch.fft.rfft(x)),
    },
    positive=True,
    half=False,
)
case("cdist", torch.cdist, ROWS, ROWS, half=False)
case("cdist 3", lambda a, b: torch.cdist(a, b, 3.0), ROWS, ROWS, half=False)
case("dist", torch.dist, ROWS, ROWS)

# losses
case("nll", lambda x: F.nll_loss(x, ids(48, 64)))
case("nll weighted", lambda x: F.nll_loss(x, ids(48, 64), const(48)(x), reduction="none"))
case("nll 2d", lambda x: F.nll_loss(x, ids(8, 4, 12, 12)), MAP, last=False)
case(
    "nll 2d weighted",
    lambda x: F.nll_loss(x, ids(8, 4, 12, 12), const(8)(x)),
    MAP,
    last=False,
)
case("cross entropy", lambda x: F.cross_entropy(x, ids(48, 64), label_smoothing=0.1))
case("cross entropy 2d", lambda x: F.cross_entropy(x, ids(8, 4, 12, 12)), MAP)
case("cross entropy with probabilities", lambda x: F.cross_entropy(x, const(64, 48)(x)))
case("bce", F.binary_cross_entropy, ROWS, ROWS, positive=True)
case(
    "bce weighted",
    lambda x: F.binary_cross_entropy(x, const(64, 48)(x), const(64, 48)(x)),
    positive=True,
)
case("bce with logits", F.binary_cross_entropy_with_logits, ROWS, ROWS)
case(
    "bce with logits weighted",
    lambda x: F.binary_cross_entropy_with_logits(
        x, const(64, 48)(x), const(64, 48)(x), pos_weight=const(64, 48)(x)
    ),
)
case("mse", F.mse_loss, ROWS, ROWS)
case("l1", F.l1_loss, ROWS, ROWS)
case("smooth l1", F.smooth_l1_loss, ROWS, ROWS)
case("huber", F.huber_loss, ROWS, ROWS)
case("soft margin", lambda x: F.soft_margin_loss(x, const(64, 48)(x)))
case(
    "multi margin",
    lambda x: F.multi_margin_loss(x, ids(48, 64), p=2, weight=const(48)(x)),
    half=False,
)
case("multilabel margin", lambda x: F.multilabel_margin_loss(x, ids(48, 64, 48)), half=False)
case("kl", lambda x, t: F.kl_div(x, t, reduction="sum"), ROWS, ROWS, positive=True)
case("triplet", F.triplet_margin_loss, ROWS, ROWS, ROWS)
case(
    "ctc",
    lambda x: F.ctc_loss(x.view(32, 2, 48).log_softmax(-1), ids(47, 2, 5) + 1, (32, 32), (5, 5)),
    half=False,
)
case(
    "ctc with tensors",
    lambda x: torch.ops.aten._ctc_loss.Tensor(
        x.view(32, 2, 48).log_softmax(-1),
        ids(47, 2, 5) + 1,
        torch.tensor([32, 32]),
        torch.tensor([5, 5]),
    )[0],
    half=False,
)
