"""Kernels compiled ahead of time, for a device that need not be there.

    for kernel in built(GPUTarget("cuda", 90, 32), lambda: group.encode_into(...)):
        print(kernel.name, kernel.registers, kernel.text)

What a call would launch is specialised as Triton itself does it, from the arguments. Not under
TRITON_INTERPRET.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from actzip.kernels.triton import launch


@dataclass(frozen=True)
class Built:
    """A compiled kernel: the assembler's text and what it needs of the device."""

    name: str
    programs: int
    target: GPUTarget
    text: str  #: PTX, or AMD's assembler
    registers: int
    spilled: int  #: bytes, or on AMD registers
    shared: int  #: bytes
    warps: int
    given: tuple[int, ...]  #: the arguments, 0 for pointers


class _Absent:
    """Stands for a driver: says what to compile for, and runs nothing."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> str:
        return f"{self.target.backend} {self.target.arch}"

    def get_current_stream(self, device: object) -> int:
        return 0


@contextmanager
def _aside(target: GPUTarget) -> Iterator[list[tuple[str, int, tuple[object, ...], Any]]]:
    """Launches within are compiled for the target and put into the list."""
    found: list[tuple[str, int, tuple[object, ...], Any]] = []
    before, launch.collected = launch.collected, found
    active = driver._active
    driver.set_active(_Absent(target))
    try:
        yield found
    finally:
        launch.collected, driver._active = before, active


def built(target: GPUTarget, call: Callable[[], object]) -> list[Built]:
    """The kernels that `call` would launch."""
    with _aside(target) as found:
        call()
    return [_read(name, programs, target, args, kernel) for name, programs, args, kernel in found]


def _read(
    name: str, programs: int, target: GPUTarget, args: tuple[object, ...], kernel: Any
) -> Built:
    # a number that is 1 becomes a constant of the kernel
    given = tuple(
        a if isinstance(a, int) else 0 for a in args if not (isinstance(a, int) and a == 1)
    )
    needs = {
        "shared": kernel.metadata.shared,
        "warps": kernel.metadata.num_warps,
        "given": given,
    }
    if target.backend == "cuda":
        text = kernel.asm["ptx"]
        return Built(name, programs, target, text, *_ptxas(text, target.arch), **needs)
    text = kernel.asm["amdgcn"]
    registers, spilled = (
        max(int(n) for n in re.findall(rf"\.{word}:\s+(\d+)", text))
        for word in ("vgpr_count", "vgpr_spill_count")
    )
    return Built(name, programs, target, text, registers, spilled, **needs)


def _ptxas(text: str, arch: int) -> tuple[int, int]:
    """Registers of a thread and bytes spilled, as NVIDIA's assembler reports them."""
    nvidia = knobs.nvidia
    tool = (nvidia.ptxas_blackwell if arch >= 100 else nvidia.ptxas).path
    name = f"sm_{arch}a" if arch >= 90 else f"sm_{arch}"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as source:
        source.write(text)
        source.flush()
        command = [tool, "-v", "--fmad=false", f"--gpu-name={name}", source.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = max(int(n) for n in re.findall(r"Used (\d+) registers", said))
    spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill", said))
    return registers, spilled
