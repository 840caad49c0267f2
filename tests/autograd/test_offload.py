"""Payloads in host memory. No second device is at hand here: what can be tried is the way."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

import actzip
from actzip.autograd.offload import Offloaded, bring, send
from actzip.codecs import Group
from trained import batch, resnet


def test_a_payload_that_is_in_host_memory_stays_as_it_is() -> None:
    payload = Group(2).encode(torch.randn(1000), seed=3)
    assert send(payload) is payload
    assert bring(payload) is payload


def test_what_comes_back_is_the_payload_that_went() -> None:
    x = torch.randn(1000)
    payload = Group(2).encode(x, seed=3)
    away = Offloaded(**payload.__getstate__(), home=torch.device("cpu"))
    assert away.nbytes == payload.nbytes
    back = bring(away)
    assert type(back) is type(payload)
    assert torch.equal(Group(2).decode(back), Group(2).decode(payload))
    assert replace(back, seed=4).seed == 4


def test_swapping_changes_no_bit() -> None:
    gradients = []
    for level in ("L3", "L4"):
        model = resnet()
        with actzip.compress(model, "actnn", level=level, min_bytes=0) as session:
            for i in range(3):
                model.zero_grad()
                x, y = batch(32 * i)
                F.cross_entropy(model(x), y).backward()
            assert session._policy.swap == (level == "L4")
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)
