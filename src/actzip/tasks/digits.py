"""The handwritten digits that come inside scikit-learn: real images without a download."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

CLASSES = 10
CHANNELS = 1
TRAIN = 1437  #: images to train with
TEST = 360  #: images to test with


@dataclass(frozen=True)
class Split:
    """Images (n, 1, side, side), normalised by the training images, and their labels."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def load(side: int = 32, seed: int = 0) -> Split:
    """All digits, enlarged from 8×8 to `side`; the same seed gives the same split."""
    if side < 8:
        raise ValueError(f"digits are 8×8 and are only enlarged, got side={side}; use 8 or more")
    images, labels = read(seed)
    images = images.float()
    mean, deviation = images[:TRAIN].mean(), images[:TRAIN].std()
    images = (images - mean) / deviation
    if side != 8:
        images = F.interpolate(images, size=(side, side), mode="bilinear", align_corners=False)
    return Split(images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])


def read(seed: int = 0) -> tuple[Tensor, Tensor]:
    """All digits as uint8 (n, 1, 8, 8) from 0 to 16, and their labels, in the seed's order.

    The first `TRAIN` are to train with, the others to test with.
    """
    require()
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(seed))
    images = torch.from_numpy(pixels).to(torch.uint8).view(-1, 1, 8, 8)
    return images[order], torch.from_numpy(labels).long()[order]


def require() -> None:
    """Raise an ImportError that names the command, when the digits cannot be had."""
    if importlib.util.find_spec("sklearn") is None:
        raise ImportError(
            "the digits come with scikit-learn, which is not installed; "
            "pip install 'actzip[bench]' brings it"
        )
