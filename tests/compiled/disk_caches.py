"""A process that compiles with inductor's caches on disk: `python disk_caches.py WIDTH METHOD …`.

Each method begins as the first session of a process does. Prints a line of JSON for each: the bytes
that the compiled forward saved, the error of its gradients, and how often a cache had the graph.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys

import torch
import torch._dynamo
from torch import nn

import actzip
from actzip import session
from actzip.codecs import Group

METHODS = {bits: actzip.Fixed(Group(int(bits)), Group(int(bits))) for bits in ("2", "4")}


def run(name: str, width: int) -> dict[str, float]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    session._NUMBERS = itertools.count(1)
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(width, width), nn.GELU()), torch.randn(128, width)
    model(x).square().mean().backward()
    exact = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    aside = contextlib.nullcontext()
    with aside if name == "plain" else actzip.compress(model, METHODS[name], min_bytes=0):
        y = torch.compile(model, fullgraph=True)(x)
        tensors = y.grad_fn.saved_tensors
        y.square().mean().backward()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages = {s.data_ptr(): s.nbytes() for t in tensors if (s := t.untyped_storage())}
    pairs = list(zip(model.parameters(), exact, strict=True))
    off = sum(float((p.grad - g).square().sum()) for p, g in pairs if p.grad is not None)
    caches = torch._dynamo.utils.counters
    return {
        "saved": sum(n for at, n in storages.items() if at not in own),
        "error": off / sum(float(g.square().sum()) for g in exact),
        "hits": caches["aot_autograd"]["autograd_cache_hit"],
        "misses": caches["aot_autograd"]["autograd_cache_miss"],
    }


if __name__ == "__main__":
    for method in sys.argv[2:]:
        print(json.dumps(run(method, int(sys.argv[1]))), flush=True)
