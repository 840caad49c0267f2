"""Cases of gathering and scattering."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from slot_case import ROWS, case, coin, ids
from torch import Tensor


def assign(x: Tensor, values: Tensor) -> Tensor:
    x = x.clone()
    x[ids(64, 2000)] = values
    return x


# indexing
case("gather", lambda x: x.gather(0, ids(64, 64, 48)))
case("take_along_dim", lambda x: x.take_along_dim(ids(64, 64, 48), 0))
case("take", lambda x: x.take(ids(64 * 48, 2000)))
case("index_select", lambda x: x.index_select(0, ids(64, 2000)))
case("index", lambda x: x[ids(64, 2000)])
case("index by lists", lambda x: x[ids(64, 2000), ids(48, 2000)])
case("index by a mask", lambda x: x[coin(64, 48)])
case("index unsafe", lambda x: torch.ops.aten._unsafe_index(x, [ids(64, 2000)]))
case(
    "index masked",
    lambda x: torch.ops.aten._unsafe_masked_index(
        x, coin(64, 48), [ids(64, 64, 48), ids(48, 64, 48)], 0.0
    ),
    half=False,
)
case(
    "index masked put",
    lambda x, v: torch.ops.aten._unsafe_masked_index_put_accumulate(
        x, coin(64, 48), [ids(64, 64, 48), ids(48, 64, 48)], v
    ),
    ROWS,
    ROWS,
    half=False,
)
case("index_put", lambda x, v: x.index_put((ids(64, 2000),), v), ROWS, (2000, 48))
case(
    "index_put unsafe",
    lambda x, v: torch.ops.aten._unsafe_index_put(x, [ids(64, 2000)], v),
    ROWS,
    (2000, 48),
)
case("index_put by setitem", assign, ROWS, (2000, 48))
case(
    "index_put impl",
    lambda x, v: torch._index_put_impl_(x.clone(), [ids(64, 2000)], v),
    ROWS,
    (2000, 48),
)
case("index_add", lambda x, v: x.index_add(0, ids(64, 2000), v), ROWS, (2000, 48))
case("index_copy", lambda x, v: x.index_copy(0, torch.randperm(64), v), ROWS, ROWS)
case("index_fill", lambda x: x.index_fill(0, ids(64, 2000), 1.0))
case("index_fill by a tensor", lambda x, v: x.index_fill(0, ids(64, 2000), v), ROWS, ())
case(
    "index_reduce",
    lambda x, v: x.index_reduce(0, ids(64, 2000), v, "amax"),
    ROWS,
    (2000, 48),
    half=False,
)
case("put", lambda x, v: x.put(torch.randperm(3072)[:2000], v), ROWS, (2000,))
case("scatter", lambda x, v: x.scatter(0, ids(64, 64, 48), v), ROWS, ROWS)
case("scatter a value", lambda x: x.scatter(0, ids(64, 64, 48), 0.5))
case("scatter_add", lambda x, v: x.scatter_add(0, ids(64, 64, 48), v), ROWS, ROWS)
for how in ("sum", "mean", "amax", "amin", "prod"):
    case(
        f"scatter_reduce {how}",
        lambda x, v, h=how: x.scatter_reduce(0, ids(64, 64, 48), v, h),
        ROWS,
        ROWS,
        positive=True,
        half=False,
    )
case(
    "segment_reduce by offsets",
    lambda x: torch.segment_reduce(x, "max", offsets=torch.tensor([0, 60, 64]), axis=0),
    half=False,
)
case(
    "segment_reduce",
    lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([60, 4]), axis=0),
    half=False,
)
case("masked_select", lambda x: x.masked_select(coin(64, 48)))
case("masked_scatter", lambda x, v: x.masked_scatter(coin(64, 48), v), ROWS, ROWS)
case("embedding", lambda w: F.embedding(ids(64, 2000), w))
for mode in ("sum", "mean", "max"):
    case(
        f"embedding bag {mode}",
        lambda w, m=mode: F.embedding_bag(ids(64, 400, 5), w, mode=m),
        half=False,
    )
case(
    "embedding bag weighted",
    lambda w, s: F.embedding_bag(ids(64, 400, 5), w, mode="sum", per_sample_weights=s),
    ROWS,
    (400, 5),
    half=False,
)
