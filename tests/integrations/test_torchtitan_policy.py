"""The policy in a stand-in for torchtitan, whose configurations build what they belong to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import actzip


class ActivationCheckpointing:
    """As in torchtitan: the nested Config has slots and keywords only, and build() makes us."""

    @dataclass(kw_only=True, slots=True)
    class Config:
        _owner: ClassVar[type | None] = None
        preserve_rng_state: bool = True

        def build(self, **kwargs: Any) -> Any:
            assert self._owner is not None
            return self._owner(config=replace(self), **kwargs)

    def __init_subclass__(cls) -> None:
        assert hasattr(cls.Config, "__slots__")
        cls.Config._owner = cls

    def __init__(self, config: Config, dump_folder: str = ""):
        self.config = config
        self.dump_folder = dump_folder

    def apply(self, model: nn.Module) -> None:
        raise NotImplementedError


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    names = ("torchtitan", "torchtitan.distributed", "torchtitan.distributed.activation_checkpoint")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(
        sys.modules[names[-1]], "ActivationCheckpointing", ActivationCheckpointing, raising=False
    )
    sys.modules.pop("actzip.integrations.torchtitan", None)
    from actzip.integrations.torchtitan import CompressedAC

    yield CompressedAC
    sys.modules.pop("actzip.integrations.torchtitan", None)


def test_a_built_policy_compresses_the_model_that_it_is_applied_to(policy: Any) -> None:
    config = policy.Config(method="actnn", options={"bits": 3})
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    built = config.build(dump_folder="somewhere")
    assert isinstance(built, ActivationCheckpointing)
    built.apply(model)
    model(torch.randn(64, 64)).sum().backward()
    session = actzip.session_of(model)
    assert session is not None
    assert session.method == actzip.ActNN(bits=3)
    assert session.totals().ratio > 4


def test_the_defaults_build_and_a_wrong_option_does_not(policy: Any) -> None:
    assert policy.Config().build(dump_folder="").config.method == "auto"
    with pytest.raises(ValueError, match="bits"):
        policy.Config(options={"bits": 99}).build(dump_folder="")
