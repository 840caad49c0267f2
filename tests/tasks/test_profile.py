"""A profile is exact: bytes add up, plain is PyTorch as it is, the model stays as it was."""

from __future__ import annotations

import torch
from torch import nn

from actzip.tasks.profile import compressed, plain
from actzip.tasks.profile_target import Subject


def subject() -> Subject:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3))
    x = torch.randn(32, 3, 48, 48)
    return Subject("net", model, lambda: model(x).square().mean())


def test_plain_keeps_what_it_keeps() -> None:
    found = plain(subject())
    assert (found.label, found.ratio) == ("plain", 1.0)
    assert found.raw_bytes == found.stored_bytes == sum(share.raw_bytes for share in found.modules)
    assert found.live_peak > found.raw_bytes / 2
    assert [name for name, _ in found.curve.phases] == ["forward", "backward"]
    assert max(nbytes for _, nbytes in found.curve.points) == found.live_peak


def test_a_method_keeps_less_and_has_a_lower_peak() -> None:
    net = subject()
    base, found = plain(net), compressed(net, "actnn:bits=2", "actnn", {"bits": 2})
    assert found.raw_bytes == base.raw_bytes
    assert found.ratio > 4
    for shares in (found.modules, found.ops):
        assert sum(share.stored_bytes for share in shares) == found.stored_bytes
        assert sum(share.raw_bytes for share in shares) == found.raw_bytes
    assert compressed(net, "division", "division", {}).live_peak < base.live_peak


def test_the_model_is_free_again_and_has_no_gradients() -> None:
    net = subject()
    for _ in range(2):
        compressed(net, "lossless", "lossless", {})
    assert all(each.grad is None for each in net.model.parameters())
