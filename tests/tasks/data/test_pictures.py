"""Pictures: normalised, cropped, flipped and resized as promised."""

from __future__ import annotations

import pytest
import torch

from actzip.tasks.data.pictures import Augment, Pictures, Scale, resize
from actzip.tasks.data.split import halves, some


def images(n: int = 6, channels: int = 3, side: int = 8) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1)
    return torch.randint(256, (n, channels, side, side), generator=rng, dtype=torch.uint8)


def test_the_scale_gives_each_channel_mean_zero_and_deviation_one() -> None:
    pictures = images(600)  # more than are measured at a time
    pictures[:, 1] //= 4
    scaled = Scale.of(pictures).apply(pictures)
    assert scaled.dtype == torch.float32
    for channel in range(3):
        assert scaled[:, channel].mean().item() == pytest.approx(0, abs=1e-4)
        assert scaled[:, channel].std().item() == pytest.approx(1, abs=1e-3)


def test_a_channel_without_contrast_gives_no_nan() -> None:
    pictures = torch.full((4, 1, 8, 8), 77, dtype=torch.uint8)
    assert Scale.of(pictures).apply(pictures).abs().max().item() == 0


@pytest.mark.parametrize("flip", [False, True])
def test_an_augmented_picture_is_a_window_of_the_padded_one(flip: bool) -> None:
    pictures = images(64)
    got = Augment(pad=2, flip=flip).apply(pictures, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(pictures, (2,) * 4)
    seen = set()
    for n in range(64):
        for top in range(5):
            for left in range(5):
                window = padded[n, :, top : top + 8, left : left + 8]
                if torch.equal(window, got[n]):
                    seen.add((n, top, left, False))
                if torch.equal(window.flip(-1), got[n]):
                    seen.add((n, top, left, True))
    assert sorted(n for n, *_ in seen) == list(range(64))
    assert {flipped for *_, flipped in seen} == ({False, True} if flip else {False})
    assert {top for _, top, *_ in seen} == {left for _, _, left, _ in seen} == set(range(5))


def test_the_same_rng_state_gives_the_same_batch_and_no_rng_the_plain_pictures() -> None:
    pictures = images()
    data = Pictures(pictures, torch.arange(6), Scale.of(pictures), 8, Augment(2, True))
    at = torch.tensor([4, 0])
    before = torch.random.get_rng_state()
    first, second = (data.batch(at, torch.Generator().manual_seed(5))[0] for _ in range(2))
    plain, labels = data.batch(at)
    assert torch.equal(first, second)
    assert not torch.equal(first, plain)
    assert torch.equal(plain, data.scale.apply(pictures[at]))
    assert labels.tolist() == [4, 0]
    assert torch.equal(before, torch.random.get_rng_state())


def test_pictures_are_resized_to_the_side() -> None:
    flat = torch.full((2, 3, 8, 8), 0.5)
    for side in (8, 5, 20):
        assert torch.allclose(resize(flat, side), torch.full((2, 3, side, side), 0.5))
    # smoothed where it shrinks: a checkerboard turns grey instead of black
    board = (torch.arange(16)[:, None] + torch.arange(16)).remainder(2).float()
    assert resize(board[None, None], 4).sub(0.5).abs().max().item() < 0.05


def test_a_limit_takes_that_many_that_the_seed_chose() -> None:
    assert some(5, None, 0).tolist() == [0, 1, 2, 3, 4]
    assert some(5, 9, 0).tolist() == [0, 1, 2, 3, 4]
    chosen = some(1000, 10, 0)
    assert len(set(chosen.tolist())) == 10
    assert torch.equal(chosen, some(1000, 10, 0))
    assert not torch.equal(chosen, some(1000, 10, 1))


@pytest.mark.parametrize(("count", "test"), [(2, 1), (3, 1), (10, 2), (1000, 200)])
def test_halves_hold_everything_once_and_both_something(count: int, test: int) -> None:
    train, held = halves(count, 3)
    assert len(held) == test
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(count))
