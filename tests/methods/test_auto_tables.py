"""`auto` where counting codes would make the host wait: tables of the last look, equal values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import actzip
from actzip.methods.auto_policy import AutoPolicy
from stepping import MODELS


def _trained(passes: int) -> tuple[list[Tensor], list[dict[str, bytes]]]:
    torch.manual_seed(0)
    net, x, y = MODELS["resnet"]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    tables = []
    with actzip.compress(net, "auto", optimizer=optimizer, min_bytes=4 * 4096) as session:
        policy = session._policy
        assert isinstance(policy, AutoPolicy)
        for _ in range(passes):
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            made = policy._codes._made
            tables.append({name: m.code.table for name, m in made.items()})
    return [p.detach().clone() for p in net.parameters()], tables


def test_a_table_is_counted_once_for_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, none = _trained(9)
    assert not any(any(each.values()) for each in none), "on a CPU counting is free"
    late = SimpleNamespace(reading_is_free=lambda device: False)
    monkeypatch.setattr("actzip.methods.auto_codes.unsettled", late)
    found, tables = _trained(9)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert tables[-1]
    assert all(tables[-1].values())
    assert tables[6] == tables[7] == tables[8], "no look in these passes"
    assert tables[5] != tables[6]
