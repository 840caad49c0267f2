"""The plugin in a stand-in for axolotl that finds and calls plugins as its PluginManager does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import actzip

pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")
pytest.importorskip("pydantic", reason="axolotl's configuration needs pydantic")

from tiny_trainer import gpt, trainer

NAME = "actzip.integrations.axolotl.ActzipPlugin"


class BasePlugin:
    """The methods that axolotl calls on every plugin; most do nothing."""

    def register(self, cfg: Any) -> None: ...

    def post_model_load(self, cfg: Any, model: Any) -> None: ...

    def post_train_unload(self, cfg: Any) -> None: ...


class Config(dict[str, Any]):
    """As axolotl's DictDefault: what is not there is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def _load(name: str) -> Any:
    module, _, kind = name.rpartition(".")
    return getattr(importlib.import_module(module), kind)


@pytest.fixture
def _axolotl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("axolotl", "axolotl.integrations", "axolotl.integrations.base"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(
        sys.modules["axolotl.integrations.base"], "BasePlugin", BasePlugin, raising=False
    )
    sys.modules.pop("actzip.integrations.axolotl", None)
    yield
    sys.modules.pop("actzip.integrations.axolotl", None)


@pytest.mark.usefixtures("_axolotl")
def test_the_plugin_is_axolotls_and_trains_compressed(tmp_path: Path) -> None:
    plugin = _load(NAME)()
    assert isinstance(plugin, BasePlugin)
    given = {"actzip_method": "actnn", "actzip_options": {"bits": 3}, "actzip_noise_every": 0}
    arguments = _load(plugin.get_input_args())
    cfg = Config({**arguments(**given).model_dump(), "learning_rate": 1e-3})
    plugin.register(cfg)
    model = gpt()
    plugin.post_model_load(cfg, model)
    run = trainer(tmp_path, model=model, max_steps=2)
    (callback,) = plugin.add_callbacks_post_trainer(cfg, run)
    run.add_callback(callback)
    run.train()
    plugin.post_train_unload(cfg)
    assert callback.session.method == actzip.ActNN(bits=3)
    assert run.state.log_history[0]["actzip/ratio"] > 4
    assert "actzip/noise" not in run.state.log_history[0]


@pytest.mark.usefixtures("_axolotl")
def test_without_a_word_in_the_configuration_the_defaults_are_taken() -> None:
    plugin = _load(NAME)()
    (callback,) = plugin.add_callbacks_post_trainer(Config(), None)
    assert (callback.method, callback.options, callback.noise_every) == ("auto", {}, 500)


def test_a_wrong_option_is_refused_once_the_model_is_loaded() -> None:
    plugin = _load(NAME)()  # without axolotl it can be made as well
    with pytest.raises(ValueError, match="bits"):
        plugin.post_model_load(Config(actzip_options={"bits": 99}), torch.nn.Linear(2, 2))
