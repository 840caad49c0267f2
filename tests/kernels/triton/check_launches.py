"""How many kernels an encode and a decode launch: Triton's, and PyTorch's own beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from agreement import QUIET
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from actzip.codecs import (
    BitMask,
    Bounded,
    Cast,
    Codec,
    Dithered,
    Dual,
    FixedPoint,
    Group,
    Index,
    Rectified,
    Window,
    unsettled,
)
from actzip.kernels.triton import launch

pytestmark = QUIET

#: Ops that give another view, or memory with nothing in it: no kernel runs.
_VIEWS = {"alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand"} | {
    *("new_empty", "permute", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view"),
    *("split", "unbind", "_reshape_alias", "_unsafe_view", "lift_fresh", "unfold"),
}


class _Ops(TorchDispatchMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in _VIEWS:
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Kernels by their names; Triton's with a star."""
    found: Counter[str] = Counter()
    run: Callable[..., None] = launch.run

    def counting(kernel: Any, programs: int, *args: object, **options: object) -> None:
        found[f"*{kernel.fn.__name__}"] += programs > 0
        with _disable_current_modes():
            run(kernel, programs, *args, **options)

    with monkeypatch.context() as patched:
        for name in ("bounded", "cast", "dual", "fixedpoint", "group", "index", "mask", "window"):
            module = __import__(f"actzip.kernels.triton.{name}", fromlist=[name])
            if hasattr(module, "run"):
                patched.setattr(module, "run", counting)
        patched.setattr(launch, "run", counting)
        with _Ops(found):
            yield found


X = torch.randn(2, 8, 8, 64).relu()
PLACES = torch.nn.functional.max_pool2d(torch.randn(2, 4, 12, 12), 2, return_indices=True)[1]
POOL = Window((2, 2), (2, 2), (0, 0), (1, 1), (12, 12))
#: Kernels of Triton, and others, of an encode and of a decode; what is counted on the device begins
#: with a zero there.
ROOM = {"*move_raw": 1, "zeros": 1}
RAW = ({"*encode_tiles": 1, **ROOM}, {"*decode_tiles": 1, "*move_raw": 1})
SIZED = {"*quantize_chunks": 1, "*place_chunks": 1, "*pack_chunks": 1}
KERNELS: list[tuple[Codec, Tensor, dict[str, int], dict[str, int]]] = [
    (Group(2), X, *RAW),
    (Group(4, zero=True), X, *RAW),
    (Group((2, 4)), X, *RAW),
    (Group(2, 48), X, {"*encode_spans": 1, **ROOM}, RAW[1]),
    (Dual(), X, {"*encode_maps": 1, **ROOM}, {"*decode_maps": 1, "*move_raw": 1}),
    (BitMask(), X, {"*encode_mask": 1, "zeros": 1}, {"*decode_mask": 1}),
    (BitMask(), X > 0, {"*encode_mask": 1, "zeros": 1}, {"*decode_mask": 1}),
    (Cast(), X, {"*convert": 1}, {"*convert": 1}),
    (Bounded(0.01), X, SIZED, {"*decode_chunks": 1}),
    (Bounded(0.01, predict="lorenzo"), X, SIZED, {"*decode_chunks": 1}),
]


@pytest.mark.parametrize(("codec", "x", "encode", "decode"), KERNELS, ids=lambda v: repr(v)[:30])
def test_launches(
    codec: Codec,
    x: Tensor,
    encode: dict[str, int],
    decode: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: False)
    codec.decode(codec.encode(x))  # small tables go to a device once
    with launched(monkeypatch) as written:
        payload = codec.encode(x)
    unsettled.settle()
    with launched(monkeypatch) as read:
        codec.decode(payload)
    assert written == encode
    assert read == decode


#: Entropy codes: Triton's kernels only; small ops for places and tables come beside them.
CODED = [
    (Bounded(0.01, entropy=True), X, 6, 3),
    (Dithered(0.4), X, 6, 4),
    (Rectified(0.4), X, 6, 4),
    (FixedPoint(5), X, 3, 1),
    (POOL, PLACES, 2, 2),
    (Index(), PLACES, 2, 1),
]


@pytest.mark.parametrize(("codec", "x", "encode", "decode"), CODED, ids=lambda v: repr(v)[:30])
def test_launches_of_those_whose_small_ops_are_not_counted(
    codec: Codec, x: Tensor, encode: int, decode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with launched(monkeypatch) as written:
        payload = codec.encode(x)
    with launched(monkeypatch) as read:
        codec.decode(payload)
    for found, most in ((written, encode), (read, decode)):
        assert sum(n for name, n in found.items() if name.startswith("*")) == most, found
