"""Bad options fail when they are given, and say what is allowed."""

from typing import Any

import pytest
import torch
from torch import nn

import actzip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "zip"}, "no method 'zip'; there are 'lossless'"),
        ({"method": 3}, "no method 3"),
        ({"bits": 2}, "'lossless' has no option bits; it takes no options"),
        ({"method": actzip.Lossless(), "bits": 2}, "give them to Lossless"),
        ({"method": "fixed", "linear": 2}, "takes a codec such as actzip.codecs.Group"),
        ({"min_bytes": -1}, "min_bytes must be a whole number of at least 0, got -1"),
        ({"min_bytes": 1.5}, "min_bytes must be a whole number"),
        ({"seed": "7"}, "seed must be a whole number"),
    ],
)
def test_a_wrong_option_is_a_value_error(options: dict[str, Any], message: str) -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(ValueError, match=message):
        actzip.compress(model, **options)
    assert not model._forward_pre_hooks


def test_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match=r"needs an nn\.Module, got builtin_function"):
        actzip.compress(torch.relu)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        actzip.compress(nn.Linear(4, 4), optimizer="sgd")  # type: ignore[arg-type]


def test_a_model_is_attached_once_and_can_be_attached_again_after_removal() -> None:
    model = nn.Linear(4, 4)
    session = actzip.compress(model)
    with pytest.raises(ValueError, match=r"remove\(\) first"):
        actzip.compress(model)
    session.remove()
    session.remove()
    actzip.compress(model).remove()
    assert not model._forward_hooks


def test_a_method_prints_as_the_code_that_makes_it() -> None:
    for method in (actzip.Lossless(), actzip.Fixed(linear=None)):
        names = {**vars(actzip.codecs), "Lossless": actzip.Lossless, "Fixed": actzip.Fixed}
        assert eval(repr(method), names) == method
