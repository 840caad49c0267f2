"""The forms as operators: the bytes of the codecs, and what torch.compile asks of an operator."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from actzip.codecs import BitMask, Bounded, Codec, Dual, FixedPoint, Group, Window
from actzip.kernels import ops

SEED = torch.tensor([5])
ERROR = (0.01,)


def maps(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(4, 3, 9, 7, generator=torch.Generator().manual_seed(0)).relu().to(dtype)


def indices() -> Tensor:
    return F.max_pool2d(maps(), 2, return_indices=True)[1]


WINDOW = (2, 2, 2, 2, 0, 0, 1, 1, 9, 7)
CODES = torch.arange(200, dtype=torch.uint8) % 7
GROUP: tuple[Any, ...] = ([2], 64, "dither", False)
EACH: tuple[Any, ...] = ([1, 3, 4, 8], 64, "nearest", True)
DUAL: tuple[Any, ...] = (8, 2, False, "dither", False)
CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "group": (ops.group_encode, (maps(), SEED, *GROUP, 64)),
    "group bits per sample": (ops.group_encode, (maps(torch.bfloat16), SEED, *EACH, 0)),
    "dual": (ops.dual_encode, (maps(), SEED, *DUAL, 63)),
    "mask": (ops.mask_encode, (maps(), None)),
    "mask on": (ops.mask_encode, ((maps() > 0).float() * 2, 2.0)),
    "index": (ops.index_encode, (indices(), 0, 6)),
    "window": (ops.window_encode, (indices(), list(WINDOW))),
    "cast": (ops.cast_convert, (maps(), torch.bfloat16)),
    "planes": (ops.planes_pack, (CODES, 3)),
    "bounded": (ops.bounded_encode, (maps(), 5, list(ERROR), 1, True)),
    "bounded entropy": (ops.bounded_entropy_encode, (maps(), 5, list(ERROR), 1, True)),
    "fixedpoint": (ops.fixedpoint_encode, (maps(), 5, [6] * 3, 63, "dither", False)),
    "entropy": (ops.entropy_encode, (CODES,)),
}


def decoders(name: str, coded: Any) -> tuple[Any, tuple[Any, ...]]:
    x = maps()
    given = {
        "group": (ops.group_decode, (*coded, SEED, x.shape, x.dtype, *GROUP)),
        "group bits per sample": (ops.group_decode, (*coded, SEED, x.shape, torch.bfloat16, *EACH)),
        "dual": (ops.dual_decode, (*coded, SEED, x.shape, x.dtype, *DUAL)),
        "mask": (ops.mask_decode, (coded[0], None, x.shape, x.dtype)),
        "mask on": (ops.mask_decode, (coded[0], 2.0, x.shape, x.dtype)),
        "index": (ops.index_decode, (coded, 0, 6, indices().shape, torch.int64)),
        "window": (ops.window_decode, (coded[0], list(WINDOW), indices().shape)),
        "cast": (ops.cast_convert, (coded, torch.float32)),
        "planes": (ops.planes_unpack, (coded, CODES.numel(), 3)),
        "bounded": (ops.bounded_decode, (coded, 5, x.shape, x.dtype, list(ERROR), 1, True)),
        "bounded entropy": (
            ops.bounded_entropy_decode,
            (coded, 5, x.shape, x.dtype, list(ERROR), 1, True),
        ),
        "fixedpoint": (
            ops.fixedpoint_decode,
            (coded, 5, x.shape, x.dtype, [6] * 3, 63, "dither", False),
        ),
        "entropy": (ops.entropy_decode, (coded, CODES.numel())),
    }
    op, args = given[name]
    return op, tuple(list(a) if isinstance(a, torch.Size) else a for a in args)


@pytest.mark.parametrize("name", CALLS)
def test_torch_accepts_the_operator_and_its_decoder(name: str) -> None:
    op, args = CALLS[name]
    torch.library.opcheck(op, args)
    coded = op(*args)
    if name != "bounded entropy" or coded.numel():
        back, given = decoders(name, coded)
        torch.library.opcheck(back, given)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("group", Group(2, 64)),
        ("group bits per sample", Group((1, 3, 4, 8), 64, "nearest", True)),
        ("dual", Dual()),
        ("mask", BitMask()),
        ("mask on", BitMask(on=2.0)),
        ("window", Window((2, 2), (2, 2), (0, 0), (1, 1), (9, 7))),
        ("bounded", Bounded(0.01)),
        ("fixedpoint", FixedPoint(6)),
    ],
)
def test_bytes_and_values_are_those_of_the_codec(name: str, codec: Codec) -> None:
    op, args = CALLS[name]
    coded = op(*args)
    payload = codec.encode(args[0], seed=5)
    data = coded[0] if isinstance(coded, tuple) else coded
    assert torch.equal(data[: payload.data.numel()], payload.data)
    assert not data[payload.data.numel() :].any()  # the room for raw groups
    back, given = decoders(name, coded)
    assert torch.equal(back(*given), codec.decode(payload))


@pytest.mark.parametrize("form", ["group", "dual"])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_raw_groups_in_their_room_and_beyond_it(form: str, lost: int) -> None:
    op, (x, *rest) = CALLS[form]
    x = x.clone()
    size = 64 if form == "group" else 63
    for k in range(lost):
        x.view(-1)[k * size] = float("inf")
    coded = op(x, *rest)
    assert int(coded[1]) == lost * size
    back, given = decoders(form, coded)
    y = back(*given)
    assert torch.equal(y.view(-1)[:size].isinf(), x.view(-1)[:size].isinf())
    if lost:
        assert torch.equal(y.view(-1)[:size], x.view(-1)[:size])
    assert int(y.isnan().sum()) == max(0, lost - 1) * size  # there was room for one


def test_a_compiled_graph_holds_the_operators() -> None:
    def keep(x: Tensor) -> Tensor:
        data, raw = ops.group_encode(x * 2, SEED, [4], 64, "nearest", False, 0)
        return ops.group_decode(data, raw, SEED, list(x.shape), x.dtype, [4], 64, "nearest", False)

    x = maps()
    compiled = torch.compile(keep, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), keep(x))


def test_importing_actzip_registers_nothing() -> None:
    code = "import sys, actzip.api; print('actzip.kernels.ops' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
