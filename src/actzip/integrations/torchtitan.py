"""Compression in the place of activation checkpointing, for torchtitan:

activation_checkpoint=CompressedAC.Config(method="actnn", options={"bits": 3})
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torchtitan.distributed.activation_checkpoint import ActivationCheckpointing

from actzip.instance import DEFAULT_METHOD, apply_to_instance, check


class CompressedAC(ActivationCheckpointing):
    """Nothing is computed again: what autograd saves is kept compressed."""

    @dataclass(kw_only=True, slots=True)
    class Config(ActivationCheckpointing.Config):
        method: str = DEFAULT_METHOD
        """As for `actzip.compress`."""

        options: dict[str, Any] = field(default_factory=dict)
        """Its other options."""

    def __init__(self, config: Config, dump_folder: str = ""):
        super().__init__(config, dump_folder)
        check(config.method, config.options)
        self._asked = config

    def apply(self, model: nn.Module) -> None:
        """Compress a model or, with a pipeline, this stage of it."""
        apply_to_instance(model, method=self._asked.method, **self._asked.options)
