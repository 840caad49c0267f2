"""A config is complete and right, or refused when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from actzip.tasks.catalogue import TASKS
from actzip.tasks.config import Config, make


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_defaults_for_every_model(task: str) -> None:
    kind = TASKS[task]
    assert make(task).model == kind.model
    assert make(task).data == kind.data
    for model, known in kind.models.items():
        config = make(task, model=model)
        assert config.optimizer == known.recipe.optimizer
        assert config.epochs == known.recipe.epochs


def test_what_is_given_wins_and_none_means_not_given() -> None:
    config = make("classify", epochs=3, batch=None, sizes={"width": 8})
    assert (config.epochs, config.batch, config.sizes) == (3, 64, {"width": 8})


def test_another_optimizer_brings_its_own_rate() -> None:
    assert make("classify", model="resnet20").rate == 0.1
    assert make("classify", model="resnet20", optimizer="adam").rate == 1e-3
    assert make("classify", model="vit", optimizer="sgd").rate == 0.1
    assert make("classify", model="resnet20", optimizer="adam", rate=0.5).rate == 0.5


def test_a_config_is_rebuilt_from_its_plain_values() -> None:
    config = make("lm", method="lossless", sizes={"width": 32}, seed=4)
    assert Config(**config.plain()) == config


def test_bf16_is_a_method_and_a_precision() -> None:
    assert make(method="bf16").autocast
    assert make(precision="bf16").autocast
    assert not make().autocast


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "paint"}, "unknown task: 'paint'; allowed are classify, detect"),
        ({"method": "zip"}, "unknown method: 'zip'; allowed are plain, checkpoint, bf16"),
        ({"model": "unet"}, "model of the task 'classify': 'unet'; allowed are resnet8"),
        ({"optimizer": "lion"}, "allowed are sgd, adam, adamw"),
        ({"schedule": "steps"}, "allowed are onecycle, cosine, constant"),
        ({"precision": "fp8"}, "allowed are fp32, bf16"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"batch": 2.5}, "batch must be a whole number of at least 1, got 2.5"),
        ({"threads": True}, "threads must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"rate": 0.0}, "rate must be a number of at least 1e-12, got 0.0"),
        ({"rate": float("nan")}, "rate must be a number"),
        ({"decay": -1.0}, "decay must be a number of at least 0, got -1.0"),
        ({"batch": 10, "accumulate": 4}, "10 cannot be cut into accumulate=4 equal parts"),
        ({"sizes": {"depth": 3}}, "unknown size of the model 'resnet20': 'depth'; allowed are"),
        ({"options": {"bits": 2}}, "the method 'plain' takes no options, got bits"),
        ({"method": "lossless", "options": {"bits": 2}}, "'lossless' has no option bits"),
        ({"method": "fixed", "options": {"linear": [2]}}, "options are numbers and words"),
        ({"color": 1}, "a config has no color"),
    ],
)
def test_a_wrong_config_is_refused_when_made(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**wrong)
