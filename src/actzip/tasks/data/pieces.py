"""Texts as the pieces of words that a pretrained model was trained on, by its own tokenizer.

A text is a row of a fixed length: the mark that begins it, its last pieces, the mark that ends
it, then padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from actzip.tasks.data import words
from actzip.tasks.data.contract import PADDING, WORDS, Data, DataError, Request
from actzip.tasks.data.pretrained_files import folder, require
from actzip.tasks.data.words import LENGTH, Corpus, Texts

_MARKS = 2  #: pieces of a row that are no text
_AT_ONCE = 1000  #: texts that the tokenizer is given


def corpus(tokens: str, texts: Iterable[str], labels: Iterable[int]) -> Corpus:
    """The texts as words, or as the pieces of the model that `tokens` names."""
    if tokens == WORDS:
        return Corpus.of(texts, labels)
    tokenizer = _tokenizer(tokens)
    waiting = [text.replace("<br />", " ") for text in texts]  # as IMDB ends its lines
    flat: list[Tensor] = []
    starts = [0]
    for first in range(0, len(waiting), _AT_ONCE):
        encoded = tokenizer.encode_batch(
            waiting[first : first + _AT_ONCE], add_special_tokens=False
        )
        for each in encoded:
            flat.append(torch.tensor(each.ids, dtype=torch.int32))
            starts.append(starts[-1] + len(each.ids))
    return Corpus(
        torch.cat(flat) if flat else torch.zeros(0, dtype=torch.int32),
        torch.tensor(starts),
        torch.tensor(list(labels), dtype=torch.int64),
    )


def data(
    request: Request, corpus: Corpus, train: Tensor, test: Tensor, classes: tuple[str, ...]
) -> Data:
    """The texts of both splits, of the length and number that were asked for."""
    if request.tokens == WORDS:
        return words.data(request, corpus, train, test, classes)
    length = request.length or LENGTH
    if length <= _MARKS:
        raise DataError(f"length must be above {_MARKS} for {request.tokens}, got {length}")
    tokenizer = _tokenizer(request.tokens)
    begin, end = (tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))

    def split(texts: Tensor) -> Texts:
        rows = torch.full((len(texts), length), PADDING, dtype=torch.int32)
        rows[:, 0] = begin
        rows[:, 1:-1] = corpus.rows(texts, length - _MARKS, PADDING).int()
        spans = (corpus.starts[texts + 1] - corpus.starts[texts]).clamp(max=length - _MARKS)
        rows[torch.arange(len(texts)), spans + 1] = end
        return Texts(rows, corpus.labels[texts])

    return Data(
        request.name,
        request.task,
        split(train[: request.limit]),
        split(test[: request.limit]),
        classes,
        vocabulary=tokenizer.get_vocab_size(),
        length=length,
    )


def _tokenizer(name: str) -> Any:
    require("tokenizers")
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(folder(name) / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found
