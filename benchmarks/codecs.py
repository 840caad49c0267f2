"""Speed of every codec as a ratio to `y.copy_(x)`, and bits against noise.

    python benchmarks/codecs.py                     # 64 Mi elements, 5 allocations, best of 20
    python benchmarks/codecs.py --elements 4194304 --rounds 3    # does it run?
    python benchmarks/codecs.py --only Group --rounds 5          # some rows; writes nothing

Outputs are memory that has been touched before. Copy, encode and decode run in turns in one
process, so that all three see the same machine, with AVX2 and with AVX-512 if the processor has
both; all of it again in several fresh allocations. A row gives the median of their ratios, and the
range. Prints a table and writes results/codecs.json and results/codecs.png (not when smaller than
the default).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
from parts.results import write
from parts.timing import Timed, in_turns, spread

RESULTS = Path(__file__).parent / "results"
ELEMENTS = 1 << 26

#: Encode and decode as a ratio to copy_, for each instruction set.
Target = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Row:
    name: str
    codec: Codec
    data: str  #: which tensor
    target: Target = field(default_factory=dict)


def rows(top: float) -> Iterator[Row]:
    """The rows of the table; top is the largest value of the ReLU data."""
    group = to_reach((1.0, 1.2), (1.1, 1.4))
    yield Row("Group 2 bits", Group(bits=2), "normal", group)
    yield Row("Group 4 bits", Group(bits=4), "normal", to_reach((0.95, 1.05)))
    yield Row("Group 8 bits", Group(bits=8), "normal", to_reach((0.8, 0.9)))
    yield Row("Group 2 bits, zero", Group(bits=2, zero=True), "relu", to_reach((0.8, 1.0)))
    yield Row("Group 2 bits, bf16", Group(bits=2), "bfloat16")
    yield Row("Group 2 bits, fp16", Group(bits=2), "float16")
    yield Row("BitMask of bool", BitMask(), "bool", to_reach((1.2, 1.1)))
    yield Row("BitMask of fp32", BitMask(), "relu")
    yield Row("Index, 9 values of int64", Index(), "index")
    yield Row("Dual 8, 2 bits", Dual(), "maps", to_reach((0.8, 1.3), (0.9, 1.4)))
    error = 0.01 * top
    bounded = to_reach((0.7, 0.9), (0.9, 1.0))
    yield Row("Bounded 1 %", Bounded(error=error), "relu", bounded)
    squeezed = to_reach((0.45, 0.6), (0.6, 0.75))
    yield Row("Bounded 1 %, entropy", Bounded(error=error, entropy=True), "relu", squeezed)


def to_reach(avx2: tuple[float, float], avx512: tuple[float, float] | None = None) -> Target:
    return {"avx2": avx2, "avx512": avx512 or avx2}


def instruction_sets() -> tuple[str, ...]:
    """Those of this processor that are worth a column; the portable one where there is no other."""
    if not library.available():
        return ("none",)
    best = library.set_isa_level(-1)
    return library.ISA[1 : best + 1] or library.ISA[:1]


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
    """All instruction sets in each allocation: they see the same memory."""
    sets = instruction_sets()
    runs: dict[str, list[Timed]] = {name: [] for name in sets}
    nbytes = 0
    for _ in range(allocations):
        x = data.clone()
        for name in sets:
            if name in library.ISA:
                library.set_isa_level(library.ISA.index(name))
            timed, nbytes = time_once(row.codec, x, rounds)
            runs[name].append(timed)
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
    runs: dict[str, list[Timed]],
    nbytes: int,
    target: Target | None = None,
) -> dict[str, Any]:
    """A row of the table; what depends on the instruction set under the set's name."""
    rate = x.numel() / 1e9
    every = [run for each in runs.values() for run in each]
    return {
        "name": name,
        "dtype": str(x.dtype).removeprefix("torch."),
        "copy_gelements": spread(every, lambda run: rate / run.copy).median,
        "bits": 8 * nbytes / x.numel(),
        "sets": {isa: speeds(each, rate, (target or {}).get(isa)) for isa, each in runs.items()},
    }


def speeds(
    runs: Sequence[Timed], rate: float, target: tuple[float, float] | None
) -> dict[str, Any]:
    encode = spread(runs, lambda run: run.copy / run.encode)
    decode = spread(runs, lambda run: run.copy / run.decode)
    return {
        "encode": encode.median,
        "decode": decode.median,
        "encode_range": encode.range,
        "decode_range": decode.range,
        "encode_gelements": spread(runs, lambda run: rate / run.encode).median,
        "decode_gelements": spread(runs, lambda run: rate / run.decode).median,
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
        yield report(name, x, {"none": [timed]}, rival.nbytes)


def show(results: list[dict[str, Any]]) -> Table:
    """Instruction sets side by side; one column each for what uses none of them."""
    sets = list(dict.fromkeys(isa for row in results for isa in row.get("sets", {})))
    table = Table(title="copy_ of the same tensor is 1: median (range) of the allocations")
    table.add_column("")
    for isa in sets:
        for column in ("encode", "to reach", "decode", "to reach", "Gel/s in, out"):
            table.add_column(f"{isa}\n{column}" if isa != "none" else column, justify="right")
    table.add_column("copy Gel/s", justify="right")
    table.add_column("bits", justify="right")
    for row in results:
        if "missing" in row:
            table.add_row(row["name"], row["missing"])
            continue
        cells = [cell for isa in sets for cell in columns(row["sets"].get(isa))]
        table.add_row(row["name"], *cells, f"{row['copy_gelements']:.2f}", f"{row['bits']:.2f}")
    return table


def columns(speed: dict[str, Any] | None) -> tuple[str, ...]:
    if speed is None:
        return ("",) * 5
    target = speed["target"] or ("", "")
    rates = f"{speed['encode_gelements']:.2f}, {speed['decode_gelements']:.2f}"
    return ratio(speed, "encode"), str(target[0]), ratio(speed, "decode"), str(target[1]), rates


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
    console = Console(width=200)
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
        "threads": threads,
        "elements": elements,
        "allocations": allocations,
        "backend": kernels.backend_name(),
        "instructions": instruction_sets(),
        "speed": results,
        "rate": points,
    }
    write(RESULTS / "codecs.json", facts)


if __name__ == "__main__":
    typer.run(main)
