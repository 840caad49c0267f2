"""The entropy stage without the C++ library: one table, spans of 65536 codes (entropy_rows.py).

Symbol i belongs to state i % 32. The bytes of a span are its words; those of the first span of a
chain have the chain's 32 states before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from actzip.kernels.entropy_table import (
    SPAN,
    STATES,
    SYMBOLS,
    Table,
    as_tensor,
    load_offsets,
)
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.entropy_rows import (
    Bytes,
    Rows,
    decode_rows,
    encode_rows,
    load_chains,
)
from actzip.kernels.reference.parts import chains_at_once

_ROWS = SPAN // STATES
_DAMAGED = "entropy_decode: the stored bytes are damaged"


def count(codes: Tensor) -> list[int]:
    """How often each of the 256 codes occurs."""
    found: list[int] = torch.bincount(codes.long(), minlength=SYMBOLS).tolist()
    return found


def encode(codes: Tensor, table: Table, allocate: Callable[[int], Tensor]) -> Tensor:
    """Bytes of the uint8 codes: table, a uint32 per span with its size, spans."""
    spans: list[bytes] = []
    for batch in chains_at_once(-(-codes.numel() // SPAN), table.chain):
        here = codes[batch.start * SPAN : batch.stop * SPAN]
        spans += encode_spans(here.cpu().numpy(), table)
    sizes = np.array([len(s) for s in spans], dtype="<u4")
    joined = table.stored() + sizes.tobytes() + b"".join(spans)
    data = allocate(len(joined))
    data.copy_(as_tensor(joined, data.device))
    return data


def decode(data: Tensor, out: Tensor) -> None:
    table, size = Table.load(data)
    spans = -(-out.numel() // SPAN)
    start = size + 4 * spans
    if data.numel() < start:
        raise DamagedError(f"entropy_decode: {data.numel()} bytes are too few")
    body = data[start:]
    offsets = load_offsets(data[size:start], body.numel()).tolist()
    raw = body.cpu().numpy()
    parts = [raw[a:b] for a, b in pairwise([*offsets, len(raw)])]
    for batch in chains_at_once(spans, table.chain):
        here = out[batch.start * SPAN : batch.stop * SPAN]
        mine = parts[batch.start : batch.stop]
        here.copy_(torch.from_numpy(decode_spans(mine, table, here.numel())))


def encode_spans(codes: Bytes, table: Table) -> list[bytes]:
    """The bytes of each span of 65536 codes; chains side by side, each from its end."""
    rows = _rows(len(codes), table)
    for k, symbols in enumerate(rows.symbols):
        mine = codes[k * table.chain * SPAN :][: symbols.size]
        symbols.reshape(-1)[: len(mine)] = mine
    coded, found = encode_rows(rows, np.array([table.frequencies], np.int64)), []
    for span in range(-(-len(codes) // SPAN)):
        k, at = divmod(span, table.chain)
        words = coded.rows(k, slice(at * _ROWS, (at + 1) * _ROWS))
        found.append(words if at else coded.first(k) + words)
    return found


def decode_spans(parts: Sequence[Bytes], table: Table, n: int) -> Bytes:
    """n codes from the bytes of their spans."""
    chains = [parts[k : k + table.chain] for k in range(0, len(parts), table.chain)]
    if any(len(p) % 2 for p in parts) or any(len(c[0]) < 4 * STATES for c in chains):
        raise DamagedError(_DAMAGED)
    states, words, _ = load_chains([np.concatenate(c) for c in chains], _DAMAGED)
    rows = _rows(n, table)
    used, sound = decode_rows(rows, states, words, np.array([table.frequencies], np.int64))
    for mine, chain in zip(used, chains, strict=True):  # spans end where they say
        ends = [*range(_ROWS - 1, len(mine), _ROWS), -1][: len(chain)]
        sound &= bool((mine[ends] == np.cumsum([len(p) // 2 for p in chain]) - 2 * STATES).all())
    if not sound:
        raise DamagedError(_DAMAGED)
    return rows.symbols.reshape(-1)[:n]


def _rows(n: int, table: Table) -> Rows:
    """For n symbols in chains of one table."""
    sizes = (min(table.chain * SPAN, n - at) for at in range(0, n, table.chain * SPAN))
    return Rows.of([[(0, size)] for size in sizes])
