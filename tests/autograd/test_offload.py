"""Payloads in host memory, on a simulated device whose copies are done when they are waited for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import actzip
from actzip.autograd.offload import bring, save_on_host, send
from actzip.codecs import Group, unsettled
from actzip.memory import host_copies
from actzip.memory.host_copies import Lane
from simulated import simulate
from trained import batch, resnet


def test_a_payload_of_the_cpu_stays_as_it_is() -> None:
    payload = Group(2).encode(torch.randn(1000), seed=3)
    before = payload.data
    assert send(payload, Lane()) is payload
    assert payload.data is before
    assert bring(payload) is payload


def test_what_comes_back_is_the_payload_that_went(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1000)
    payload = Group(2).encode(x, seed=3)
    values, data, nbytes = Group(2).decode(payload), payload.data.clone(), payload.nbytes
    device = simulate(monkeypatch)
    away = send(payload, Lane())
    assert away.nbytes == nbytes
    for _ in range(2):  # a graph that is kept asks again
        back = bring(away)
        assert torch.equal(back.data, data)
        assert torch.equal(Group(2).decode(back), values)
    assert device.calls["synchronize"] == 0


def test_memory_is_told_of_every_stream_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    device = simulate(monkeypatch)
    source = torch.randn(100)
    away = Lane().send(source)
    (side,) = host_copies._SIDES.values()
    assert device.recorded == [(source.data_ptr(), side)]
    assert side.waited_for == [device.main]  # what computes it comes first
    back = away.get()
    assert device.recorded[-1] == (back.data_ptr(), device.main)


def test_backward_finds_what_comes_next_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch)
    monkeypatch.setattr(host_copies, "AHEAD", 2 * 400)
    lane, sources = Lane(), [torch.randn(100) for _ in range(6)]
    sent = [lane.send(x) for x in sources]
    under_way = []
    for i in reversed(range(6)):
        assert torch.equal(sent[i].get(), sources[i])
        under_way.append([each._back is not None for each in sent])
        del sent[i]
    assert under_way[0] == [False, False, False, True, True, False]  # two are as much as AHEAD
    assert under_way[1] == [False, False, True, True, False]
    assert under_way[-1] == [False]


def test_a_word_that_has_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4, 1024)
    x[1:3] = float("inf")  # more raw groups than there is room for
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: False)
    monkeypatch.setattr("actzip.kernels.transfers.Transfer.arrived", lambda self: False)
    payload = Group(2).encode(x)
    simulate(monkeypatch)
    away = send(payload, Lane())
    assert away.doubt is not None
    assert torch.equal(away.codec.decode(bring(away)), x)
    assert away.doubt is not None
    unsettled.settle()  # it keeps its tensor now
    assert torch.equal(away.codec.decode(bring(away)), x)


def test_swapping_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = []
    for level in ("L3", "L4"):
        model = resnet()
        if level == "L4":
            device = simulate(monkeypatch)
        with actzip.compress(model, "actnn", level=level, min_bytes=0) as session:
            for i in range(3):
                model.zero_grad()
                x, y = batch(32 * i)
                F.cross_entropy(model(x), y).backward()
            assert session._policy.swap == (level == "L4")
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(device.recorded) > 20
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)


def test_everything_that_autograd_saves_can_wait_on_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), torch.randn(32, 64)
    net(x).square().sum().backward()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad()
    device = simulate(monkeypatch)
    with save_on_host(min_bytes=0):
        loss = net(x).square().sum()
    loss.backward()
    assert device.recorded
    for p, grad in zip(net.parameters(), expected, strict=True):
        assert p.grad is not None
        assert torch.equal(p.grad, grad)
