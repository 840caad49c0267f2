"""The bytes of a pass by module and op: they add up, and plain and stored stand at one place."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import actzip
from actzip.report.modules import SMALL, by_module, by_op


def stats(method: str) -> actzip.Stats:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
    )
    session = actzip.compress(model, method=method)
    model(torch.randn(4, 3, 16, 16)).sum().backward()
    session.remove()
    return session.stats()


@pytest.mark.parametrize("method", ["lossless", "fixed", "actnn", "division"])
def test_shares_add_up_to_the_whole_pass(method: str) -> None:
    found = stats(method)
    for shares in (by_module(found), by_op(found)):
        assert sum(share.raw_bytes for share in shares) == found.raw_bytes
        assert sum(share.stored_bytes for share in shares) == found.stored_bytes
        assert len({share.name for share in shares}) == len(shares)


def test_a_relus_result_stored_by_the_next_convolution_counts_at_the_relu() -> None:
    shares = {share.name: share for share in by_module(stats("fixed"))}
    assert list(shares) == ["0", "1", "2", SMALL]
    assert shares["2"].raw_bytes == 4 * 8 * 16 * 16 * 4
    assert 0 < shares["2"].stored_bytes < shares["2"].raw_bytes / 4


def test_ops_come_largest_first() -> None:
    shares = by_op(stats("fixed"))
    assert [share.name for share in shares] == ["NativeBatchNorm", "Relu", "Convolution", SMALL]
