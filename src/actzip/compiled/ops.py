"""The ops that stand in compiled graphs: a tensor into one row of bytes, and back.

    seed   = actzip::begin(graph)              at the start of the forward graph
    packed = actzip::pack(x, seed, site, n)    after x's last use in forward
    x      = actzip::unpack(packed, …)         before its first use in backward
    mask   = actzip::unpack_mask(packed, …)    where a ReLU's backward asks which values are above 0

    packed = actzip::pack_sides(x, relu, …)    the same, and where a ReLU's result, which is made
    on     = actzip::sides(packed, x)          again from x in backward, was above 0

A packed tensor says itself how it is to be read: a head of 40 bytes, the codec's bytes, its strides
and its codec in words, and a ReLU's mask where the code has none (where it has that of another
tensor: a byte for each channel that says which side is positive). Compilers want to know sizes
before there are values, and how many bytes some codes take is known only after: what the graph sees
is a view of `visible` bytes at the start of a storage that has all of them. So precision can change
in every step without another compilation.

`graph` and `site` are words: they are constants of a compiled graph, which may come from a cache on
disk, and tell the session that runs (named by `begin`) what is stored.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from actzip.autograd.compiled import LISTENERS, Listener
from actzip.autograd.seeds import seed_at
from actzip.codecs import BitMask, Cast, Group, Keep, Window
from actzip.codecs.base import Codec, Payload, PayloadError, ours
from actzip.codecs.serial import from_words, to_words
from actzip.compiled.sides import Sides, positive, tells
from actzip.torch_private import DisableTorchFunction, saved_tensors_hooks
from actzip.warning import warn

#: lengths of the codec's bytes and of the words behind them, the seed, the length of the mask, and
#: a number in `_HELD` or 0
_HEAD = struct.Struct("<QQQQQ")
HEAD = _HEAD.size
_OTHERS = 1 << 63  #: in the length of a mask: it is another tensor's

#: All bytes of what was packed under hooks for saved tensors, which may copy (`save_on_cpu`) and
#: see a part only. Nobody tells when such a graph is gone: they are held for good.
_HELD: dict[int, Tensor] = {}
_NUMBERS = itertools.count(1)

#: They ask the session, and draw a new seed, in each run: a captured CUDA graph would do so once.
#: With this tag inductor captures what is between them (`mode="reduce-overhead"`).
_UNCAPTURED = (torch.Tag.cudagraph_unsafe,)

_LIBRARY = torch.library.Library("actzip", "DEF")
_LIBRARY.define("begin(str graph) -> Tensor", tags=_UNCAPTURED)
_LIBRARY.define("pack(Tensor x, Tensor seed, str site, int number) -> Tensor", tags=_UNCAPTURED)
_LIBRARY.define(
    "pack_sides(Tensor x, Tensor relu, Tensor seed, str site, int number) -> Tensor",
    tags=_UNCAPTURED,
)
_LIBRARY.define("sides(Tensor packed, Tensor x) -> Tensor", tags=_UNCAPTURED)
for _name in ("unpack", "unpack_mask"):
    _schema = "(Tensor packed, SymInt[] size, SymInt[] stride, ScalarType dtype) -> Tensor"
    _LIBRARY.define(_name + _schema, tags=_UNCAPTURED)


class Hearer(Listener):
    """What a session hears of a compiled graph that runs; without one, what the words say holds."""

    def begin(self, graph: dict[str, Any]) -> int:
        """A forward pass of the graph begins: the seed of its codes."""
        return 0

    def codec(self, site: dict[str, Any], x: Tensor) -> Codec:
        """How to store this tensor, when that is not a constant of the graph."""
        return Keep()

    def sides(self, site: dict[str, Any], x: Tensor, relu: Tensor) -> tuple[Codec, Sides | None]:
        """The same for a tensor from which `relu` is made again, and the sides that the code tells,
        if it does."""
        return self.codec(site, x), None

    def packed(
        self, site: dict[str, Any], number: int, x: Tensor, codec: Codec, nbytes: int
    ) -> None:
        """It was stored."""


_NOBODY = Hearer()


def _listener(key: str) -> Hearer:
    found = LISTENERS.get(key)
    return found if isinstance(found, Hearer) else _NOBODY


@functools.lru_cache(maxsize=4096)
def words(text: str) -> dict[str, Any]:
    """`graph` and `site` as they are written: JSON."""
    found: dict[str, Any] = json.loads(text)
    return found


def visible(codec: Codec, shape: Sequence[int], dtype: torch.dtype, signs: bool = False) -> int:
    """How many bytes of a packed tensor the graph sees: all, where their number is known."""
    numel = math.prod(shape)
    if isinstance(codec, BitMask):
        data = -(-numel // 8)
    elif isinstance(codec, Cast):
        data = 2 * numel
    elif isinstance(codec, Window):
        data = codec.least_bytes(torch.empty(numel, device="meta"))
    elif isinstance(codec, Group) and isinstance(codec.bits, int) and not codec.entropy:
        data = codec._layout(torch.empty(numel, dtype=dtype, device="meta")).offsets[-1]
    else:
        return HEAD
    mask = -(-numel // 8) if signs and not _has_mask(codec) else 0
    return HEAD + data + 8 * len(shape) + len(to_words(codec)) + mask


def _has_mask(codec: Codec) -> bool:
    """Whether a ReLU's mask can be read from its code."""
    return codec.keeps_mask or isinstance(codec, BitMask)


def _begin(graph: str) -> Tensor:
    said = words(graph)
    return torch.tensor([_signed(_listener(said["session"]).begin(said))], dtype=torch.int64)


def _pack(x: Tensor, seed: Tensor, site: str, number: int) -> Tensor:
    said = words(site)
    listener = _listener(said["session"])
    with DisableTorchFunction(), torch.no_grad():
        constant = said.get("codec")
        codec = from_words(constant) if constant else listener.codec(said, x)
        # the readers of a ReLU's mask need every bit of it
        bits = BitMask().encode(x).data if said["signs"] and not _has_mask(codec) else None
        mask = 0 if bits is None else bits.numel()
        payload = _encode(codec, x, seed_at(int(seed), number + 1), mask)
        listener.packed(said, number, x, payload.codec, payload.nbytes + mask)
        return _seen(_whole(payload, mask), bits, said)


def _pack_sides(x: Tensor, relu: Tensor, seed: Tensor, site: str, number: int) -> Tensor:
    said = words(site)
    listener = _listener(said["session"])
    with DisableTorchFunction(), torch.no_grad():
        constant, found = said.get("codec"), None
        if constant:
            codec = from_words(constant)
        else:
            codec, found = listener.sides(said, x, relu)
        room = x.shape[1] if found is not None and tells(codec) else -(-x.numel() // 8)
        payload = _encode(codec, x, seed_at(int(seed), number + 1), room)
        if found is not None and tells(payload.codec):
            bits = found.flipped.view(torch.uint8)
        else:
            if relu.stride() != payload.stride:  # bits are in the order of the memory
                relu = torch.empty_strided(
                    x.shape, payload.stride, dtype=relu.dtype, device=x.device
                ).copy_(relu)
            bits = BitMask().encode(relu).data
        listener.packed(said, number, x, payload.codec, payload.nbytes + bits.numel())
        return _seen(_whole(payload, bits.numel(), others=True), bits, said)


def _seen(whole: Tensor, mask: Tensor | None, said: dict[str, Any]) -> Tensor:
    """What the graph sees of it, with a mask at its end."""
    if mask is not None:
        whole[-mask.numel() :] = mask
    if whole.numel() > said["visible"] and saved_tensors_hooks(False) is not None:
        _hold(whole)
    return whole[: said["visible"]]


def _hold(whole: Tensor) -> None:
    if not _HELD:
        warn(
            "hooks for saved tensors (save_on_cpu, say) are set around a graph that was compiled "
            "without them: what it packs can then not be freed; compile it within the hooks, so "
            "that it is left as it is, or leave them out"
        )
    number = next(_NUMBERS)
    whole[HEAD - 8 : HEAD] = _bytes(struct.pack("<Q", number))
    _HELD[number] = whole


def _encode(codec: Codec, x: Tensor, seed: int, mask: int) -> Payload:
    """In memory that has room for what goes around it."""
    extra = HEAD + 8 * x.dim() + len(to_words(codec)) + mask

    def room(nbytes: int, device: torch.device) -> Tensor:
        return torch.empty(nbytes + extra, dtype=torch.uint8, device=device)[HEAD : HEAD + nbytes]

    try:
        return codec.encode(x, seed=seed, allocate=room)
    except (TypeError, ValueError, RuntimeError):  # it does not fit these values after all
        return _encode(Keep(), x, seed, mask) if not isinstance(codec, Keep) else codec.encode(x)


def _whole(payload: Payload, mask: int, others: bool = False) -> Tensor:
    """All bytes of a packed tensor, the payload's own memory with a head and an end around it;
    the mask may be another tensor's."""
    data = payload.data
    # its strides: a compiler may lay a tensor out in another way than the graph says
    text = struct.pack(f"<{len(payload.stride)}q", *payload.stride) + to_words(payload.codec)
    size = HEAD + data.numel() + len(text) + mask
    storage = data.untyped_storage()
    if data.storage_offset() == HEAD and storage.nbytes() == size:
        whole = torch.empty(0, dtype=torch.uint8, device=data.device).set_(storage)
    else:  # the codec took more room than it used
        whole = torch.empty(size, dtype=torch.uint8, device=data.device)
        whole[HEAD : HEAD + data.numel()] = data
    length = mask | _OTHERS if others else mask
    whole[:HEAD] = _bytes(_HEAD.pack(data.numel(), len(text), payload.seed, length, 0))
    whole[HEAD + data.numel() : size - mask] = _bytes(text)
    return whole


def _bytes(raw: bytes) -> Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def _raw(data: Tensor) -> bytes:
    # a list of numbers takes longer than all the rest of reading a head
    return data.numpy().tobytes() if data.device.type == "cpu" else bytes(data.tolist())


class _Packed:
    """What `pack` wrote, read again, and memory for its values."""

    def __init__(self, packed: Tensor, size: list[int], stride: list[int], dtype: torch.dtype):
        self._stride = stride
        whole = torch.empty(0, dtype=torch.uint8, device=packed.device)
        whole = whole.set_(packed.untyped_storage())[packed.storage_offset() :]
        length, said, seed, mask, held = _HEAD.unpack(_raw(whole[:HEAD]))
        others, mask = bool(mask & _OTHERS), mask & ~_OTHERS
        whole = _HELD.get(held, whole)
        at = HEAD + length
        if whole.numel() < at + said + mask:
            raise PayloadError(
                "a tensor that a compiled graph packed was copied without all of its bytes, by a "
                "hook for saved tensors (save_on_cpu, say); remove the hook or actzip's session"
            )
        text = _raw(whole[at : at + said])
        strides = struct.unpack_from(f"<{len(size)}q", text)
        codec = from_words(text[8 * len(size) :])
        head = tuple(size), strides, dtype, seed
        self.payload = ours(Payload(codec, *head, whole[HEAD:at]))
        bits = whole[at + said : at + said + mask]
        self.others = bits if others else None
        self.bits = ours(Payload(BitMask(), *head, bits)) if mask and not others else None

    @functools.cached_property
    def out(self) -> Tensor:
        payload = self.payload
        shape, device = payload.shape, payload.data.device
        return torch.empty_strided(shape, self._stride, dtype=payload.dtype, device=device)

    def values(self) -> Tensor:
        payload = self.payload
        out = payload.codec.decode(payload, self.out)
        if self.bits is not None and not payload.codec.keeps_zeros:
            out.mul_(BitMask().decode(self.bits))  # what ReLU made zero is known to be zero
        return out

    def mask(self) -> Tensor:
        if self.bits is not None:
            return BitMask().decode(self.bits, self.out)
        payload = self.payload
        is_bits = isinstance(payload.codec, BitMask)
        read = payload.codec.decode if is_bits else payload.codec.mask
        return read(payload, self.out)

    def sides(self, x: Tensor) -> Tensor:
        """Where the other tensor was above 0; `x`: what came back of this one."""
        assert self.others is not None, "packed without sides"
        if tells(self.payload.codec):
            return positive(self.payload.codec, x, self.others.view(torch.bool))
        payload = self.payload
        bits = Payload(BitMask(), payload.shape, payload.stride, x.dtype, 0, self.others)
        return BitMask().decode(ours(bits), torch.empty_like(x)) > 0


def _unpack(packed: Tensor, size: list[int], stride: list[int], dtype: torch.dtype) -> Tensor:
    with DisableTorchFunction(), torch.no_grad():
        return _Packed(packed, size, stride, dtype).values()


def _unpack_mask(packed: Tensor, size: list[int], stride: list[int], dtype: torch.dtype) -> Tensor:
    with DisableTorchFunction(), torch.no_grad():
        return _Packed(packed, size, stride, dtype).mask()


def _sides(packed: Tensor, x: Tensor) -> Tensor:
    with DisableTorchFunction(), torch.no_grad():
        return _Packed(packed, list(x.shape), list(x.stride()), x.dtype).sides(x)


def _signed(seed: int) -> int:
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >> 63 else seed


for _name, _kernel in (
    ("begin", _begin),
    ("pack", _pack),
    ("unpack", _unpack),
    ("unpack_mask", _unpack_mask),
    ("pack_sides", _pack_sides),
    ("sides", _sides),
):
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")


def _fake_begin(graph: str) -> Tensor:
    return torch.empty(1, dtype=torch.int64)


def _fake_pack(x: Tensor, seed: Tensor, site: str, number: int) -> Tensor:
    return torch.empty(words(site)["visible"], dtype=torch.uint8, device=x.device)


def _fake_unpack(packed: Tensor, size: Any, stride: Any, dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=packed.device)


def _fake_pack_sides(x: Tensor, relu: Tensor, seed: Tensor, site: str, number: int) -> Tensor:
    return _fake_pack(x, seed, site, number)


def _fake_sides(packed: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.bool)


torch.library.register_fake("actzip::begin", _fake_begin)
torch.library.register_fake("actzip::pack", _fake_pack)
torch.library.register_fake("actzip::unpack", _fake_unpack)
torch.library.register_fake("actzip::unpack_mask", _fake_unpack)
torch.library.register_fake("actzip::pack_sides", _fake_pack_sides)
torch.library.register_fake("actzip::sides", _fake_sides)
