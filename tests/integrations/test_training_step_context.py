"""The context manager around a trainer's `training_step`, as TRL's trainers have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import actzip

pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")

import transformers
from tiny_trainer import trainer, weights

from actzip.integrations.trl import CompressedSteps


class _Trainer(transformers.Trainer):  # type: ignore[misc]
    """As SFTTrainer, DPOTrainer and others of TRL: one context for all steps."""

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self.maybe_activation_offload_context:
            return super().training_step(*args, **kwargs)


def _made(folder: Path) -> Any:
    made = trainer(folder, max_steps=3)
    made.__class__ = _Trainer
    return made


def test_every_step_inside_is_compressed_by_one_session(tmp_path: Path) -> None:
    run = _made(tmp_path)
    steps = CompressedSteps(run.model, "actnn", bits=3, optimizer=lambda: run.optimizer)
    run.maybe_activation_offload_context = steps
    assert steps.session is None
    run.train()
    assert steps.session is actzip.session_of(run.model)
    assert steps.session is not None
    assert steps.session.step == 3
    assert steps.session.totals().ratio > 4
    assert type(steps.session.optimizer) is torch.optim.AdamW
    steps.remove()
    assert actzip.session_of(run.model) is None


def test_lossless_steps_train_as_plain_ones(tmp_path: Path) -> None:
    plain = trainer(tmp_path, max_steps=3)
    plain.train()
    run = _made(tmp_path)
    run.maybe_activation_offload_context = CompressedSteps(run.model, "lossless")
    run.train()
    assert torch.equal(weights(plain), weights(run))


def test_a_wrong_option_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="bits"):
        CompressedSteps(torch.nn.Linear(2, 2), "actnn", bits=0)
