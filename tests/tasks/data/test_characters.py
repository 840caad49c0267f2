"""Sequences of characters: targets are the inputs one place on; the test part is never trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actzip.tasks.data import DataError, characters, load


def file(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_characters_are_numbered_in_their_order() -> None:
    tokens, count = characters.tokens("abca é")
    assert tokens.tolist() == [1, 2, 3, 1, 0, 4]
    assert count == 5


def test_targets_are_the_next_characters(tmp_path: Path) -> None:
    data = load(file(tmp_path, "0123456789" * 10), "lm", length=4)
    assert (data.vocabulary, data.length) == (10, 4)
    assert (len(data.train), len(data.test)) == (22, 2)
    x, y = data.train.batch(torch.tensor([0, 3]))
    assert x.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5]]
    assert y.tolist() == [[1, 2, 3, 4], [3, 4, 5, 6]]
    assert x.dtype == y.dtype == torch.int64


def test_training_cuts_the_text_elsewhere_and_never_reads_the_test_part(tmp_path: Path) -> None:
    # the last tenth is made of a character of its own
    data = load(file(tmp_path, "a" * 450 + "b" * 450 + "z" * 100), "lm", length=8)
    rng = torch.Generator().manual_seed(0)
    everything = torch.arange(len(data.train))
    drawn = [data.train.batch(everything, rng) for _ in range(20)]
    assert max(int(y.max()) for _, y in drawn) == 1
    assert not torch.equal(drawn[0][0], drawn[1][0])
    for x, y in drawn:
        assert torch.equal(x[:, 1:], y[:, :-1])
    assert data.test.batch(torch.tensor([0]))[0].unique().tolist() == [2]


def test_a_limit_is_the_most_sequences(tmp_path: Path) -> None:
    data = load(file(tmp_path, "ab" * 500), "lm", length=4, limit=3)
    assert (len(data.train), len(data.test)) == (3, 3)


def test_a_text_shorter_than_a_sequence_is_refused(tmp_path: Path) -> None:
    text = file(tmp_path, "x" * 200)
    with pytest.raises(DataError, match="the test part has 20 characters, one sequence needs 129"):
        load(text, "lm")
    assert len(load(text, "lm", length=19).test) == 1
    with pytest.raises(DataError, match="the test part has 20 characters, one sequence needs 21"):
        load(text, "lm", length=20)
    with pytest.raises(DataError, match="the training part has 0 characters"):
        load(file(tmp_path, ""), "lm")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not text in UTF-8"):
        load(file(tmp_path, b"\xff\xfe\x00\xd8"), "lm")
    with pytest.raises(DataError, match="is a folder; data for lm are one plain text file"):
        load(str(tmp_path), "lm")
