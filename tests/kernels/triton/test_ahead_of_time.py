"""Every kernel compiled ahead of time, for devices that are not here: what their assembler says."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable

import pytest
import torch

from actzip.kernels import triton

if not triton.available():
    pytest.skip("Triton is not installed: pip install 'actzip[triton]'", allow_module_level=True)

from triton.backends.compiler import GPUTarget

from actzip.kernels.bounded_layout import BoundedLayout
from actzip.kernels.fixedpoint_layout import FixedPointLayout
from actzip.kernels.group_layout import ROUNDING, GroupLayout
from actzip.kernels.triton import bounded, fixedpoint, group
from actzip.kernels.triton.ahead import Built, built
from actzip.kernels.triton.catalog import Call, calls

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
#: What one program may take, so that several fit on a multiprocessor.
REGISTERS, SHARED = 128, 40 << 10

BF16 = {call.name: call for call in calls(torch.bfloat16)}
FLOAT32 = {call.name: call for call in calls(torch.float32)}


#: Half a minute to compile: for one device of each kind, and with sides, which is the longer code.
_LONG = re.compile(r"^dithered .*(given|known)")


def _one_of_each(named: dict[str, Call], target: str) -> list[str]:
    """Without the variants: calls that come to other kernels, or to other code of the same."""
    found = [name for name in named if not re.search(r"^group (1|3|4|8)|stochastic", name)]
    long = {name for name in found if _LONG.search(name)}
    kept = {name for name in long if "sides" in name and target in ("sm_80", "gfx942")}
    return [name for name in found if name not in long - kept]


def assert_sound(kernel: Built, registers: int = REGISTERS) -> None:
    text = kernel.text
    assert kernel.spilled == 0, (kernel.name, kernel.spilled)
    assert kernel.shared <= SHARED, (kernel.name, kernel.shared)
    if kernel.target.backend == "cuda":
        assert kernel.registers <= registers, (kernel.name, kernel.registers)
        for word in ("div.full", "div.approx", "fma.", ".ftz", "mad.rn.f"):
            assert word not in text, (kernel.name, word)
    else:  # a division is five fused steps, and nothing else is fused
        fused = len(re.findall(r"\bv_(?:pk_)?(?:fma|mac|fmac|mad)_f(?:16|32|64)", text))
        assert fused == 5 * len(re.findall(r"\bv_div_fixup_f32", text)), kernel.name


def wide(kernel: Built) -> tuple[bool, bool]:
    """Whether it loads and whether it stores 16 bytes at a time."""
    if kernel.target.backend == "cuda":
        found = re.findall(r"(ld|st)\.global\S*\.(?:v4\.b32|v2\.b64)", kernel.text)
    else:
        kinds = {"load": "ld", "store": "st"}
        seen = re.findall(r"(?:global|buffer|flat)_(load|store)_dwordx4", kernel.text)
        found = [kinds[word] for word in seen]
    return "ld" in found, "st" in found


def check(call: Call, target: str) -> None:
    kernels = built(TARGETS[target], call.call)
    assert kernels
    for kernel in kernels:
        assert_sound(kernel)
    loads, stores = map(any, zip(*(wide(kernel) for kernel in kernels), strict=True))
    if call.wide:
        assert loads if call.reads_elements else stores, call.name


@pytest.mark.parametrize("name", BF16)
def test_sm_90(name: str) -> None:
    check(BF16[name], "sm_90")


@pytest.mark.parametrize("name", [name for name in FLOAT32 if name not in BF16])
def test_sm_90_kernels_of_other_types(name: str) -> None:
    check(FLOAT32[name], "sm_90")


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "sm_90"])
def test_one_of_each_kernel_for_other_devices(target: str) -> None:
    for name in _one_of_each(FLOAT32, target):
        check(FLOAT32[name], target)


@pytest.mark.parametrize("form", sorted(triton.FORMS))
def test_signatures_are_those_of_the_reference(form: str) -> None:
    ours = importlib.import_module(f"actzip.kernels.triton.{form}")
    theirs = importlib.import_module(f"actzip.kernels.reference.{form}")
    names = ("encode", "decode", "store_raw", "nonzero", "extremes", "count", "convert", "pack")
    shared = [
        name for name in (*names, "unpack", "largest", "channels", "rows") if hasattr(theirs, name)
    ]
    assert shared
    for name in shared:
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert inspect.signature(mine) == inspect.signature(other), name


@pytest.mark.parametrize("n", [1, 33, (1 << 31) + 5])
def test_sizes_that_triton_specialises(n: int) -> None:
    layout = GroupLayout(1, n, 32, (2,), ROUNDING["dither"], False, torch.float32)
    x = torch.empty(n, device="meta")
    data = torch.empty(layout.offsets[-1], dtype=torch.uint8, device="meta")
    raw = torch.empty(1, dtype=torch.int64, device="meta")
    for seed in (1, torch.empty(1, dtype=torch.int64, device="meta")):
        group_calls = [
            lambda seed=seed: group.encode_into(x, layout, seed, data, raw),
            lambda seed=seed: group.decode_from(data, layout, seed, x),
        ]
        for call in group_calls:
            for kernel in built(TARGETS["sm_90"], call):
                assert_sound(kernel, registers=192)


def _scalars(kernel: Built) -> int:
    """Arguments of 64 bits that are no pointers."""
    found = re.findall(r"\.param \.u64(?! \.ptr)", kernel.text)
    return len(found)


def _calls_of(n: int) -> list[Callable[[], object]]:
    """Kernels of a tensor of so many elements, which takes no memory."""
    x, small = torch.empty(n, device="meta"), torch.empty(1, device="meta")
    octets, symbols = (torch.empty(n, dtype=t, device="meta") for t in (torch.uint8, torch.int32))
    each = torch.empty(-(-n // 4096), dtype=torch.int64, device="meta")
    bounds, plain = (
        BoundedLayout(n, x.dtype, small, 1, True),
        GroupLayout(1, n, 256, (2,), 2, False, x.dtype),
    )
    fixed = FixedPointLayout(n, x.dtype, (4,), 1, 2, False)
    data = torch.empty(plain.offsets[-1] + 4096, dtype=torch.uint8, device="meta")
    words = torch.empty(n, dtype=torch.int32, device="meta")
    return [
        lambda: group.encode_into(x, plain, 5, data, each[:1]),
        lambda: group.decode_from(data[:-4096], plain, 5, x),
        lambda: group.with_filled(x, plain, data, store=True),
        lambda: bounded.quantize_into(x, bounds, 5, symbols, octets, each, each, words, 8),
        lambda: bounded.pack_into(x, bounds, symbols, octets, each, words),
        lambda: fixedpoint.write_into(x, fixed, 5, small, small, each, words),
    ]


@pytest.mark.parametrize("at", range(6))
def test_elements_beyond_two_to_the_31_are_counted_in_64_bits(at: int) -> None:
    (few,), (many,) = (built(TARGETS["sm_90"], _calls_of(n)[at]) for n in (1 << 20, 3 << 31))
    assert _scalars(many) > _scalars(few)  # how many there are
    # where a program's elements begin is a product of 64 bits in both
    assert re.search(r"mul\.wide|shl\.b64|mul\.lo\.s64|mad\.wide|mad\.lo\.s64", few.text)
    assert many.spilled == 0
