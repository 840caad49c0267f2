"""What does this torch's backward do at a bound, at ±0, ±inf, NaN? Tried, not assumed.

Until torch 2.13 clamp passed the gradient of an element equal to a bound, since 2.14 it does not.
So a mask is used only after the op's own backward gave the same gradient with the stand-ins as
with the values, for everything that a comparison could treat in a way of its own. That is tried
once per op, dtype and kind of device, when the first such tensor comes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from actzip.autograd.slots.rule import Mask, Node

_INF, _NAN = math.inf, math.nan
_Op = Callable[[Tensor], Tensor]

_aten = torch.ops.aten
_leaky = _aten.leaky_relu_.default
_rrelu = _aten.rrelu_with_noise

# Bounds on both sides of zero, at zero and beside it; 0.3 and 0.7 are no numbers of any dtype.
_RANGES = ((-1.0, 1.0), (0.0, 6.0), (0.3, 0.7), (0.5, 0.5), (1.0, -1.0), (0.3, _INF), (-_INF, -0.7))
_BOUNDS = (0.0, 0.3, -0.7, 1.0, -_INF, _INF)


def _each(make: Callable[..., _Op], *options: Any) -> list[_Op]:
    return [make(*o) if isinstance(o, tuple) else make(o) for o in options]


#: For each node with a mask: calls that make one.
OPS: dict[str, list[_Op]] = {
    "ClampBackward1": [
        *_each(lambda a, b: lambda x: x.clamp(a, b), *_RANGES),
        *_each(lambda a: lambda x: x.clamp(min=a), *_BOUNDS),
        *_each(lambda a: lambda x: x.clamp(max=a), *_BOUNDS),
    ],
    "ClampMinBackward0": _each(lambda a: lambda x: x.clamp_min(a), *_BOUNDS),
    "ClampMaxBackward0": _each(lambda a: lambda x: x.clamp_max(a), *_BOUNDS),
    "HardshrinkBackward0": _each(lambda a: lambda x: F.hardshrink(x, a), 0.5, 0.3, 0.0),
    "HardsigmoidBackward0": [F.hardsigmoid],
    "HardtanhBackward0": _each(
        lambda a, b: lambda x: F.hardtanh(x, a, b), *(r for r in _RANGES if r[0] < r[1])
    ),
    # the gradient that comes is x itself: its own gradient is the mask
    "HardtanhBackwardBackward0": _each(
        lambda a, b: lambda x: _aten.hardtanh_backward(x, x.detach(), a, b),
        *(r for r in _RANGES if r[0] < r[1]),
    ),
    "LeakyReluBackwardBackward0": [lambda x: _aten.leaky_relu_backward(x, x.detach(), 0.25, False)],
    "LeakyReluBackward0": [lambda x: F.leaky_relu(x, 0.25)],
    "LeakyReluBackward1": [lambda x: _leaky(x.clone(), 0.25)],
    "NanToNumBackward0": [lambda x: x.nan_to_num(0.5)],
    "NansumBackward0": [torch.nansum],
    "ReluBackward0": [torch.relu, lambda x: x.clone().relu_()],
    # not in training: there the slope is in the noise, and making it would draw random numbers
    "RreluWithNoiseBackward0": [lambda x: _rrelu(x, torch.zeros_like(x), 0.25, 0.25)],
    "RreluWithNoiseBackward1": [lambda x: F.rrelu_(x.clone(), 0.25, 0.25)],
    "RreluWithNoiseFunctionalBackward0": [
        lambda x: _aten.rrelu_with_noise_functional(x, torch.zeros_like(x), 0.25, 0.25)[0]
    ],
    "SoftshrinkBackward0": _each(lambda a: lambda x: F.softshrink(x, a), 0.5, 0.3, 0.0),
    "ThresholdBackward0": _each(lambda a: lambda x: F.threshold(x, a, 2.0), *_BOUNDS),
    "ThresholdBackwardBackward0": _each(
        lambda a: lambda x: _aten.threshold_backward(x, x.detach(), a), *_BOUNDS
    ),
    "ThresholdBackward1": _each(lambda a: lambda x: torch.threshold_(x.clone(), a, 2.0), *_BOUNDS),
}

_FOUND: dict[tuple[str, torch.dtype, str], Mask | None] = {}


def agreeing(node: Node, slot: str, mask: Mask, x: Tensor) -> Mask | None:
    """The mask among `mask` and its others that does what the node's backward does; else None."""
    key = type(node).__name__, x.dtype, x.device.type
    try:
        return _FOUND[key]
    except KeyError:
        found = _FOUND[key] = _apart(lambda: _choose(key[0], slot, mask, x.dtype, x.device))
        return found


def unknown_convention(node: str, dtype: torch.dtype) -> str:
    """The reason to give when no mask agrees."""
    return (
        f"what {node} of torch {torch.__version__} does with {dtype} at bounds, zeros, inf or NaN "
        "is no rule that actzip knows: kept exactly"
    )


def _apart(work: Callable[[], Mask | None]) -> Mask | None:
    """Do it in a thread of its own: whatever is switched on in this one (no_grad, autocast,
    inference mode, function and dispatch modes, torch.func, saved-tensor hooks, a trace) is not
    there, and the numbers that this thread's nodes are known by go on without a gap."""
    found: list[Mask | None] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception:  # what cannot be tried is not used; the step goes on
            found.append(None)

    thread = threading.Thread(target=run, name="actzip conventions", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread to be had
        return None
    thread.join()
    return found[0]


def _choose(
    name: str, slot: str, mask: Mask, dtype: torch.dtype, device: torch.device
) -> Mask | None:
    chosen: Mask | None = mask
    while chosen is not None:
        if all(
            agrees(op, name, slot, chosen, x)
            for op in OPS[name]
            for x in _inputs(dtype, device, nan=chosen.fits is None)
        ):
            return chosen
        chosen = chosen.other
    return None


def agrees(op: _Op, name: str, slot: str, mask: Mask, x: Tensor) -> bool:
    """Whether the gradient of op(x) is the same, bit for bit, with the mask's stand-ins."""
    x = x.detach().requires_grad_()
    out = op(x)
    node: Any = out.grad_fn
    if node.name() != name:
        return False
    gradient = torch.ones_like(out)
    (plain,) = torch.autograd.grad(out, x, gradient, retain_graph=True)
    saved = getattr(node, f"_saved_{slot}").detach()
    off, on = (torch.tensor(v, dtype=x.dtype, device=x.device) for v in mask.levels(node, saved))
    levels = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    levels.copy_(torch.where(mask.test(node, saved), on, off))
    getattr(node, f"_raw_saved_{slot}").register_hooks(lambda _: None, lambda _: levels)
    (ours,) = torch.autograd.grad(out, x, gradient)
    return torch.equal(plain, ours)


def _inputs(dtype: torch.dtype, device: torch.device, nan: bool) -> Iterator[Tensor]:
    """Every special value where a kernel works in full vectors, in their tail, and one by one."""
    ends = sorted({e for r in _RANGES for e in r if math.isfinite(e)} | {0.5, -0.3, 3.0, -3.0})
    near = torch.tensor([*ends, -0.7, -0.5], dtype=torch.float64).to(dtype)
    largest = torch.finfo(dtype).max
    far = near.new_tensor([-0.0, _INF, -_INF, largest, -largest, *([_NAN] if nan else [])])
    steps = (near.nextafter(near.new_tensor(towards)) for towards in (-_INF, _INF))
    values = torch.cat([near, far, *steps]).to(device)
    yield values
    yield values.repeat_interleave(64)
    yield torch.stack([values, values], dim=1)[:, 0]
