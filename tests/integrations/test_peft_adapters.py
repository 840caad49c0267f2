"""LoRA as PEFT adds it: what frozen layers do not need is not kept, and casts cost nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import actzip

peft = pytest.importorskip("peft", reason="peft is not installed")

ROWS, WIDTH = 64, 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.adapted = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(nn.functional.gelu(self.adapted(self.norm(x)))).float().square().mean()


def adapted(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, target_modules=["adapted"])
    return peft.get_peft_model(Block().to(dtype), config)


def test_the_input_of_a_frozen_layer_is_not_kept() -> None:
    model = adapted(torch.float32)
    session = actzip.compress(model, "lossless", min_bytes=1024)
    model(torch.randn(ROWS, WIDTH)).backward()
    kept = {row.module.removeprefix("base_model.model.") for row in session.stats().sites}
    assert "adapted.lora_A.default" in kept
    assert not {"frozen", "adapted.base_layer"} & kept


@pytest.mark.parametrize("method", ["lossless", "actnn"])
def test_the_cast_to_the_adapters_dtype_costs_nothing(method: str) -> None:
    model = adapted(torch.bfloat16)
    weight = model.get_submodule("base_model.model.adapted.lora_A.default").weight
    assert weight.dtype is torch.float32
    session = actzip.compress(model, method, min_bytes=1024)
    below = torch.randn(ROWS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    model(below).backward()
    (row,) = [row for row in session.stats().sites if "lora_A" in row.module]
    assert row.raw_bytes == 4 * ROWS * WIDTH  # plain keeps a copy in fp32
    half = 2 * ROWS * WIDTH
    assert row.stored_bytes <= (half if method == "lossless" else half / 4), row
