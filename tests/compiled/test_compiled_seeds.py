"""The rounding of a compiled graph is drawn anew in each run, captured or not."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.codecs import Group
from actzip.codecs.serial import to_words
from actzip.compiled import ops
from compiled.nets import error, gradients

FOUR = actzip.Fixed(Group(4), Group(4))


def _differ(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return not all(torch.equal(a[n], g) for n, g in b.items())


@pytest.mark.parametrize("mode", ["aot_eager", "inductor", "reduce-overhead"])
def test_two_runs_of_one_graph_round_differently(mode: str) -> None:
    model, x = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)), torch.randn(64, 64)
    exact = gradients(model, x)
    how = {"mode": mode} if mode == "reduce-overhead" else {"backend": mode}
    with actzip.compress(model, FOUR, min_bytes=0, seed=3) as session:
        call = torch.compile(model, fullgraph=True, **how)  # type: ignore[call-overload]
        first, second = gradients(call, x), gradients(call, x)
        numbers = session.metrics()
        assert (numbers["compiled_graphs"], numbers["recompiled_graphs"]) == (1, 0)
        state = session.state_dict()
        third = gradients(call, x)
        session.load_state_dict(state)
        assert not _differ(gradients(call, x), third)  # seed and step say how
    assert _differ(first, second)
    assert _differ(second, third)
    assert all(0 < error(ours, exact) < 0.01 for ours in (first, second, third))


def test_the_seed_of_a_packed_tensor_is_a_tensor() -> None:
    arguments = {a.name: str(a.type) for a in torch.ops.actzip.pack.default._schema.arguments}
    assert arguments["seed"] == "Tensor"
    x, codec = torch.randn(512), Group(4)
    said = {"session": "", "codec": to_words(codec).decode(), "signs": False}
    site = json.dumps({**said, "visible": ops.visible(codec, x.shape, x.dtype)})
    packed = [torch.ops.actzip.pack(x, torch.tensor([seed]), site, 0) for seed in (1, 2, 1)]
    assert torch.equal(packed[0], packed[2])
    assert not torch.equal(packed[0], packed[1])


def test_cuda_graphs_do_not_capture_what_draws_the_seed() -> None:
    """Inductor runs ops with this tag between the parts that it captures."""
    for name in ("begin", "pack", "unpack", "unpack_mask"):
        assert torch.Tag.cudagraph_unsafe in getattr(torch.ops.actzip, name).default.tags
