"""The integrations in axolotl, torchtitan and TRL themselves, where they are installed.

They are no part of the development environment: axolotl asks for GPUs' packages, torchtitan for a
nightly torch. docs/compatibility.md says with which versions this was run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import actzip

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
)


def test_axolotls_plugin_manager_finds_and_calls_the_plugin() -> None:
    base = pytest.importorskip("axolotl.integrations.base", exc_type=ImportError)
    from axolotl.utils.dict import DictDefault

    manager = base.PluginManager.get_instance()
    manager.register("actzip.integrations.axolotl.ActzipPlugin")
    assert manager.get_input_args() == ["actzip.integrations.axolotl.ActzipArgs"]
    (plugin,) = manager.plugins.values()
    assert isinstance(plugin, base.BasePlugin)
    cfg = DictDefault({"actzip_method": "actnn", "actzip_options": {"bits": 3}})
    manager.post_model_load(cfg, nn.Linear(2, 2))
    (callback,) = manager.add_callbacks_post_trainer(cfg, None)
    assert (callback.method, callback.options) == ("actnn", {"bits": 3})
    wrong = DictDefault({"actzip_method": "actnn", "actzip_options": {"bits": 99}})
    with pytest.raises(ValueError, match="bits"):
        plugin.post_model_load(wrong, nn.Linear(2, 2))


def test_torchtitans_configuration_builds_the_policy() -> None:
    pytest.importorskip("torchtitan.distributed.activation_checkpoint", exc_type=ImportError)
    from actzip.integrations.torchtitan import CompressedAC

    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    config = CompressedAC.Config(method="actnn", options={"bits": 3})
    config.build(dump_folder="").apply(model)
    model(torch.randn(64, 64)).sum().backward()
    session = actzip.session_of(model)
    assert session is not None
    assert session.method == actzip.ActNN(bits=3)
    assert session.stats().ratio > 4


def test_trls_trainer_steps_inside_the_context(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    from tiny_trainer import gpt
    from trl import SFTConfig, SFTTrainer

    from actzip.integrations.trl import CompressedSteps

    rows = [{"input_ids": torch.randint(1, 30, (32,)).tolist()} for _ in range(8)]
    options: dict[str, Any] = {"max_steps": 2, "report_to": [], "use_cpu": True, "bf16": False}
    made = SFTTrainer(
        gpt(),
        SFTConfig(str(tmp_path), per_device_train_batch_size=4, dataset_kwargs=None, **options),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=_tokenizer(),
    )
    steps = CompressedSteps(made.model, "actnn", bits=3, optimizer=lambda: made.optimizer)
    made.maybe_activation_offload_context = steps
    made.train()
    assert steps.session is not None
    assert steps.session.step == 2
    assert steps.session.totals().ratio > 3


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(("<pad>", "<eos>", *map(str, range(60))))}
    made = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<eos>"
    )
