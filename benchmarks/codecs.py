"""Speed of every codec as a ratio to `y.copy_(x)`, and bits against noise.

    python benchmarks/codecs.py                     # 64 Mi elements, best of 20
    python benchmarks/codecs.py --elements 4194304 --rounds 3    # does it run?

Outputs are memory that has been touched before. Copy, encode and decode run in turns in one
process, so that all three see the same machine. Prints a table and writes results/codecs.json and
results/codecs.png (not when smaller than the default).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
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
from parts.timing import in_turns

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


def time_row(row: Row, x: Tensor, rounds: int) -> dict[str, Any]:
    payload = row.codec.encode(x, seed=1)
    buffer, out = payload.data.clone(), torch.zeros_like(x)

    def touched(nbytes: int, device: torch.device) -> Tensor:
        return buffer[:nbytes]

    timed = in_turns(
        x,
        lambda: row.codec.encode(x, seed=1, allocate=touched),
        lambda: row.codec.decode(payload, out=out),
        rounds,
    )
    return report(row.name, x, timed.ratios, timed.copy, payload.nbytes, row.target)


def report(
    name: str,
    x: Tensor,
    ratios: tuple[float, float],
    copy: float,
    nbytes: int,
    target: tuple[float, float] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": str(x.dtype).removeprefix("torch."),
        "encode": ratios[0],
        "decode": ratios[1],
        "encode_gelements": x.numel() * ratios[0] / copy / 1e9,
        "decode_gelements": x.numel() * ratios[1] / copy / 1e9,
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
        yield report(name, x, timed.ratios, timed.copy, rival.nbytes)


def show(results: list[dict[str, Any]]) -> Table:
    table = Table(title="speed; copy_ of the same tensor is 1")
    for column in ("", "encode", "to reach", "decode", "to reach", "Gel/s in", "out", "bits"):
        table.add_column(column, justify="left" if not column else "right")
    for row in results:
        if "missing" in row:
            table.add_row(row["name"], row["missing"])
            continue
        target = row["target"] or ("", "")
        table.add_row(
            row["name"],
            f"{row['encode']:.2f}",
            str(target[0]),
            f"{row['decode']:.2f}",
            str(target[1]),
            f"{row['encode_gelements']:.2f}",
            f"{row['decode_gelements']:.2f}",
            f"{row['bits']:.2f}",
        )
    return table


def main(elements: int = ELEMENTS, rounds: int = 20, threads: int = 2) -> None:
    torch.set_num_threads(threads)
    data = tensors(elements)
    results = [time_row(row, data[row.data], rounds) for row in rows(float(data["relu"].max()))]
    # Rivals are 10 to 100 times slower: fewer elements and rounds say the same.
    results += time_rivals(data["normal"][: elements // 16], min(rounds, 3))
    console = Console(width=100)
    console.print(show(results))
    points = rates.measure(min(elements, 1 << 22))
    if elements < ELEMENTS:
        return
    RESULTS.mkdir(exist_ok=True)
    rates.draw(points, RESULTS / "codecs.png")
    facts = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": threads,
        "elements": elements,
        "backend": kernels.backend_name(),
        "instructions": ISA[library.isa_level()] if library.available() else None,
        "speed": results,
        "rate": points,
    }
    (RESULTS / "codecs.json").write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"written to {RESULTS.name}/codecs.json and codecs.png")


if __name__ == "__main__":
    typer.run(main)
