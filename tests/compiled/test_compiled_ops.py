"""The ops alone: what is packed comes back, whatever its layout."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from actzip.codecs import BitMask, Bounded, Group, Index, Keep
from actzip.codecs.base import Codec, PayloadError
from actzip.codecs.serial import to_words
from actzip.compiled import ops

SEED = torch.tensor([7])


def _site(codec: Codec, x: Tensor, signs: bool = False) -> str:
    visible = ops.visible(codec, x.shape, x.dtype, signs)
    said = {"session": "", "codec": to_words(codec).decode(), "visible": visible, "signs": signs}
    return json.dumps(said)


def _pack(codec: Codec, x: Tensor, signs: bool = False) -> Tensor:
    packed: Tensor = torch.ops.actzip.pack(x, SEED, _site(codec, x, signs), 0)
    return packed


def _unpack(packed: Tensor, like: Tensor, op: str = "unpack") -> Tensor:
    function = getattr(torch.ops.actzip, op)
    out: Tensor = function(packed, list(like.shape), list(like.stride()), like.dtype)
    return out


@pytest.mark.parametrize("codec", [Keep(), Group(4), Group(8, zero=True), Bounded(1e-2)])
def test_what_is_packed_comes_back_as_the_codec_gives_it(codec: Codec) -> None:
    x = torch.randn(4, 100)
    packed = _pack(codec, x)
    assert packed.dtype == torch.uint8
    assert packed.numel() == ops.visible(codec, x.shape, x.dtype)
    payload = codec.encode(x, seed=ops.seed_at(7, 1))
    assert torch.equal(_unpack(packed, x), codec.decode(payload))
    whole = packed.untyped_storage().nbytes()
    assert payload.data.numel() < whole < payload.data.numel() + 200


def test_another_layout_than_the_graph_says_gives_the_right_values() -> None:
    x = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)
    dense = x.contiguous()
    assert torch.equal(_unpack(_pack(Keep(), x), dense), dense)
    assert torch.equal(_unpack(_pack(Keep(), dense), x), x)


def test_masks_and_indices_are_exact() -> None:
    mask, places = torch.rand(1000) > 0.5, torch.randint(0, 9, (1000,))
    packed = _pack(BitMask(), mask)
    assert torch.equal(_unpack(packed, mask), mask)
    assert packed.numel() < 125 + 120
    packed = _pack(Index(), places)
    assert torch.equal(_unpack(packed, places), places)
    assert packed.untyped_storage().nbytes() < 700


@pytest.mark.parametrize("codec", [Group(4, zero=True), Group(4), Bounded(1e-2)])
def test_a_relus_mask_is_exact_whatever_the_code(codec: Codec) -> None:
    x = torch.randn(1000).relu()
    packed = _pack(codec, x, signs=True)
    mask = _unpack(packed, x, "unpack_mask")
    assert torch.equal(mask > 0, x > 0)
    assert not _unpack(packed, x)[x == 0].any() or codec.keeps_mask


def test_values_that_a_code_cannot_hold_are_kept() -> None:
    x = torch.randn(512)
    x[3] = torch.inf
    back = _unpack(_pack(Group(2), x), x)
    assert back[3] == torch.inf
    assert back.isfinite().sum() == 511


def test_a_copy_without_all_bytes_is_refused() -> None:
    x = torch.randn(512)
    with pytest.raises(PayloadError, match="copied"):
        _unpack(_pack(Keep(), x).clone(), x)
    packed = _pack(Group(2), x)  # of a known size: a copy has everything
    assert torch.equal(_unpack(packed.clone(), x), _unpack(packed, x))


@pytest.mark.parametrize("op", ["unpack", "unpack_mask"])
def test_opcheck(op: str) -> None:
    x = torch.randn(4, 64).relu()
    codec = Group(4, zero=True)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        torch.ops.actzip.pack.default, (x, SEED, _site(codec, x), 0), test_utils=tests
    )
    packed = _pack(codec, x)
    args = (packed, [4, 64], [64, 1], torch.float32)
    torch.library.opcheck(getattr(torch.ops.actzip, op).default, args, test_utils=tests)
    graph = json.dumps({"session": "", "packs": 0, "left": []})
    torch.library.opcheck(torch.ops.actzip.begin.default, (graph,), test_utils=tests)
