"""Parts of a tensor that is coded in chunks: a few chunks at a time, or a few chains of spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, CHUNK, ChunkedLayout
from actzip.kernels.entropy_table import SPAN
from actzip.kernels.reference.slabs import elements

_Layout = TypeVar("_Layout", bound=ChunkedLayout)
#: A tensor's chains are coded in so many turns: few, as each takes a loop over the rows of a chain.
_TURNS = 4


def parts(layout: _Layout) -> Iterator[_Layout]:
    """The layouts of a few chunks at a time."""
    return _cut(layout, 0, layout.n, _at_once(layout))


def span_parts(layout: _Layout, span: int) -> Iterator[_Layout]:
    """The same for the chunks of one span."""
    most = 1 << min(_at_once(layout), SPAN // CHUNK).bit_length() - 1  # a part of a span
    begin = span * SPAN
    return _cut(layout, begin, min(layout.n, begin + SPAN), most)


def span_of(layout: _Layout, span: int) -> _Layout:
    """The layout of all of one span."""
    begin = span * SPAN
    return replace(layout, n=min(SPAN, layout.n - begin), first=begin)


def chains_at_once(spans: int, chain: int) -> Iterator[range]:
    """The spans of a few whole chains at a time."""
    step = max(1, -(-spans // chain) // _TURNS) * chain
    return (range(k, min(spans, k + step)) for k in range(0, spans, step))


def part_of(x: Tensor, part: ChunkedLayout) -> Tensor:
    """Those elements of a flat tensor."""
    return x[part.first : part.first + part.n]


def chunks_of(each: Tensor, part: ChunkedLayout) -> Tensor:
    """Of a tensor with something for each chunk, what belongs to these."""
    return each[part.first // CHUNK :][: part.chunks]


def blocks_of(each: Tensor, part: ChunkedLayout) -> Tensor:
    """The same of a tensor with something for each block."""
    return each[part.first // BLOCK :][: part.blocks]


def _at_once(layout: ChunkedLayout) -> int:
    return max(1, elements(layout.n, layout.itemsize) // 2 // CHUNK)


def _cut(layout: _Layout, begin: int, end: int, chunks: int) -> Iterator[_Layout]:
    for first in range(begin, end, chunks * CHUNK):
        yield replace(layout, n=min(chunks * CHUNK, end - first), first=first)
