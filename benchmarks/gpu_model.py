"""A model of the Triton kernels' time on GPUs, from their PTX. NOT a measurement: no GPU was run.

For every kernel: bytes moved per element, instructions that a thread executes per element (its PTX
is walked, with the arguments of a usual call), and the time that follows from the memory bandwidth
and the instruction rates of three GPUs, whichever is longer, over the time of `copy_`. PTX is what
the assembler reads, not what it writes; latencies, caches and clocks are not in the model. Kernels
that wait for each step's result are marked "serial": their figure is a lower bound, and a poor one.
Those whose loops run as often as memory says have no count of instructions: theirs is memory alone.

    python benchmarks/gpu_model.py            # writes results/gpu_model.json
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import typer
from rich.console import Console
from rich.table import Table
from triton.backends.compiler import GPUTarget

from actzip.kernels.triton import ahead, catalog

RESULTS = Path(__file__).parent / "results"
NOTE = "a model from PTX and data sheets, not a measurement: no GPU was run"
_STEPS = 200_000  #: more than any kernel of the catalog takes


@dataclass(frozen=True)
class Gpu:
    """From the vendor's data sheets: lanes are operations a multiprocessor finishes in a clock."""

    arch: int
    bandwidth: float  #: bytes a second
    multiprocessors: int
    clock: float
    whole: int  #: lanes for integers
    real: int  #: lanes for float32
    memory: int = 32  #: lanes for loads, stores, shuffles
    issue: int = 128


GPUS = {
    "A100 (40 GB)": Gpu(80, 1555e9, 108, 1.41e9, 64, 64),
    "H100 (SXM)": Gpu(90, 3350e9, 132, 1.83e9, 64, 128),
    "RTX 4090": Gpu(89, 1008e9, 128, 2.52e9, 64, 128),
}

_LINE = re.compile(r"^\s*(?:@(!?)(%p\d+)\s+)?([a-z]\w*)((?:\.\w+)*)\s*(.*?);")
_MEMORY = {"ld", "st", "shfl", "redux", "atom", "ldmatrix", "stmatrix", "bar"}
_FREE = {"mov", "bra", "ret", "cvta"}  #: names of registers, or gone in the machine's code
_COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_WHOLE = {
    "add": lambda a, b, *_: a + b,
    "sub": lambda a, b, *_: a - b,
    "mul": lambda a, b, *_: a * b,
    "mad": lambda a, b, c=0, *_: a * b + c,
    "min": lambda a, b, *_: min(a, b),
    "max": lambda a, b, *_: max(a, b),
    "and": lambda a, b, *_: a & b,
    "or": lambda a, b, *_: a | b,
    "xor": lambda a, b, *_: a ^ b,
    "shl": lambda a, b, *_: a << min(b, 64),
    "shr": lambda a, b, *_: a >> min(b, 64),
    "div": lambda a, b, *_: int(a / b) if b else 0,
    "rem": lambda a, b, *_: a - int(a / b) * b if b else 0,
    "cvt": lambda a, *_: a,
    "mov": lambda a, *_: a,
    "neg": lambda a, *_: -a,
    "not": lambda a, *_: ~a,
    "bfe": lambda a, b, c=0, *_: a >> b & (1 << c) - 1,
}


class Walk:
    """Thread 0 of a program, followed through its PTX: integers are computed, so loops run as often
    as they would; memory and floats are zeros, so what depends on data is taken as ordinary."""

    def __init__(self, text: str, given: tuple[int, ...], program: int) -> None:
        self.given, self.program = given, program
        self.values: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self._run(text.splitlines())

    def _run(self, lines: list[str]) -> None:
        labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\$\w+):", line))}
        at = steps = 0
        while at < len(lines) and steps < _STEPS:
            found = _LINE.match(lines[at])
            at += 1
            if not found:
                continue
            negated, predicate, name, kinds, rest = found.groups()
            steps += 1
            if name == "ret":
                return
            self.counts[_kind(name, kinds)] += 1
            if predicate and bool(self.values.get(predicate, 0)) == bool(negated):
                continue
            if name == "bra":
                at = labels[rest.strip()]
            else:
                self._step(name, kinds, [part.strip() for part in rest.split(",")])
        assert steps < _STEPS, "a loop that does not end"

    def _step(self, name: str, kinds: str, parts: list[str]) -> None:
        target = parts[0]
        if not target.startswith("%"):
            return  # stores, barriers, vectors: their values stay zero
        signed, width = ".s" in kinds, _width(kinds)
        if name == "ld" and ".param" in kinds:
            index = int(re.search(r"_param_(\d+)", parts[1])[1])  # type: ignore[index]
            self.values[target] = self.given[index] if index < len(self.given) else 0
        elif "f32" in kinds or "f64" in kinds or name in _MEMORY:
            self.values[target] = 0
        elif name == "setp":
            a, b = (self._value(part, signed, width) for part in parts[1:3])
            self.values[target] = _COMPARE.get(kinds.split(".")[1], lambda a, b: False)(a, b)
        elif name == "selp":
            self.values[target] = self._value(parts[1 if self._value(parts[3]) else 2])
        elif name in _WHOLE:
            args = [self._value(part, signed, width) for part in parts[1:]]
            out = 64 if ".wide" in kinds or target.startswith("%rd") else 32
            shift = width if ".hi" in kinds else 0
            self.values[target] = _WHOLE[name](*args) >> shift & (1 << out) - 1
        else:
            self.values[target] = 0

    def _value(self, part: str, signed: bool = False, width: int = 64) -> int:
        if part.startswith("%ctaid.x"):
            return self.program
        if re.fullmatch(r"-?\d+", part):
            value = int(part)
        elif part.startswith("0x"):
            value = int(part, 16)
        else:
            value = int(self.values.get(part, 0))
        value &= (1 << width) - 1
        return value - (1 << width) if signed and value >> (width - 1) else value


def _width(kinds: str) -> int:
    sizes = re.findall(r"\.[usb](8|16|32|64)", kinds)
    return int(sizes[-1]) if sizes else 64


def _kind(name: str, kinds: str) -> str:
    if name in _FREE:
        return "free"
    if name in _MEMORY:
        return "free" if ".param" in kinds else "memory"
    return "real" if re.search(r"\.f(16|32|64)", kinds) else "whole"


def executed(kernels: list[ahead.Built]) -> Counter[str]:
    """Instructions of all lanes, by kind, over all launches."""
    total: Counter[str] = Counter()
    for kernel in kernels:
        counts = Walk(kernel.text, kernel.given, kernel.programs // 2).counts
        lanes = kernel.programs * kernel.warps * 32
        total.update({kind: count * lanes for kind, count in counts.items()})
    return total


def times(gpu: Gpu, call: catalog.Call, counts: Counter[str]) -> dict[str, float | None]:
    """Seconds by memory and by instructions, and the longer of them over a copy's."""
    rate = gpu.multiprocessors * gpu.clock
    busy = [counts[kind] / (rate * getattr(gpu, kind)) for kind in ("whole", "real", "memory")]
    issued = sum(counts[kind] for kind in ("whole", "real", "memory")) / (rate * gpu.issue)
    memory, copy = call.moved / gpu.bandwidth, 2 * call.elements * call.itemsize / gpu.bandwidth
    arithmetic = 0.0 if call.loops_on_data else max(*busy, issued)
    return {
        "memory_us": round(memory * 1e6, 2),
        "instructions_us": None if call.loops_on_data else round(arithmetic * 1e6, 2),
        "times_copy": round(max(memory, arithmetic) / copy, 2),
    }


def row(call: catalog.Call, dtype: torch.dtype) -> dict[str, Any]:
    kernels = {a: ahead.built(GPUTarget("cuda", a, 32), call.call) for a in (80, 89, 90)}
    counts = {arch: executed(found) for arch, found in kernels.items()}
    kinds = ("whole", "real", "memory")
    shares = {kind: round(counts[90][kind] / call.elements, 1) for kind in kinds}
    return {
        "kernel": call.name,
        "dtype": str(dtype).removeprefix("torch."),
        "launches": len(kernels[90]),
        "registers": max(kernel.registers for kernel in kernels[90]),
        "bytes_per_element": round(call.moved / call.elements, 3),
        "instructions_per_element": None if call.loops_on_data else shares,
        "lower_bound_only": call.serial or call.loops_on_data,
        "model": {name: times(gpu, call, counts[gpu.arch]) for name, gpu in GPUS.items()},
    }


def main(only: str = "") -> None:
    """Write results/gpu_model.json; `only`: kernels whose names contain this, and write nothing."""
    rows = [
        row(call, dtype)
        for dtype in (torch.bfloat16, torch.float32)
        for call in catalog.calls(dtype)
        if only in call.name
    ]
    table = Table("kernel", "dtype", "bytes", "instructions", *GPUS, title=f"× copy_: {NOTE}")
    for found in rows:
        parts = found["instructions_per_element"]
        mark = "> " if found["lower_bound_only"] else ""
        ratios = [f"{mark}{times['times_copy']}" for times in found["model"].values()]
        total = f"{sum(parts.values()):.0f}" if parts else "?"
        cells = (found["kernel"], found["dtype"], found["bytes_per_element"])
        table.add_row(*map(str, cells), total, *ratios)
    Console().print(table)
    if not only:
        facts = {"what": NOTE, "triton": triton.__version__, "elements": catalog.N, "kernels": rows}
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "gpu_model.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
