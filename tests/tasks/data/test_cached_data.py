"""The big data sets, where this machine has them in its cache: sizes and values that are known."""

from __future__ import annotations

import pytest
import torch

from actzip.tasks.data import cache, load


def cached(name: str) -> pytest.MarkDecorator:
    here = (cache.folder() / name).is_dir()
    return pytest.mark.skipif(not here, reason=f"{name} is not in the cache")


@cached("cifar10-1")
def test_cifar10() -> None:
    data = load("cifar10", "classify")
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    x, y = data.test.batch(torch.arange(10))
    assert [data.classes[label] for label in y] == [
        *("cat", "ship", "ship", "airplane", "frog"),
        *("frog", "automobile", "frog", "cat", "automobile"),
    ]
    assert x.shape == (10, 3, 32, 32)
    scale = data.train.scale  # type: ignore[attr-defined]
    assert (scale.mean / 255).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert (scale.deviation / 255).tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=1e-4)


@cached("fashion-mnist-1")
def test_fashion_mnist() -> None:
    data = load("fashion-mnist", "classify", limit=20_000)
    assert (len(data.train), len(data.test)) == (20_000, 10_000)
    assert (data.channels, data.side) == (1, 28)
    _, y = data.test.batch(torch.arange(5))
    assert [data.classes[label] for label in y] == [
        *("ankle boot", "pullover", "trouser", "trouser", "shirt")
    ]


@cached("movie-reviews-2")
def test_movie_reviews() -> None:
    data = load("movie-reviews", "text")
    assert (len(data.train), len(data.test)) == (19_923, 4_981)
    assert (data.vocabulary, data.length) == (20_002, 128)
    x, y = data.test.batch(torch.arange(len(data.test)))
    assert y.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert (x == 1).float().mean().item() < 0.05  # few words are unknown


@cached("rotten-tomatoes-2")
def test_rotten_tomatoes() -> None:
    data = load("rotten-tomatoes", "text", length=32)
    assert (len(data.train), len(data.test)) == (6_824, 1_706)


@cached("shakespeare-1")
def test_shakespeare() -> None:
    data = load("shakespeare", "lm", length=256)
    assert data.vocabulary == 84
    assert (len(data.train), len(data.test)) == (17_779, 1_975)


@cached("fashion-mnist-1")
def test_scenes_of_clothes() -> None:
    data = load("scenes", "detect")
    assert (len(data.train), len(data.test)) == (4_000, 1_000)
    x, boxes = data.test.batch(torch.arange(50))
    assert x.std().item() == pytest.approx(1, abs=0.1)
    assert torch.cat([one.labels for one in boxes]).unique().tolist() == list(range(10))
