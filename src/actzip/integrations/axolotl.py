"""A plugin for axolotl:

plugins:
  - actzip.integrations.axolotl.ActzipPlugin
actzip_method: actnn
actzip_options: {bits: 3}
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from actzip.instance import DEFAULT_METHOD, check

try:
    from axolotl.integrations.base import BasePlugin
except ImportError:  # axolotl asks a plugin for its methods, not for its class
    BasePlugin = object


class ActzipArgs(BaseModel):
    """What the plugin adds to axolotl's configuration."""

    actzip_method: str | None = None  #: as for `actzip.compress`
    actzip_options: dict[str, Any] | None = None  #: its other options
    actzip_noise_every: int | None = None  #: steps between two measurements of the noise; 0: none


class ActzipPlugin(BasePlugin):
    """Adds `integrations.transformers.ActzipCallback` to the trainer."""

    def get_input_args(self) -> str:
        return f"{__name__}.{ActzipArgs.__name__}"

    def post_model_load(self, cfg: Any, model: Any) -> None:
        """The model and its adapters are there: refuse a wrong option before the data is read."""
        check(*_asked(cfg))

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[Any]:
        from actzip.integrations.transformers import ActzipCallback

        method, options = _asked(cfg)
        every = getattr(cfg, "actzip_noise_every", None)
        noise = {} if every is None else {"noise_every": every}
        return [ActzipCallback(method, **noise, **options)]


def _asked(cfg: Any) -> tuple[str, dict[str, Any]]:
    method = getattr(cfg, "actzip_method", None) or DEFAULT_METHOD
    return method, dict(getattr(cfg, "actzip_options", None) or {})
