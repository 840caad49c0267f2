"""The data sets that have a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from actzip.tasks import digits
from actzip.tasks.data import (
    characters,
    cifar,
    dense,
    fashion,
    installed,
    pieces,
    reviews,
    shakespeare,
)
from actzip.tasks.data.compose import Composed
from actzip.tasks.data.contract import Data, Request
from actzip.tasks.data.pictures import Augment, Pictures, Scale
from actzip.tasks.data.split import halves, some

_DIGITS = tuple(str(digit) for digit in range(digits.CLASSES))


@dataclass(frozen=True)
class Builtin:
    """A data set with a name: what it is, what it serves, how it is opened."""

    about: str
    tasks: tuple[str, ...]
    open: Callable[[Request], Data]
    network: bool = True  #: whether the first use fetches a package


def _digits(request: Request) -> Data:
    return _pictures(request, _read_digits(request.seed), _DIGITS, request.side or 32, Augment())


def _read_digits(seed: int) -> dict[str, Tensor]:
    images, labels = digits.read(seed)
    cut = digits.TRAIN
    return {
        "train_x": images[:cut],
        "train_y": labels[:cut],
        "test_x": images[cut:],
        "test_y": labels[cut:],
    }


def _cifar(request: Request, parts: dict[str, Tensor] | None = None) -> Data:
    augment = Augment(pad=4, flip=True)
    return _pictures(request, parts or cifar.read(), cifar.CLASSES, request.side or 32, augment)


def _fashion(request: Request, parts: dict[str, Tensor] | None = None) -> Data:
    augment = Augment(pad=2, flip=True)
    return _pictures(request, parts or fashion.read(), fashion.CLASSES, request.side or 28, augment)


def published(request: Request, path: Path) -> Data | None:
    """CIFAR-10 or Fashion-MNIST in a folder, in the files that they were published in."""
    found = installed.at(path)
    if found is None:
        return None
    name, parts = found
    return (_cifar if name == installed.CIFAR10 else _fashion)(request, parts)


def _pictures(
    request: Request, parts: dict[str, Tensor], names: tuple[str, ...], side: int, augment: Augment
) -> Data:
    scale = Scale.of(parts["train_x"])

    def split(part: str) -> Pictures:
        images, labels = parts[f"{part}_x"], parts[f"{part}_y"]
        if request.limit is not None:
            chosen = some(len(images), request.limit, request.seed)
            images, labels = images[chosen], labels[chosen]
        return Pictures(images, labels, scale, side, augment)

    channels = parts["train_x"].shape[1]
    train, test = split("train"), split("test")
    return Data(request.name, request.task, train, test, names, channels=channels, side=side)


def _reviews(request: Request) -> Data:
    corpus = reviews.read(request.name, request.tokens)
    train, test = halves(len(corpus.labels), request.seed)
    return pieces.data(request, corpus, train, test, reviews.CLASSES)


def _shakespeare(request: Request) -> Data:
    text = shakespeare.read()
    return characters.data(request, text, int(text.max()) + 1)


def _scenes(request: Request) -> Data:
    return _compose(request, fashion.read(), fashion.CLASSES, _Composition(4000, 1000, 24, True))


def _digit_scenes(request: Request) -> Data:
    parts = _read_digits(request.seed)
    for part in ("train_x", "test_x"):
        parts[part] = (parts[part].float() * (255 / 16)).to(torch.uint8)
    # a mirrored 2 is no 2: digits are not flipped
    return _compose(request, parts, _DIGITS, _Composition(1000, 200, 96, False))


@dataclass(frozen=True)
class _Composition:
    train: int  #: scenes
    test: int
    visible: int
    flip: bool


def _compose(
    request: Request, parts: dict[str, Tensor], names: tuple[str, ...], how: _Composition
) -> Data:
    side = request.side or 96

    def scenes(name: str, count: int, number: int) -> Composed:
        objects, labels = parts[f"{name}_x"], parts[f"{name}_y"]
        count = min(count, request.limit or count)
        return Composed(objects, labels, count, side, request.seed, number, how.visible)

    train, test = scenes("train", how.train, 0), scenes("test", how.test, 1)
    scale = dense.measure(train, 64)
    classes = names if request.task == "detect" else ("background", *names)
    return dense.data(request, train, test, scale, how.flip, classes, side)


BUILTIN: dict[str, Builtin] = {
    "digits": Builtin(
        "1 797 handwritten digits, grey, 8×8, from scikit-learn", ("classify",), _digits, False
    ),
    "fashion-mnist": Builtin(
        "60 000 + 10 000 pictures of clothes, grey, 28×28", ("classify",), _fashion
    ),
    "cifar10": Builtin("50 000 + 10 000 colour pictures, 32×32", ("classify",), _cifar),
    "movie-reviews": Builtin("24 904 movie reviews of IMDB, good or bad", ("text",), _reviews),
    "rotten-tomatoes": Builtin(
        "8 530 one-sentence reviews of Rotten Tomatoes, good or bad", ("text",), _reviews
    ),
    "shakespeare": Builtin("the works of Shakespeare, by characters", ("lm",), _shakespeare),
    "scenes": Builtin(
        "4 000 + 1 000 scenes of several Fashion-MNIST objects, colour, 96×96",
        ("detect", "segment"),
        _scenes,
    ),
    "digit-scenes": Builtin(
        "1 000 + 200 scenes of several handwritten digits, colour, 96×96",
        ("detect", "segment"),
        _digit_scenes,
        False,
    ),
}
