"""A tiny language model, its data, and a trainer of transformers for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as t
from torch import Tensor


def gpt(dropout: float = 0.1) -> t.GPT2LMHeadModel:
    torch.manual_seed(1)
    return t.GPT2LMHeadModel(
        t.GPT2Config(
            vocab_size=50,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=32,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
        )
    )


class Data(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __init__(self, size: int = 24):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(1, 50, (size, 32), generator=generator)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def trainer(folder: Path, *callbacks: Any, model: Any = None, **arguments: Any) -> t.Trainer:
    """Six steps in two epochs, unless the arguments say otherwise."""
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **arguments,
    }
    return t.Trainer(
        model=gpt() if model is None else model,
        args=t.TrainingArguments(**given),
        train_dataset=Data(),
        eval_dataset=Data(8),
        callbacks=list(callbacks),
    )


def weights(trained: Any) -> Tensor:
    return torch.cat([p.detach().flatten().float() for p in trained.model.parameters()])
