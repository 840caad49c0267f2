"""Fine-tuning a pretrained encoder, all its weights or LoRA's, with every way to train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_pretrained import LAYERS, WIDTH, provide
from typer.testing import CliRunner

from actzip.cli import app
from actzip.tasks import engine
from actzip.tasks.checkpointing import recompute_blocks
from actzip.tasks.config import make
from actzip.tasks.data.pretrained_files import folder
from actzip.tasks.models.pretrained import Pretrained

pytest.importorskip("transformers")
pytest.importorskip("peft")


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    provide(tmp_path, monkeypatch)
    path = tmp_path / "own.csv"
    path.write_text("text,label\n" + "a good films.,1\na bad film,0\n" * 24)
    return path


def run(table: Path, method: str, lora: int = 0, **more: Any) -> engine.Result:
    sizes = {"lora": lora, "dropout": 0.0} if lora else {"dropout": 0.0}
    asked = {"epochs": 6, "batch": 8, "length": 8, "rate": 0.01, **more}
    return engine.run(
        make("text", data=str(table), model="minilm", method=method, sizes=sizes, **asked)
    )


def test_the_head_is_new_and_all_weights_are_trained() -> None:
    torch.manual_seed(0)
    model = Pretrained(folder("minilm"), classes=3)
    assert all(each.requires_grad for each in model.parameters())
    assert all(each.training for each in model.modules())
    ids = torch.tensor([[2, 4, 6, 3], [2, 5, 3, 0]])
    model.eval()
    assert model(ids, ids != 0).shape == (2, 3)
    longer = torch.cat([ids, torch.zeros(2, 3, dtype=torch.long)], 1)
    torch.testing.assert_close(model(ids, ids != 0), model(longer, longer != 0))


def test_lora_trains_two_thin_matrices_beside_each_linear_and_the_head() -> None:
    model = Pretrained(folder("minilm"), classes=2, lora=4)
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    linears = LAYERS * 6  # query, key, value and three more in each layer
    thin = [name for name in trained if "lora_" in name]
    assert len(thin) == 2 * linears
    assert len(trained) == 2 * linears + 2
    assert {each.shape for name, each in trained.items() if "lora_A" in name} == {
        (4, WIDTH),
        (4, 2 * WIDTH),
    }


@pytest.mark.parametrize("lora", [0, 4])
def test_lossless_and_checkpoint_train_as_plain_does(table: Path, lora: int) -> None:
    plain = run(table, "plain", lora, epochs=2)
    lossless = run(table, "lossless", lora, epochs=2)
    recomputed = run(table, "checkpoint", lora, epochs=2)
    assert lossless.losses == plain.losses
    assert recomputed.losses == plain.losses
    assert recomputed.cost.held_bytes < 0.5 * plain.cost.held_bytes
    assert lossless.cost.stored_bytes < plain.cost.stored_bytes


@pytest.mark.parametrize("lora", [0, 4])
def test_recomputed_layers_keep_their_inputs_only(lora: int) -> None:
    model = Pretrained(folder("minilm"), classes=2, lora=lora)
    ids = torch.randint(4, 10, (8, 48))

    def saved() -> int:
        found: list[int] = []
        pack = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: found.append(tensor.nbytes), lambda none: none
        )
        with pack:
            model(ids, ids > 0)
        return sum(found)

    before = saved()
    assert recompute_blocks(model) == LAYERS
    assert saved() < 0.3 * before


@pytest.mark.parametrize("lora", [0, 4])
def test_two_bits_follow_the_loss_of_plain(table: Path, lora: int) -> None:
    plain = run(table, "plain", lora, epochs=3)
    found = run(table, "actnn", lora, epochs=3, options={"bits": 2})
    assert found.losses != plain.losses
    assert found.losses == pytest.approx(plain.losses, abs=0.1)
    assert found.cost.ratio > 2.5


def test_the_command_line_takes_a_rank_and_advises_its_rate(table: Path, tmp_path: Path) -> None:
    command = ["train", "--task", "text", "--model", "minilm", "--lora", "2", "--method", "plain"]
    command += ["--data", str(table), "--batch", "8", "--length", "8", "--json"]
    found = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "run")])
    assert found.exit_code == 0, found.output
    config = json.loads(found.stdout)["results"][0]["config"]
    assert config["sizes"] == {"lora": 2}
    full = make("text", model="minilm")
    assert config["rate"] == 10 * full.rate


def test_a_rank_is_refused_for_models_without_adapters() -> None:
    with pytest.raises(ValueError, match=r"unknown size of the model 'lstm': 'lora'"):
        make("text", model="lstm", sizes={"lora": 2})
