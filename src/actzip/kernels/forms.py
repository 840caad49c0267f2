"""What a backend offers for each number format: the contract of its modules, checked by mypy.

A module `<backend>/<form>.py` has the functions of its Protocol here, and every backend's write the
same bytes. Tensors are on one device; `data` is 1-D uint8. Numbers that only the device knows come
back as `int | Tensor`: an int where reading is free, else a tensor that the host need not look at
now. A seed is a number of 64 bits, or where it says so an int64 on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from actzip.kernels.bounded_layout import BoundedLayout
from actzip.kernels.dithered_layout import DitheredLayout
from actzip.kernels.dithered_tables import Given
from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.entropy_table import Table
from actzip.kernels.fixedpoint_layout import FixedPointLayout
from actzip.kernels.group_layout import GroupLayout

#: Gives so many bytes: for payloads whose size follows from the values.
Room = Callable[[int], Tensor]


class GroupForm(Protocol):
    """Codes with a least value and a step per group; group_layout.py says where they are."""

    def encode(
        self, x: Tensor, layout: GroupLayout, seed: int | Tensor, data: Tensor
    ) -> int | Tensor:
        """Metadata and codes into `data`; returns the elements in raw groups."""

    def store_raw(self, x: Tensor, layout: GroupLayout, data: Tensor) -> None:
        """Raw groups behind the codes that `encode` wrote, as many as there is room for; the
        others will decode to NaN."""

    def decode(
        self,
        data: Tensor,
        layout: GroupLayout,
        seed: int | Tensor,
        out: Tensor,
        trusted: bool = False,
    ) -> None:
        """The values. trusted: made by this process, nothing is read to refuse damage."""

    def nonzero(self, data: Tensor, layout: GroupLayout, out: Tensor) -> None:
        """1 where the code is not that of zero, else 0."""


class DualForm(Protocol):
    """Block averages, and a group code of what they leave; dual_layout.py says where they are."""

    def encode(
        self, x: Tensor, layout: DualLayout, seed: int | Tensor, data: Tensor
    ) -> int | Tensor:
        """As of GroupForm, of a 1-D tensor."""

    def store_raw(self, x: Tensor, layout: DualLayout, data: Tensor) -> None: ...

    def decode(
        self,
        data: Tensor,
        layout: DualLayout,
        seed: int | Tensor,
        out: Tensor,
        trusted: bool = False,
    ) -> None: ...

    def nonzero(self, data: Tensor, layout: DualLayout, out: Tensor) -> None: ...


class MaskForm(Protocol):
    """One bit per element."""

    def encode(self, x: Tensor, on: float | None, data: Tensor) -> int | Tensor:
        """Bits of a 1-D tensor; returns 0 unless there was a third value beside 0 and `on`."""

    def decode(self, data: Tensor, on: float | None, out: Tensor) -> None: ...


class IndexForm(Protocol):
    """Integers in the bits of their range."""

    def extremes(self, x: Tensor) -> tuple[int, int]:
        """Least and largest value: the size of the payload follows from them, so the host reads."""

    def encode(self, x: Tensor, lo: int, bits: int, data: Tensor) -> None: ...

    def decode(self, data: Tensor, lo: int, bits: int, out: Tensor) -> None: ...


class WindowForm(Protocol):
    """Places of max-pool indices in their windows."""

    def encode(self, indices: Tensor, geometry: list[int], places: Tensor) -> int | Tensor:
        """Returns 0 unless an index lies outside its window."""

    def decode(self, places: Tensor, geometry: list[int], indices: Tensor) -> int | Tensor:
        """Returns 0 unless a place lies outside the window or the map."""


class CastForm(Protocol):
    """The same numbers in another floating type."""

    def convert(self, source: Tensor, target: Tensor) -> None:
        """Rounded to nearest; a finite value never becomes infinity."""


class PlanesForm(Protocol):
    """Codes of 1 to 8 bits as bit planes."""

    def pack(self, codes: Tensor, bits: int) -> Tensor: ...

    def unpack(self, data: Tensor, count: int, bits: int) -> Tensor: ...


class FixedPointForm(Protocol):
    """Integers with a step per channel."""

    def encode(self, x: Tensor, layout: FixedPointLayout, seed: int, allocate: Room) -> Tensor: ...

    def encode_within(self, x: Tensor, layout: FixedPointLayout, seed: int, data: Tensor) -> Tensor:
        """The same bytes into `data`, which has room for the worst case and SPARE bytes more; how
        many they are, on the device. For elements that are there."""

    def decode(
        self, data: Tensor, layout: FixedPointLayout, seed: int, out: Tensor, trusted: bool = False
    ) -> None:
        """The values. trusted: made by this process, nothing is read to refuse damage; there may
        be more bytes than were written."""


class BoundedForm(Protocol):
    """Codes with a strict bound on the error."""

    def encode(self, x: Tensor, layout: BoundedLayout, seed: int, allocate: Room) -> Tensor: ...

    def encode_within(self, x: Tensor, layout: BoundedLayout, seed: int, data: Tensor) -> Tensor:
        """The same bytes into `data`, which has room for the worst case and SPARE bytes more; how
        many they are, on the device. For elements that are there."""

    def decode(
        self, data: Tensor, layout: BoundedLayout, seed: int, out: Tensor, trusted: bool = False
    ) -> None:
        """The values. trusted: made by this process, nothing is read to refuse damage; there may
        be more bytes than were written."""


class BoundedEntropyForm(Protocol):
    """The same, entropy-coded."""

    def encode(self, x: Tensor, layout: BoundedLayout, seed: int, allocate: Room) -> Tensor | None:
        """The payload, or None when plain packing is shorter."""

    def decode(self, data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None: ...


class DitheredForm(Protocol):
    """Dithered codes, entropy-coded given their dither; dithered_layout.py says where they are."""

    def choose_for(self, x: Tensor, layout: DitheredLayout, seed: int) -> Given | None:
        """The tables that `encode` takes for x; None when steps are too fine for this format."""

    def encode(
        self,
        x: Tensor,
        layout: DitheredLayout,
        seed: int,
        allocate: Room,
        given: Given | None = None,
    ) -> Tensor | None:
        """The payload, with these tables or those of `choose_for`; None where that gives None."""

    def encode_within(
        self, x: Tensor, layout: DitheredLayout, seed: int, data: Tensor, given: Given, first: int
    ) -> Tensor:
        """The byte `first` and the bytes of `encode` into `data`, which has room for one more than
        the worst case; how many they are, on the device. For elements that are there."""

    def decode(
        self,
        data: Tensor,
        layout: DitheredLayout,
        seed: int,
        out: Tensor,
        known: Given | None = None,
    ) -> None:
        """The values. known: the tables of bytes that this process made, nothing is read to refuse
        damage; there may be more bytes than were written."""


class NormForm(Protocol):
    """The results of norms, made again from inputs and moments; of the input's type and order."""

    def channels(
        self, x: Tensor, scale: Tensor, shift: Tensor, sides: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """x·scale + shift by channel, or with sides a ReLU's result of that."""

    def rows(
        self,
        x: Tensor,
        mean: Tensor | None,
        rstd: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """(x - mean)·rstd·weight + bias by row."""


class EntropyForm(Protocol):
    """Bytes in the bits that their frequencies ask for."""

    def count(self, codes: Tensor) -> list[int]:
        """How often each of the 256 codes occurs."""

    def encode(self, codes: Tensor, table: Table, allocate: Room) -> Tensor: ...

    def decode(self, data: Tensor, out: Tensor) -> None: ...
