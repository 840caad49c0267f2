"""The code on the pages in docs/integrations runs, with the frameworks it is about."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import actzip

PAGES = Path(__file__).parents[2] / "docs" / "integrations"


def _block(page: str, language: str = "python") -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    return str(found)


def _run(page: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(_block(page), page, "exec"), names)
    return names


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))


def test_every_page_is_tried_here_and_short() -> None:
    tried = Path(__file__).read_text()
    pages = [page for page in PAGES.glob("*.md") if page.name != "index.md"]
    listed = (PAGES / "index.md").read_text()
    for page in pages:
        assert f'"{page.name}"' in tried
        assert f"]({page.name})" in listed
        assert len(page.read_text().splitlines()) <= 20


def test_transformers(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")
    from tiny_trainer import Data, gpt, trainer

    given = {"model": gpt(), "args": trainer(tmp_path, max_steps=2).args, "data": Data()}
    made = _run("transformers.md", given)["trainer"]
    assert made.state.log_history[0]["actzip/ratio"] > 4


def test_trl(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")
    from tiny_trainer import trainer

    made = trainer(tmp_path, max_steps=2)
    plain = made.training_step

    def training_step(*args: Any, **kwargs: Any) -> Any:
        with made.maybe_activation_offload_context:
            return plain(*args, **kwargs)

    made.training_step = training_step
    _run("trl.md", {"trainer": made})
    assert made.maybe_activation_offload_context.session.step == 2


def test_axolotl() -> None:
    pytest.importorskip("pydantic", reason="axolotl's configuration needs pydantic")
    yaml = pytest.importorskip("yaml", reason="axolotl's configuration is in YAML")
    from actzip.integrations import axolotl

    config = yaml.safe_load(_block("axolotl.md", "yaml"))
    assert config.pop("plugins") == [f"{axolotl.__name__}.{axolotl.ActzipPlugin.__name__}"]
    given = axolotl.ActzipArgs(**config)
    assert given.model_dump() == config
    (callback,) = axolotl.ActzipPlugin().add_callbacks_post_trainer(given, None)
    assert (callback.method, callback.options, callback.noise_every) == ("actnn", {"bits": 3}, 1000)


def test_torchtitan(monkeypatch: pytest.MonkeyPatch) -> None:
    from test_torchtitan_policy import ActivationCheckpointing

    names = ("torchtitan", "torchtitan.distributed", "torchtitan.distributed.activation_checkpoint")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    found = sys.modules[names[-1]]
    monkeypatch.setattr(found, "ActivationCheckpointing", ActivationCheckpointing, raising=False)
    monkeypatch.delitem(sys.modules, "actzip.integrations.torchtitan", raising=False)
    config = _run("torchtitan.md", {})["activation_checkpoint"]
    model = _model()
    config.build(dump_folder="").apply(model)
    session = actzip.session_of(model)
    assert session is not None
    assert session.method == actzip.ActNN(bits=3)
    monkeypatch.delitem(sys.modules, "actzip.integrations.torchtitan")


@pytest.mark.filterwarnings("ignore:.*(many workers|number of training|val_data):UserWarning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    from test_lightning_callback import Digits, _data

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {**quiet, "accelerator": "cpu", "limit_val_batches": 0}
    options |= {"default_root_dir": tmp_path, "enable_checkpointing": False}
    given = {"module": Digits(), "data": _data(), "options": options}
    made = _run("lightning.md", given)["trainer"]
    assert made.callback_metrics["actzip/ratio"] > 4


def test_fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = pytest.importorskip("lightning.fabric", reason="lightning is not installed")
    monkeypatch.chdir(tmp_path)
    model = _model()
    adam = torch.optim.AdamW(model.parameters())
    made = fabric.Fabric(accelerator="cpu", devices=1)
    found = _run("fabric.md", {"fabric": made, "model": model, "optimizer": adam})
    session = found["session"]
    assert session is actzip.session_of(model)
    assert session.optimizer is adam
    found["model"](torch.randn(64, 64)).sum().backward()
    assert session.step == 1
    made.load("last.ckpt", found["state"])
    assert session.step == 0  # as it was saved


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = _model()
    adam = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64)), 64)
    accelerator = accelerate.Accelerator(cpu=True)
    given = {"accelerator": accelerator, "model": model, "optimizer": adam, "data": data}
    found = _run("accelerate.md", given)
    session = found["session"]
    assert session.optimizer is adam
    for (x,) in found["data"]:
        accelerator.backward(found["model"](x).sum())
    accelerator.save_state(str(tmp_path / "state"))
    saved = session.state_dict()
    session.load_state_dict({**saved, "step": 7})
    accelerator.load_state(str(tmp_path / "state"))
    assert session.step == saved["step"] == 1
