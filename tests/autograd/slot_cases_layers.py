"""Cases of layers: convolution, matmul, norms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from slot_case import CUBE, LINE, MAP, ROWS, SQUARE, case

# convolutions
for dims, (shape, conv, transposed) in {
    1: (LINE, F.conv1d, F.conv_transpose1d),
    2: (MAP, F.conv2d, F.conv_transpose2d),
    3: (CUBE, F.conv3d, F.conv_transpose3d),
}.items():
    c = shape[1]
    case(f"conv{dims}d", lambda x, w, f=conv: f(x, w, padding=1), shape, (6, c) + (3,) * dims)
    case(
        f"conv{dims}d grouped",
        lambda x, w, f=conv: f(x, w, groups=2),
        shape,
        (4, c // 2) + (3,) * dims,
    )
    case(
        f"conv{dims}d transposed",
        lambda x, w, f=transposed: f(x, w, stride=2),
        shape,
        (c, 3) + (2,) * dims,
    )
case(
    "conv2d depthwise dilated",
    lambda x, w: F.conv2d(x, w, groups=8, dilation=2, stride=2),
    MAP,
    (8, 1, 3, 3),
)
case("conv2d pointwise", F.conv2d, MAP, (16, 8, 1, 1))
case("conv_tbc", torch.conv_tbc, (20, 8, 16), (3, 16, 12), (12,), half=False)

aten = torch.ops.aten
case(
    "slow conv2d",
    lambda x, w: aten._slow_conv2d_forward(x, w, (3, 3), None, (1, 1), (0, 0)),
    MAP,
    (6, 8, 3, 3),
    half=False,
)
case(
    "slow conv3d",
    lambda x, w: aten.slow_conv3d_forward(x, w, (3, 3, 3), None, (1, 1, 1), (0, 0, 0)),
    CUBE,
    (6, 4, 3, 3, 3),
    half=False,
)
case(
    "slow conv2d dilated",
    lambda x, w: aten.slow_conv_dilated2d(x, w, (3, 3), None, (1, 1), (0, 0), (2, 2)),
    MAP,
    (6, 8, 3, 3),
    half=False,
)
case(
    "slow conv3d dilated",
    lambda x, w: aten.slow_conv_dilated3d(x, w, (3, 3, 3), None, (1, 1, 1), (0, 0, 0), (2, 2, 2)),
    CUBE,
    (6, 4, 3, 3, 3),
    half=False,
)
case(
    "slow conv2d transposed",
    lambda x, w: aten.slow_conv_transpose2d(x, w, (3, 3)),
    MAP,
    (8, 6, 3, 3),
    half=False,
)
case(
    "slow conv3d transposed",
    lambda x, w: aten.slow_conv_transpose3d(x, w, (3, 3, 3)),
    CUBE,
    (4, 6, 3, 3, 3),
    half=False,
)
case(
    "convolution",
    lambda x, w: torch._convolution(
        x, w, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1, False, False, False, False
    ),
    MAP,
    (6, 8, 3, 3),
)

# matmuls
case("linear", F.linear, ROWS, (32, 48), (32,))
case("linear without bias", F.linear, ROWS, (32, 48))
case("linear 3-D", F.linear, (4, 16, 48), (32, 48), (32,))
case("mm", torch.mm, ROWS, SQUARE)
case("matmul operator", lambda a, b: a @ b, (4, 16, 48), (4, 48, 24))
case("bmm", torch.bmm, (4, 16, 48), (4, 48, 24))
case("addmm", torch.addmm, ROWS, ROWS, SQUARE)
case("baddbmm", torch.baddbmm, (4, 16, 24), (4, 16, 48), (4, 48, 24))
case("addbmm", torch.addbmm, (16, 24), (4, 16, 48), (4, 48, 24))
case("mv", torch.mv, ROWS, (48,))
case("addmv", torch.addmv, (64,), ROWS, (48,))
case("dot", torch.dot, (2048,), (2048,))
case("vdot", torch.vdot, (2048,), (2048,))
case("outer", torch.outer, (1024,), (3,))
case("addr", torch.addr, (1024, 2), (1024,), (2,), half=False)
case("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), (4, 16, 48), (4, 24, 48))
case("bilinear", F.bilinear, (64, 20), (64, 24), (5, 20, 24), half=False)
case("cross", torch.linalg.cross, (1024, 3), (1024, 3))

# norms
for train in (True, False):
    word = "training" if train else "frozen"
    case(
        f"batch norm {word}",
        lambda x, w, b, t=train: F.batch_norm(
            x, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype), w, b, t
        ),
        MAP,
        (8,),
        (8,),
    )
    case(
        f"native batch norm legit {word}",
        lambda x, w, b, t=train: torch._native_batch_norm_legit(
            x, w, b, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype), t, 0.1, 1e-5
        )[0],
        MAP,
        (8,),
        (8,),
    )
case(
    "batch norm without statistics",
    lambda x, w, b: torch._native_batch_norm_legit(x, w, b, True, 0.1, 1e-5)[0],
    MAP,
    (8,),
    (8,),
)
case(
    "batch norm legit no training",
    lambda x, w, b: torch._native_batch_norm_legit_no_training(
        x, w, b, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype), 0.1, 1e-5
    )[0],
    MAP,
    (8,),
    (8,),
)
case(
    "batch norm with update",
    lambda x, w, b: torch.ops.aten._batch_norm_with_update(
        x, w, b, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype), 0.1, 1e-5
    )[0],
    MAP,
    (8,),
    (8,),
)
case(
    "batch norm no update",
    lambda x, w, b: torch.ops.aten._batch_norm_no_update(
        x, w, b, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype), 0.1, 1e-5
    )[0],
    MAP,
    (8,),
    (8,),
)
case("layer norm", lambda x, w, b: F.layer_norm(x, (48,), w, b), ROWS, (48,), (48,))
case("group norm", lambda x, w, b: F.group_norm(x, 4, w, b), MAP, (8,), (8,))
case("instance norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), MAP, (8,), (8,))
case("rms norm", lambda x, w: F.rms_norm(x, (48,), w), ROWS, (48,))
case("weight norm", lambda v, g: torch._weight_norm(v, g, 0), (64, 48), (64, 1))
case("local response norm", lambda x: F.local_response_norm(x, 3), MAP, positive=True, half=False)
case("normalize", F.normalize, ROWS)
case("cosine similarity", F.cosine_similarity, ROWS, ROWS)
