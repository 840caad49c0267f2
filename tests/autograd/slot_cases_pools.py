"""Cases of pooling, padding, resizing and dropout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from slot_case import CUBE, LINE, MAP, ROWS, case, const

# pools, pads and resizing
case("max pool 1d", lambda x: F.max_pool1d(x, 2), LINE)
case("max pool 2d", lambda x: F.max_pool2d(x, 3, 2, 1), MAP)
case("max pool 3d", lambda x: F.max_pool3d(x, 2), CUBE)
case("adaptive max pool 1d", lambda x: F.adaptive_max_pool1d(x, 16), LINE)
case("adaptive max pool 2d", lambda x: F.adaptive_max_pool2d(x, 6), MAP)
case("adaptive max pool 3d", lambda x: F.adaptive_max_pool3d(x, 4), CUBE)
case("average pool 1d", lambda x: F.avg_pool1d(x, 2), LINE)
case("average pool 2d", lambda x: F.avg_pool2d(x, 3, 2, 1), MAP)
case("average pool 3d", lambda x: F.avg_pool3d(x, 2), CUBE, half=False)
case("adaptive average pool 1d", lambda x: F.adaptive_avg_pool1d(x, 16), LINE)
case("adaptive average pool 2d", lambda x: F.adaptive_avg_pool2d(x, 5), MAP)
case("global average pool", lambda x: F.adaptive_avg_pool2d(x, 1), MAP)
case("adaptive average pool 3d", lambda x: F.adaptive_avg_pool3d(x, 3), CUBE)
case("lp pool", lambda x: F.lp_pool2d(x, 2, 2), MAP, positive=True)
case(
    "fractional max pool 2d",
    lambda x: F.fractional_max_pool2d(x, 2, 6, _random_samples=const(4, 8, 2)(x)),
    MAP,
    half=False,
)
case(
    "fractional max pool 3d",
    lambda x: F.fractional_max_pool3d(x, 2, 4, _random_samples=const(2, 4, 3)(x)),
    CUBE,
    half=False,
)
case(
    "max unpool 2d",
    lambda x: F.max_unpool2d(
        x, F.max_pool2d(torch.rand(4, 8, 24, 24), 2, return_indices=True)[1], 2
    ),
    MAP,
    half=False,
)
case(
    "max unpool 3d",
    lambda x: F.max_unpool3d(
        x, F.max_pool3d(torch.rand(2, 4, 16, 16, 16), 2, return_indices=True)[1], 2
    ),
    CUBE,
    half=False,
)
for mode in ("reflect", "replicate", "constant", "circular"):
    for shape, pad in ((LINE, (2, 3)), (MAP, (1, 2, 3, 1)), (CUBE, (1, 2, 1, 1, 2, 1))):
        case(f"pad {mode} {len(shape) - 2}d", lambda x, p=pad, m=mode: F.pad(x, p, m), shape)
for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
    case(f"interpolate {mode}", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), MAP)
case(
    "interpolate antialias",
    lambda x: F.interpolate(x, size=(7, 7), mode="bilinear", antialias=True),
    MAP,
    half=False,
)
case("interpolate linear", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), LINE)
case("interpolate trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), CUBE)
for mode in ("bilinear", "nearest", "bicubic"):
    case(
        f"grid sample {mode}",
        lambda x, g, m=mode: F.grid_sample(x, g.tanh(), mode=m, align_corners=False),
        MAP,
        (4, 12, 12, 2),
        half=False,
    )
case(
    "grid sample 3d",
    lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
    CUBE,
    (2, 8, 8, 8, 3),
    half=False,
)
case(
    "grid sample fallback",
    lambda x, g: torch._grid_sampler_2d_cpu_fallback(x.float(), g.float(), 0, 0, False),
    MAP,
    (4, 12, 12, 2),
    half=False,
)
case("pixel shuffle", lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), MAP)
case("channel shuffle", lambda x: F.channel_shuffle(x, 4), MAP)
case("unfold and fold", lambda x: F.fold(F.unfold(x, 3), (12, 12), 3), MAP)
case("cat", lambda a, b: torch.cat([a, b], 1), ROWS, ROWS)
case("stack", lambda a, b: torch.stack([a, b]), ROWS, ROWS)
case("roll, flip, tril", lambda x: x.roll(3, 0).flip(1).tril())
case("repeat", lambda x: x.repeat(2, 1).repeat_interleave(2, 0))
case(
    "views",
    lambda x: (
        x.view(-1)[::2].unflatten(0, (32, 48)).t().unsqueeze(0).expand(2, 48, 32),
        x.chunk(2)[0],
        x.unbind()[0],
        x.split([60, 4])[0],
        x.diagonal(),
        x.unfold(0, 4, 2),
    ),
)

# dropout
case("dropout", lambda x: F.dropout(x, 0.3))
case("dropout in place", lambda x: F.dropout(x.clone(), 0.3, inplace=True))
case("dropout of everything", lambda x: F.dropout(x, 1.0))
case("alpha dropout", lambda x: F.alpha_dropout(x, 0.3, training=True))
case("feature dropout", lambda x: F.dropout2d(x, 0.3), (64, 32, 4, 4))
case(
    "feature alpha dropout",
    lambda x: F.feature_alpha_dropout(x, 0.3, training=True),
    (64, 32, 4, 4),
)
case("native dropout", lambda x: torch.native_dropout(x, 0.3, True)[0])
