"""Texts as the pieces that a pretrained model's own tokenizer cuts them into."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actzip.tasks.data import DataError, load, pieces, pretrained_files
from actzip.tasks.data.contract import Request
from tasks.tiny_pretrained import VOCABULARY, provide

pytest.importorskip("transformers")


def _pieces(row: torch.Tensor) -> str:
    return " ".join(VOCABULARY[number] for number in row.tolist())


def test_a_row_is_begin_last_pieces_end_and_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide(tmp_path, monkeypatch)
    corpus = pieces.corpus("minilm", ["A GOOD film.", "bad<br />films", "good " * 9, ""], range(4))
    assert corpus.labels.tolist() == [0, 1, 2, 3]
    request = Request("x", "text", length=6, tokens="minilm")
    made = pieces.data(request, corpus, torch.arange(3), torch.tensor([3]), ("a", "b", "c", "d"))
    rows, labels = made.train.batch(torch.arange(3))
    assert _pieces(rows[0]) == "[CLS] a good film . [SEP]"
    assert _pieces(rows[1]) == "[CLS] bad film ##s [SEP] [PAD]"
    assert _pieces(rows[2]) == "[CLS] good good good good [SEP]"
    assert labels.tolist() == [0, 1, 2]
    empty, _ = made.test.batch(torch.arange(1))
    assert _pieces(empty[0]) == "[CLS] [SEP] [PAD] [PAD] [PAD] [PAD]"
    assert (made.vocabulary, made.length) == (len(VOCABULARY), 6)


def test_a_table_of_ones_own_is_cut_by_the_models_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide(tmp_path, monkeypatch)
    table = tmp_path / "own.csv"
    table.write_text("text,label\n" + "good films,1\nbad film,0\n" * 8)
    made = load(str(table), "text", tokens="minilm", length=8)
    rows, labels = made.train.batch(torch.arange(len(made.train)))
    said = {(_pieces(row), label) for row, label in zip(rows, labels.tolist(), strict=True)}
    assert said == {
        ("[CLS] good film ##s [SEP] [PAD] [PAD] [PAD]", 1),
        ("[CLS] bad film [SEP] [PAD] [PAD] [PAD] [PAD]", 0),
    }


def test_a_length_without_room_for_a_piece_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide(tmp_path, monkeypatch)
    corpus = pieces.corpus("minilm", ["good"], [0])
    request = Request("x", "text", length=2, tokens="minilm")
    with pytest.raises(DataError, match="length must be above 2 for minilm, got 2"):
        pieces.data(request, corpus, torch.arange(1), torch.arange(1), ("a",))


def test_a_models_files_are_unpacked_once_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = provide(tmp_path, monkeypatch)
    place = pretrained_files.folder("minilm")
    assert place == cache / "minilm-1"
    assert {each.name for each in place.iterdir()} >= {"model.safetensors", "tokenizer.json"}
    assert "hidden_size" in (place / "config.json").read_text()  # not that of 1_Pooling
    assert [each.name for each in cache.iterdir()] == ["minilm-1"]  # nothing left over
    monkeypatch.setattr("actzip.tasks.data.packages.obtain", None)
    assert pretrained_files.folder("minilm") == place


def test_what_is_not_installed_is_named_with_the_command() -> None:
    with pytest.raises(ImportError, match=r"needs not_there; pip install 'actzip\[finetune\]'"):
        pretrained_files.require("torch", "not_there")
