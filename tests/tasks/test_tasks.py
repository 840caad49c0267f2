"""Every model that a task offers is built for its data and trains a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_pretrained
import torch
from tiny_data import tiny

from actzip.tasks.catalogue import TASKS

#: sizes for pictures of 8×8 and for speed; the names are checked by the model itself
SMALLER: dict[str, dict[str, Any]] = {
    "resnet18": {"width": 8},
    "resnet50": {"width": 8},
    "resnet152": {"width": 4},
    "vgg": {"width": 8, "stages": 3, "hidden": 16},
    "densenet": {"growth": 4, "layers": 2},
    "vit": {"patch": 2, "width": 16, "depth": 1, "heads": 2},
    "fcos": {"width": 8, "depth": 1, "pyramid": 16, "tower": 1},
    "unet": {"width": 8},
}


TOO_LARGE = ("densenet161",)  # for such pictures; test_models.py has it


@pytest.mark.parametrize(
    ("task", "model"),
    [(name, m) for name, task in TASKS.items() for m in task.models if m not in TOO_LARGE],
)
def test_every_model_is_built_for_the_data_and_its_loss_has_gradients(
    task: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model == "minilm":
        tiny_pretrained.provide(tmp_path, monkeypatch)
    torch.manual_seed(0)
    kind, data = TASKS[task], tiny(task)
    assert set(SMALLER.get(model, {})) <= set(kind.models[model].sizes)
    made = kind.build(model, data, SMALLER.get(model, {})).train()
    inputs, targets = data.train.batch(torch.arange(8))
    loss = kind.loss(made, inputs, targets)
    assert loss.dim() == 0
    assert loss.isfinite()
    loss.backward()
    for path, parameter in made.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.isfinite().all(), path
    made.eval()
    with torch.no_grad():
        found = kind.evaluate(made, [data.test.batch(torch.arange(8))], len(data.classes))
    assert kind.metric in found


def test_a_model_for_larger_pictures_says_so() -> None:
    with pytest.raises(ValueError, match="a side of 32 or more, got 8"):
        TASKS["classify"].build("densenet161", tiny("classify"), {})


@pytest.mark.parametrize("task", TASKS)
def test_a_tasks_defaults_are_among_what_it_knows(task: str) -> None:
    kind = TASKS[task]
    assert kind.name == task
    assert kind.model in kind.models
    assert kind.better in ("higher", "lower")
