"""The entropy stage: what is stored against what there is, and range ANS against Huffman.

    python benchmarks/entropy.py                  # 2 Mi codes each, best of 300
    python benchmarks/entropy.py --rounds 3       # does it run?
    python benchmarks/entropy.py --bits           # stored bits of Dithered; no speed is measured

--bits: normal, Laplace and ReLU values (2^18 each) and BatchNorm inputs of a ResNet-20 thirty steps
trained on CIFAR-10, coded with steps of 0.26 to 27 standard deviations. The entropy is that of the
codes given in which of 32 ranges their dither is. Writes results/entropy_bits.json and .png.

Without it, both coders get the same symbols and a table made from their counts, and run in turns in
one process on 1 and 2 threads into touched memory. Huffman: canonical codes of at most 11
bits, eight interleaved streams, up to four symbols per look-up (parts/huffman.cpp). Prints a table
and writes results/entropy.json (not with fewer rounds).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table as Grid
from torch import Tensor

from actzip.codecs import Group
from actzip.kernels.entropy_table import SPAN, Table, entropy_bits
from actzip.kernels.native.entropy import count, frequency_tensor
from actzip.kernels.native.library import call
from actzip.kernels.reference.planes import unpack
from parts import stored_bits
from parts.huffman import Huffman
from parts.results import write

RESULTS = Path(__file__).parent / "results"
CODES, ROUNDS = 1 << 21, 300


def symbols(codes: int) -> Iterator[tuple[str, int, Tensor]]:
    """(name, codes per symbol, symbols) as Group and Bounded hand them to the coder."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(codes, generator=generator)
    for bits, together in ((2, 4), (2, 1), (4, 2), (4, 1)):
        yield f"Group {bits} bits, normal", together, of_group(normal, bits, together)
    yield "Group 2 bits, ReLU", 4, of_group(normal.relu(), 2, 4)
    top = float(normal.max())
    for part in (0.01, 0.1):
        step = 2 * part * top
        yield f"Bounded {part:.0%} of max, ReLU", 1, (normal.relu() / step).round().byte()
    u = torch.rand(codes, generator=generator) - 0.5
    laplace = -u.sign() * (1 - 2 * u.abs()).clamp(min=1e-7).log()
    for steps in (16, 4):
        low = float(laplace.min())
        scaled = (laplace - low) / (float(laplace.max()) - low) * steps
        yield f"{steps + 1} steps over the range, Laplace", 1, scaled.round().byte()


def of_group(x: Tensor, bits: int, together: int) -> Tensor:
    """The codes of a Group payload, several to a symbol (codecs/group_entropy.py)."""
    codec = Group(bits=bits)
    data, layout = codec.encode(x).data, codec._layout(x)
    planes = data[layout.offsets[0] : layout.offsets[1]]
    return unpack(planes, x.numel() // together, bits * together)


class Rans:
    """The kernels of the entropy stage on memory that is there before it is timed."""

    def __init__(self, n: int, threads: int, table: Table) -> None:
        self._n, self._threads, self._table = n, threads, table
        self._frequency = frequency_tensor(table.frequencies)
        self._sizes, self._place = torch.empty(2, -(-n // SPAN), dtype=torch.int64)
        self._workspace = torch.zeros(2 * n + 4096, dtype=torch.uint8)

    def encode(self, x: Tensor) -> int:
        given = (x, self._n, self._frequency, self._table.chain, self._sizes, self._place)
        total = call("entropy_encode", *given, self._workspace, self._threads)
        return total + len(self._table.stored()) + 4 * self._sizes.numel()

    def arrange(self, x: Tensor) -> None:
        """Puts the spans in order, which decoding needs and Huffman's spans are spared."""
        given = (x, self._n, self._frequency, self._table.chain, self._sizes, self._place)
        self._offsets = self._sizes.cumsum(0) - self._sizes
        self._data = torch.zeros(int(self._sizes.sum()), dtype=torch.uint8)
        ready = (self._workspace, self._offsets, self._data, self._threads)
        call("entropy_gather", *given, *ready)

    def decode(self, out: Tensor) -> None:
        given = (self._offsets, self._data, self._frequency)
        call("entropy_decode", *given, self._table.chain, self._n, out, self._threads)


def compare(x: Tensor, threads: int, rounds: int) -> dict[str, Any]:
    """Bytes and best seconds of both coders."""
    counts = count(x)
    rans, huffman = Rans(x.numel(), threads, Table.of(counts)), Huffman(x.numel(), threads)
    huffman.table(torch.tensor(counts))
    out = torch.zeros(x.numel() + 8, dtype=torch.uint8)
    facts: dict[str, Any] = {"entropy": entropy_bits(counts) / 8}
    facts["rans"], facts["huffman"] = rans.encode(x), huffman.encode(x)
    rans.arrange(x)
    for coder in (rans, huffman):
        coder.decode(out)
        if not torch.equal(out[: x.numel()], x):
            raise RuntimeError(f"{type(coder).__name__} gave other symbols back")
    acts: dict[str, Callable[[], object]] = {
        "rans_encode": lambda: rans.encode(x),
        "huffman_encode": lambda: huffman.encode(x),
        "rans_decode": lambda: rans.decode(out),
        "huffman_decode": lambda: huffman.decode(out),
    }
    best = dict.fromkeys(acts, float("inf"))
    for _ in range(rounds):
        for name, act in acts.items():
            began = time.perf_counter()
            act()
            best[name] = min(best[name], time.perf_counter() - began)
    return facts | best


def measure(codes: int, rounds: int) -> Iterator[dict[str, Any]]:
    for name, together, x in symbols(codes):
        for threads in (1, 2):
            found = compare(x, threads, rounds)
            n = x.numel() * together
            row: dict[str, Any] = {"name": name, "together": together, "threads": threads}
            for key in ("entropy", "rans", "huffman"):
                row[f"{key}_bits"] = 8 * found.pop(key) / n
            yield row | {f"{key}_gcodes": n / seconds / 1e9 for key, seconds in found.items()}


def show(results: list[dict[str, Any]]) -> Grid:
    grid = Grid(title="rANS / Huffman: bits per code, and 10⁹ codes per second")
    for header in ("symbols", "codes each", "entropy", "bits", "threads", "encode", "decode"):
        grid.add_column(header, no_wrap=True)
    for row in results:
        both = {
            key: f"{row[f'rans_{key}']:.3f} / {row[f'huffman_{key}']:.3f}"
            for key in ("bits", "encode_gcodes", "decode_gcodes")
        }
        facts = (row["name"], str(row["together"]), f"{row['entropy_bits']:.3f}", both["bits"])
        speed = (both["encode_gcodes"], both["decode_gcodes"])
        grid.add_row(*facts, str(row["threads"]), *speed)
    return grid


def show_bits(rows: list[dict[str, Any]]) -> Grid:
    grid = Grid(title="Stored bits per element")
    headers = ("values", "step / σ", "entropy", "given dither", "Dithered", "above", "Bounded")
    for header in headers:
        grid.add_column(header, no_wrap=True)
    for row in rows:
        above = row["dithered"] / row["given_dither"] - 1
        bits = [f"{row[key]:.4f}" for key in ("entropy", "given_dither", "dithered")]
        grid.add_row(
            row["name"], f"{row['step']:g}", *bits, f"{above:.1%}", f"{row['bounded']:.4f}"
        )
    return grid


def write_bits(console: Console, steps: int = 30) -> None:
    rows = list(stored_bits.measure(1 << 18, steps))
    console.print(show_bits(rows))
    console.print(f"at most {stored_bits.worst(rows):.1%} above the entropy from 0.1 bits on")
    write(RESULTS / "entropy_bits.json", {"results": rows})
    stored_bits.draw(rows, RESULTS / "entropy_bits.png")
    console.print(f"written to {RESULTS.name}/entropy_bits.json and entropy_bits.png")


def main(codes: int = CODES, rounds: int = ROUNDS, bits: bool = False) -> None:
    torch.set_num_threads(1 if bits else 2)
    if bits:
        write_bits(Console(width=130))
        return
    results = list(measure(codes, rounds))
    console = Console(width=130)
    console.print(show(results))
    if codes < CODES or rounds < ROUNDS:
        return
    write(RESULTS / "entropy.json", {"codes": codes, "rounds": rounds, "results": results})
    console.print(f"written to {RESULTS.name}/entropy.json")


if __name__ == "__main__":
    typer.run(main)
