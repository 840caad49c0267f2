"""In which layout tensors come back: as the backend has them, so that it makes no copies."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, nop
from torch._dynamo.backends.common import aot_autograd

import actzip
from actzip.compiled import installation
from compiled.nets import FINE, error, gradients, make


@pytest.mark.parametrize("inductor", [True, False])
def test_pictures_come_back_in_the_layout_of_inductors_convolutions(inductor: bool) -> None:
    """It has them in channels_last on a CPU, whatever the graph says; others go by the graph."""
    strides = []

    def keep(gm: torch.fx.GraphModule, _: object) -> Any:
        found = gm.graph.find_nodes(op="call_function", target=torch.ops.actzip.unpack.default)
        strides.extend(tuple(node.args[2]) for node in found)
        return make_boxed_func(gm.forward)

    parts = installation._partition(None, inductor=inductor)
    backend = aot_autograd(fw_compiler=nop, bw_compiler=keep, partition_fn=parts)
    model, x = make("cnn")
    exact = gradients(copy.deepcopy(model), x)
    with actzip.compress(model, FINE, min_bytes=0):
        ours = gradients(torch.compile(model, backend=backend), x)  # type: ignore[arg-type]
    assert 0 < error(ours, exact) < 3e-4
    pictures = [stride for stride in strides if len(stride) == 4]
    assert len(pictures) >= 3
    assert all((stride[1] == 1) == inductor for stride in pictures)
