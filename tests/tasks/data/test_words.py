"""Texts become rows of word ids; only training texts decide the vocabulary."""

from __future__ import annotations

import pytest
import torch

from actzip.tasks.data import words
from actzip.tasks.data.words import Corpus


def test_words_are_lower_case_without_markup() -> None:
    assert words.words("It's GREAT!<br /><br />Été 2,5 stars_.") == [
        *("it's", "great", "!", "été", "2", "5", "stars", ".")
    ]


def test_ids_go_by_frequency_in_the_training_texts() -> None:
    corpus = Corpus.of(["b a b", "a b c", "z z z z z b"], [0, 1, 1])
    train, test, vocabulary = words.encode(corpus, torch.tensor([0, 1]), torch.tensor([2]), 5)
    assert vocabulary == 5  # padding, unknown, b, a, c
    assert train.batch(torch.tensor([0, 1]))[0].tolist() == [[2, 3, 2, 0, 0], [3, 2, 4, 0, 0]]
    tokens, labels = test.batch(torch.tensor([0]))
    assert tokens.tolist() == [[1, 1, 1, 1, 2]]  # the last five words, z is unknown
    assert labels.tolist() == [1]
    assert tokens.dtype == labels.dtype == torch.int64


def test_rare_words_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "FREQUENT", 2)
    corpus = Corpus.of(["a a a b b c", "c b"], [0, 1])
    everything = torch.tensor([0, 1])
    train, _, vocabulary = words.encode(corpus, everything, everything, 6)
    assert vocabulary == 4
    assert train.tokens.tolist() == [[2, 2, 2, 3, 3, 1], [1, 3, 0, 0, 0, 0]]


def test_a_text_without_words_is_all_padding() -> None:
    corpus = Corpus.of(["a", "***", "b"], [0, 1, 0])
    everything = torch.arange(3)
    train, _, _ = words.encode(corpus, everything, everything, 3)
    assert train.tokens.tolist() == [[2, 0, 0], [0, 0, 0], [3, 0, 0]]
