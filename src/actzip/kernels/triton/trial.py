"""Whether Triton's kernels do here what they should: tried once for each form, on small tensors.

`passed(device, "group")` codes a few hundred values on the device and compares all bytes and values
with those of the plain PyTorch kernels on the CPU. A kernel that does not compile, raises or writes
anything else is not used in this process: a warning says so, and the reference runs in its place.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BoundedLayout, strict_bounds
from actzip.kernels.dithered_layout import DitheredLayout, sides, worst_case
from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.entropy_table import Table
from actzip.kernels.fixedpoint_layout import FixedPointLayout
from actzip.kernels.group_layout import ROUNDING, GroupLayout
from actzip.kernels.reference.index import packed_size

_SEED = 0x1234_5678_9ABC
_FLOATS = (torch.float32, torch.bfloat16)
_WARNING = (
    "The Triton kernels of {form} do not work on {device}: {reason}. Plain PyTorch kernels are "
    "used instead; they are slower and give the same. `actzip doctor` examines "
    "this: please attach what it writes to an issue."
)

_LOCK = threading.RLock()
_FOUND: dict[tuple[str, str], str | None] = {}  # what is wrong, by type of device and form


def passed(device: torch.device, form: str) -> bool:
    """Whether this form's kernels may be used on the device; asks the device the first time."""
    key = (device.type, form)
    with _LOCK:
        if key not in _FOUND:
            reason = _fault(device, form)
            _FOUND[key] = reason
            if reason is not None:
                said = _WARNING.format(form=form, device=device, reason=reason)
                warnings.warn(said, RuntimeWarning, stacklevel=4)
        return _FOUND[key] is None


def fault(device: torch.device, form: str) -> str | None:
    """What was wrong with those that were tried; None if they are right, or not tried yet."""
    return _FOUND.get((device.type, form))


def _fault(device: torch.device, form: str) -> str | None:
    """What is wrong, or None."""
    try:
        with torch.no_grad():
            ours = importlib.import_module(f"actzip.kernels.triton.{form}")
            twin = importlib.import_module(f"actzip.kernels.reference.{form}")
            made = [each.cpu() for each in CASES[form](ours, device)]
            expected = CASES[form](twin, torch.device("cpu"))
    except Exception as error:  # a compiler's or a driver's, of any kind
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    pairs = zip(made, expected, strict=True)
    same = all(torch.equal(_octets(a), _octets(b)) for a, b in pairs)
    return None if same else "their bytes are not those of the reference"


def _octets(x: Tensor) -> Tensor:
    return x.contiguous().view(-1).view(torch.uint8)


def _values(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Of several sizes, with zeros; the same on every device."""
    x = (torch.arange(n, dtype=torch.float64, device="cpu") * 0.7371).sin() ** 3 * 2
    x[::5] = 0
    return x.to(dtype).to(device)


def _bytes(n: int, device: torch.device) -> Tensor:
    return torch.zeros(n, dtype=torch.uint8, device=device)


def _number(found: int | Tensor) -> Tensor:
    return torch.as_tensor(found, device="cpu").long().view(1)


def _group(module: Any, device: torch.device) -> list[Tensor]:
    found = []
    for dtype, bits, zero in ((torch.float32, (2,), False), (torch.bfloat16, (1, 4), True)):
        layout = GroupLayout(len(bits), 300, 64, bits, ROUNDING["dither"], zero, dtype)
        x = _values(300 * len(bits), dtype, device)
        data, out = _bytes(layout.offsets[-1], device), torch.empty_like(x)
        raw = module.encode(x, layout, _SEED, data)
        module.decode(data, layout, _SEED, out, True)
        found += [_number(raw), data, out]
        if zero:
            module.nonzero(data, layout, out)
            found.append(out)
    return found


def _dual(module: Any, device: torch.device) -> list[Tensor]:
    found = []
    for dtype, after in ((torch.float32, 1), (torch.bfloat16, 3)):
        layout = DualLayout.of(1, (1, 5, 9), after, 8, 2, False, "dither", False, dtype)
        x = _values(45 * after, dtype, device)
        data = _bytes(layout.averages_size + layout.rest.offsets[-1], device)
        raw, out = module.encode(x, layout, _SEED, data), torch.empty_like(x)
        module.decode(data, layout, _SEED, out, True)
        found += [_number(raw), data, out]
    return found


def _mask(module: Any, device: torch.device) -> list[Tensor]:
    found = []
    for dtype in _FLOATS:
        x, data = _values(333, dtype, device), _bytes(42, device)
        wrong, out = module.encode(x, None, data), torch.empty_like(x)
        module.decode(data, None, out)
        found += [_number(wrong), data, out]
    return found


def _index(module: Any, device: torch.device) -> list[Tensor]:
    x = (torch.arange(500, device="cpu") * 7919 % 1000 + 40).to(device)
    lo, hi = module.extremes(x)
    data, out = _bytes(packed_size(500, 10), device), torch.empty_like(x)
    module.encode(x, 40, 10, data)
    module.decode(data, 40, 10, out)
    return [_number(lo), _number(hi), data, out]


def _window(module: Any, device: torch.device) -> list[Tensor]:
    x = torch.arange(36, dtype=torch.float64, device="cpu").mul(1.7).sin().view(1, 1, 6, 6)
    _, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    geometry = [1, 3, 3, 1, 2, 2, 1, 2, 2, 0, 0, 0, 1, 1, 1, 1, 6, 6, 1]
    indices, places = indices.reshape(-1).to(device), _bytes(9, device)
    wrong, out = module.encode(indices, geometry, places), torch.empty_like(indices)
    lost = module.decode(places, geometry, out)
    return [_number(wrong), _number(lost), places, out]


def _cast(module: Any, device: torch.device) -> list[Tensor]:
    x = _values(300, torch.float32, device)
    short, back = x.to(torch.bfloat16).zero_(), torch.empty_like(x)
    module.convert(x, short)
    module.convert(short, back)
    return [short, back]


def _planes(module: Any, device: torch.device) -> list[Tensor]:
    codes = (torch.arange(300, device="cpu") * 37 % 8).to(torch.uint8).to(device)
    data = module.pack(codes, 3)
    return [data, module.unpack(data, 300, 3)]


def _fixedpoint(module: Any, device: torch.device) -> list[Tensor]:
    found = []
    for dtype in _FLOATS:
        layout = FixedPointLayout(320, dtype, (4, 6), 16, ROUNDING["dither"], True)
        x = _values(320, dtype, device)
        data = module.encode(x, layout, _SEED, lambda n: _bytes(n, device))
        out = torch.empty_like(x)
        module.decode(data, layout, _SEED, out)
        found += [data, out]
    return found


def _bounded(module: Any, device: torch.device) -> list[Tensor]:
    found = []
    for dtype, width in ((torch.float32, 0), (torch.bfloat16, 20)):
        bounds = strict_bounds((0.01,), dtype, device)
        layout = BoundedLayout(600, dtype, bounds, 1, True, width, 15)
        x = _values(600, dtype, device)
        data = module.encode(x, layout, _SEED, lambda n: _bytes(n, device))
        out = torch.empty_like(x)
        module.decode(data, layout, _SEED, out)
        found += [data, out]
    return found


def _bounded_entropy(module: Any, device: torch.device) -> list[Tensor]:
    bounds = strict_bounds((0.1,), torch.bfloat16, device)
    layout = BoundedLayout(3000, torch.bfloat16, bounds, 1, True)
    x = _values(3000, torch.bfloat16, device)
    data = module.encode(x, layout, _SEED, lambda n: _bytes(n, device))
    assert data is not None, "packing cannot be shorter here"
    out = torch.empty_like(x)
    module.decode(data, layout, _SEED, out)
    return [data, out]


def _dithered(module: Any, device: torch.device) -> list[Tensor]:
    bounds = strict_bounds((0.3,), torch.float32, device)
    found = []
    for both in (None, sides((0.1,), bounds, torch.float32)):
        layout = DitheredLayout(3000, torch.float32, bounds, 1, both)
        x = _values(3000, torch.float32, device)
        data = module.encode(x, layout, _SEED, lambda n: _bytes(n, device))
        assert data is not None, "steps are not too fine here"
        out = torch.empty_like(x)
        module.decode(data, layout, _SEED, out)
        found += [data, out]
        given, known = module.choose_for(x, layout, _SEED), torch.empty_like(x)
        room = _bytes(1 + worst_case(layout, given), device)
        size = int(module.encode_within(x * 1.5, layout, 5, room, given, 2))
        module.decode(room[1:], layout, 5, known, given)
        found += [room[:size], known]
    return found


def _norm(module: Any, device: torch.device) -> list[Tensor]:
    found = []
    each = _values(6, torch.float32, device) + 0.3
    for dtype in _FLOATS:
        x = _values(240, dtype, device).view(4, 6, 10)
        found.append(module.channels(x, each, each, (each.to(dtype), each < 0)))
        found.append(
            module.rows(x.view(40, 6), each.new_ones(40, 1), each[1].expand(40, 1), each, each)
        )
    return found


def _entropy(module: Any, device: torch.device) -> list[Tensor]:
    codes = (torch.arange(900, device="cpu") ** 2 % 23 % 7).to(torch.uint8).to(device)
    counts = module.count(codes)
    data = module.encode(codes, Table.of(counts), lambda n: _bytes(n, device))
    out = torch.empty_like(codes)
    module.decode(data, out)
    return [torch.tensor(counts, device="cpu"), data, out]


CASES: dict[str, Callable[[Any, torch.device], list[Tensor]]] = {
    "group": _group,
    "dual": _dual,
    "mask": _mask,
    "index": _index,
    "window": _window,
    "cast": _cast,
    "planes": _planes,
    "fixedpoint": _fixedpoint,
    "bounded": _bounded,
    "bounded_entropy": _bounded_entropy,
    "dithered": _dithered,
    "norm": _norm,
    "entropy": _entropy,
}
