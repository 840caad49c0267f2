"""Speed of every codec as a ratio to `y.copy_(x)`, and bits against noise.

    python benchmarks/codecs.py                     # 64 Mi elements, 5 allocations, best of 20
    python benchmarks/codecs.py --elements 4194304 --rounds 3    # does it run?
    python benchmarks/codecs.py --only Group --rounds 5          # some rows; writes nothing

Outputs are memory that has been touched before. Copy, encode and decode run in turns in one
process, so that all three see the same machine; all of it again in several fresh allocations. A
row gives the median of their ratios, and the range. Prints a table and writes results/codecs.json
and results/codecs.png (not when smaller than the default).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from actzip import kernels
from actzip.codecs import BitMask, Bounded, Codec, Dual, Group, Index
from actzip.kernels.native import library
from parts import rates, rivals
from parts.timing import Timed, in_turns, spread

RESULTS = Path(__file__).parent / "results"
ELEMENTS = 1 << 26
ISA = ("portable", "AVX2", "AVX-512")


@dataclass(frozen=True)
class Row:
    name: str
    codec: Codec
    data: str  #: which tensor
    target: tuple[float, float] | None = None  #: encode, decode, as a ratio to copy_


def rows(top: float) -> Iterator[Row]:
    """The rows of the table; top is the largest value of the ReLU data."""
    yield Row("Group 2 bits", Group(bits=2), "normal", (1.0, 1.1))
    yield Row("Group 4 bits", Group(bits=4), "normal", (0.95, 1.05))
    yield Row("Group 8 bits", Group(bits=8), "normal", (0.8, 0.9))
    yield Row("Group 2 bits, zero", Group(bits=2, zero=True), "relu", (0.8, 1.0))
    yield Row("Group 2 bits, bf16", Group(bits=2), "bfloat16")
    yield Row("Group 2 bits, fp16", Group(bits=2), "float16")
    yield Row("BitMask of bool", BitMask(), "bool", (1.2, 1.1))
    yield Row("BitMask of fp32", BitMask(), "relu")
    yield Row("Index, 9 values of int64", Index(), "index")
    yield Row("Dual 8, 2 bits", Dual(), "maps", (0.65, 0.9))
    error = 0.01 * top
    yield Row("Bounded 1 %", Bounded(error=error), "relu", (0.6, 0.85))
    yield Row("Bounded 1 %, entropy", Bounded(error=error, entropy=True), "relu", (0.3, 0.4))


def tensors(elements: int) -> dict[str, Tensor]:
    """Each kind of data, `elements` elements of it (int64 a quarter: the same bytes)."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(elements, generator=generator)
    maps = elements // (32 * 56 * 56)
    return {
        "normal": normal,
        "relu": normal.relu(),
        "bfloat16": normal.bfloat16(),
        "float16": normal.half(),
        "bool": normal > 0,
        "index": torch.randint(0, 9, (elements // 4,), generator=generator),
        "maps": normal[: maps * 32 * 56 * 56].view(maps, 32, 56, 56),
    }


def time_row(row: Row, data: Tensor, rounds: int, allocations: int) -> dict[str, Any]:
    runs, nbytes = [], 0
    for _ in range(allocations):
        timed, nbytes = time_once(row.codec, data.clone(), rounds)
        runs.append(timed)
    return report(row.name, data, runs, nbytes, row.target)


def time_once(codec: Codec, x: Tensor, rounds: int) -> tuple[Timed, int]:
    """Times in one allocation, and the bytes of the payload."""
    payload = codec.encode(x, seed=1)
    buffer, out = payload.data.clone(), torch.zeros_like(x)

    def touched(nbytes: int, device: torch.device) -> Tensor:
        return buffer[:nbytes]

    timed = in_turns(
        x,
        lambda: codec.encode(x, seed=1, allocate=touched),
        lambda: codec.decode(payload, out=out),
        rounds,
    )
    return timed, payload.nbytes


def report(
    name: str,
    x: Tensor,
    runs: Sequence[Timed],
    nbytes: int,
    target: tuple[float, float] | None = None,
) -> dict[str, Any]:
    encode = spread(runs, lambda run: run.copy / run.encode)
    decode = spread(runs, lambda run: run.copy / run.decode)
    rate = x.numel() / 1e9
    return {
        "name": name,
        "dtype": str(x.dtype).removeprefix("torch."),
        "encode": encode.median,
        "decode": decode.median,
        "encode_range": encode.range,
        "decode_range": decode.range,
        "encode_gelements": spread(runs, lambda run: rate / run.encode).median,
        "decode_gelements": spread(runs, lambda run: rate / run.decode).median,
        "copy_gelements": spread(runs, lambda run: rate / run.copy).median,
        "bits": 8 * nbytes / x.numel(),
        "target": target,
    }


def time_rivals(x: Tensor, rounds: int) -> Iterator[dict[str, Any]]:
    for make in rivals.RIVALS:
        name = make.__name__
        try:
            rival = make(x)
            timed = in_turns(x, rival.encode, rival.decode, rounds)
        except ImportError:
            yield {"name": name, "missing": "not installed"}
            continue
        except Exception as error:  # foreign code: whatever it raises, the table goes on
            yield {"name": name, "missing": f"fails: {type(error).__name__}"}
            continue
        yield report(name, x, [timed], rival.nbytes)


def show(results: list[dict[str, Any]]) -> Table:
    table = Table(title="speed; copy_ of the same tensor is 1: median (range) of the allocations")
    columns = ("", "encode", "to reach", "decode", "to reach", "Gel/s in", "out", "copy", "bits")
    for column in columns:
        table.add_column(column, justify="left" if not column else "right")
    for row in results:
        if "missing" in row:
            table.add_row(row["name"], row["missing"])
            continue
        target = row["target"] or ("", "")
        table.add_row(
            row["name"],
            ratio(row, "encode"),
            str(target[0]),
            ratio(row, "decode"),
            str(target[1]),
            *(f"{row[key + '_gelements']:.2f}" for key in ("encode", "decode", "copy")),
            f"{row['bits']:.2f}",
        )
    return table


def ratio(row: dict[str, Any], way: str) -> str:
    low, high = row[way + "_range"]
    return f"{row[way]:.2f} ({low:.2f}–{high:.2f})"


def main(
    elements: int = ELEMENTS,
    rounds: int = 20,
    allocations: int = 5,
    threads: int = 2,
    only: str = "",
) -> None:
    torch.set_num_threads(threads)
    data = tensors(elements)
    results = [
        time_row(row, data[row.data], rounds, allocations)
        for row in rows(float(data["relu"].max()))
        if only in row.name
    ]
    if not only:
        # Rivals are 10 to 100 times slower: fewer elements and rounds say the same.
        results += time_rivals(data["normal"][: elements // 16], min(rounds, 3))
    console = Console(width=120)
    console.print(show(results))
    if only:
        return
    points = rates.measure(min(elements, 1 << 22))
    if elements >= ELEMENTS:
        save(results, points, elements, threads, allocations)
        console.print(f"written to {RESULTS.name}/codecs.json and codecs.png")


def save(
    results: list[dict[str, Any]],
    points: dict[str, list[tuple[float, float]]],
    elements: int,
    threads: int,
    allocations: int,
) -> None:
    RESULTS.mkdir(exist_ok=True)
    rates.draw(points, RESULTS / "codecs.png")
    facts = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": threads,
        "elements": elements,
        "allocations": allocations,
        "backend": kernels.backend_name(),
        "instructions": ISA[library.isa_level()] if library.available() else None,
        "speed": results,
        "rate": points,
    }
    (RESULTS / "codecs.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
