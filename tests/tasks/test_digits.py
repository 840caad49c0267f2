"""The embedded digits: all there, the same split for a seed, normalised by the training part."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from actzip.tasks import digits


def test_every_digit_is_in_exactly_one_part() -> None:
    split = digits.load(side=8)
    assert split.train_x.shape == (digits.TRAIN, 1, 8, 8)
    assert split.test_x.shape == (digits.TEST, 1, 8, 8)
    labels = torch.cat([split.train_y, split.test_y])
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_training_images_have_mean_zero_and_deviation_one() -> None:
    images = digits.load(side=8).train_x
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std().item() == pytest.approx(1, abs=1e-5)


def test_a_seed_decides_the_split() -> None:
    assert torch.equal(digits.load(8, seed=3).train_x, digits.load(8, seed=3).train_x)
    assert not torch.equal(digits.load(8, seed=3).train_y, digits.load(8, seed=4).train_y)


def test_loading_leaves_the_users_random_numbers_alone() -> None:
    before = torch.random.get_rng_state()
    digits.load(8)
    assert torch.equal(before, torch.random.get_rng_state())


def test_images_are_enlarged_to_the_side() -> None:
    assert digits.load(side=16).test_x.shape == (digits.TEST, 1, 16, 16)
    with pytest.raises(ValueError, match="side=4"):
        digits.load(side=4)


def test_without_scikit_learn_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'actzip\[bench\]'"):
        digits.load(8)
