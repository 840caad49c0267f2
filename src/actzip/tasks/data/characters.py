"""Text as characters: runs of a fixed length, each with the same run one character on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from actzip.tasks.data.contract import Data, DataError, Request

LENGTH = 128  #: characters of a sequence, unless another length is asked for
_TEST_SHARE = 0.1  #: the end of the text, never trained with


@dataclass(frozen=True, eq=False)
class Sequences:
    """Examples of lm: example i is the i-th run of `length` tokens; runs do not overlap."""

    tokens: Tensor  #: the whole text, int64 or smaller
    length: int
    count: int

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Tokens (n, length) and the tokens that follow each; with `rng`, runs begin anywhere.

        A training run is moved on by up to `length` places, so that each epoch cuts the text
        at other characters.
        """
        starts = indices * self.length
        if rng is not None:
            moved = torch.randint(self.length, (len(indices),), generator=rng)
            starts = (starts + moved).clamp(max=len(self.tokens) - self.length - 1)
        runs = self.tokens[starts[:, None] + torch.arange(self.length + 1)].long()
        return runs[:, :-1], runs[:, 1:]


def tokens(text: str) -> tuple[Tensor, int]:
    """Each character as its rank among those that occur, and how many occur."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    alphabet, ranks = np.unique(points, return_inverse=True)
    return torch.from_numpy(ranks.astype(np.int32)), len(alphabet)


def data(request: Request, text: Tensor, vocabulary: int) -> Data:
    """The first nine tenths of a text to train with, the rest to test with."""
    length = request.length or LENGTH
    cut = len(text) - round(len(text) * _TEST_SHARE)
    train = _part(request, text[:cut], "training", length)
    test = _part(request, text[cut:], "test", length)
    return Data(request.name, request.task, train, test, vocabulary=vocabulary, length=length)


def _part(request: Request, text: Tensor, name: str, length: int) -> Sequences:
    count = (len(text) - 1) // length
    if count < 1:
        raise DataError(
            f"{request.name}: the {name} part has {len(text)} characters, one sequence needs "
            f"{length + 1}; give a longer text or a smaller length"
        )
    return Sequences(text, length, min(count, request.limit or count))
