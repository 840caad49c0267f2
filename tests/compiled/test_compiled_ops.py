"""The ops alone: what is packed comes back, whatever its layout."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from actzip.autograd.compiled import LISTENERS
from actzip.codecs import BitMask, Bounded, Dithered, Group, Index, Keep
from actzip.codecs.base import Codec, PayloadError
from actzip.codecs.serial import to_words
from actzip.compiled import ops
from actzip.compiled.sides import Sides, split

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


def _arguments(op: str, codec: Codec, x: Tensor) -> tuple[object, ...]:
    if op == "begin":
        return (json.dumps({"session": "", "packs": 0, "left": []}),)
    if op == "pack":
        return x, SEED, _site(codec, x, signs=True), 0
    if op == "pack_sides":
        return x, x.relu(), SEED, _site(codec, x), 0
    packed = _pack(codec, x, signs=True)
    if op == "sides":
        packed = torch.ops.actzip.pack_sides(x, x.relu(), SEED, _site(codec, x), 0)
        return torch.empty(0, dtype=torch.uint8).set_(packed.untyped_storage()), x
    # opcheck copies what it gives: all bytes, where a graph sees the first ones only
    packed = torch.empty(0, dtype=torch.uint8).set_(packed.untyped_storage())
    return packed, list(x.shape), list(x.stride()), x.dtype


NAMES = sorted(name.split("::")[1].split(".")[0] for name in ops._LIBRARY._op_defs)
CODECS = [Keep(), BitMask(), Group(4, zero=True), Group(4), Bounded(1e-2), Dithered((0.1,))]


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@pytest.mark.parametrize("op", NAMES)
def test_opcheck(op: str, codec: Codec) -> None:
    x = torch.randn(4, 8, 16).relu()
    arguments = _arguments(op, codec, x.transpose(1, 2))
    torch.library.opcheck(getattr(torch.ops.actzip, op).default, arguments)


def test_opcheck_of_other_types() -> None:
    half = torch.randn(4, 64).relu().to(torch.bfloat16)
    for codec, x in ((Group(2), half), (Index(), torch.arange(64)), (BitMask(), half > 0)):
        for op in ("pack", "unpack"):
            torch.library.opcheck(getattr(torch.ops.actzip, op).default, _arguments(op, codec, x))


def test_every_op_of_the_graphs_is_checked() -> None:
    assert {"begin", "pack", "unpack", "unpack_mask", "pack_sides", "sides"} <= set(NAMES)


class _Telling(ops.Hearer):
    """Codes that tell sides, as `auto` has them."""

    def sides(self, site: dict[str, object], x: Tensor, relu: Tensor) -> tuple[Codec, Sides | None]:
        found = split(x, relu)
        return Dithered((0.5,) * x.shape[1], origin=found.origins if found else None), found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("told", [False, True])
def test_the_mask_of_what_is_made_again_is_exact(told: bool, dtype: torch.dtype) -> None:
    x = torch.randn(8, 16, 20, 20).to(dtype)
    slope, shift = torch.randn(16), torch.randn(16)
    slope[0], shift[0], slope[1], shift[1] = 1.0, 99.0, -1.0, -99.0  # all on, all off
    turned = (x * slope.view(-1, 1, 1) + shift.view(-1, 1, 1)).to(dtype)
    relu = turned.relu().to(memory_format=torch.channels_last)
    said = {"session": "telling" if told else "", "visible": ops.HEAD, "signs": False}
    said |= {} if told else {"codec": to_words(Group(2)).decode()}
    listener = _Telling()
    LISTENERS["telling"] = listener
    packed = torch.ops.actzip.pack_sides(x, relu, SEED, json.dumps(said), 0)
    assert torch.equal(torch.ops.actzip.sides(packed, _unpack(packed, x)), relu > 0)
    assert not torch.equal(_unpack(packed, x), x)
    bits = 8 * packed.untyped_storage().nbytes() / x.numel()
    assert bits < 4


def test_values_that_no_origin_divides_have_none() -> None:
    x = torch.randn(4, 3, 5)
    assert split(x, x.abs() - 0.5) is None
    x[0, 0, 0] = torch.nan
    assert split(x, x.relu()) is None
