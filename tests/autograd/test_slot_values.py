"""What backward reads of a saved tensor: tried by putting other values in its place."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slot_cases import CASES, Case
from slot_graph import Run, Slot, same_bits
from torch import Tensor

from actzip.autograd import slots
from actzip.autograd.slots import conventions, masks
from actzip.codecs import BitMask
from actzip.methods.base import Role

FILLS = ("random", "edges", "nan")

# Ops that are worth a row although PyTorch itself warns about them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is in beta and the API may change"),
    pytest.mark.filterwarnings("ignore:.*prototype stage"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported"),
]

named = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def stand_in(slot: Slot) -> Tensor | None:
    """What lossless storing would give back for a mask or a geometry slot; None: kept."""
    rule, x = slot.rule, slot.value
    if rule is None or not x.is_floating_point():
        return None
    if rule.role is Role.GEOMETRY:
        return torch.full_like(x, torch.nan)
    if rule.role is not Role.MASK or rule.mask is None:
        return None
    mask = conventions.agreeing(slot.node, slot.slot, rule.mask, x)
    assert mask is not None, f"{slot.node.name()} of {x.dtype} follows no convention that is known"
    if mask.fits is not None and not mask.fits(slot.node, x):
        return None
    off, on = mask.levels(slot.node, x)
    levels = torch.empty_like(x).fill_(off), torch.empty_like(x).fill_(on)
    return torch.where(mask.test(slot.node, x), levels[1], levels[0])


def layouts(case: Case) -> list[bool]:
    return [False, True] if case.last and any(len(s) == 4 for s in case.shapes) else [False]


@named
def test_masks_and_geometry_give_the_same_gradient_bits(case: Case) -> None:
    roles = {s.rule.role for s in Run(case, torch.float32).slots() if s.rule}
    if not roles & {Role.MASK, Role.GEOMETRY}:
        return  # test_slots.py sees to it that each such row is met
    for dtype, last, fill in itertools.product(case.dtypes, layouts(case), FILLS):
        run = Run(case, dtype, fill, last)
        plain = run.gradients()
        for s in run.slots():
            value = stand_in(s)
            if value is not None:
                s.swap(lambda t, v=value: v)
        assert same_bits(run.gradients(), plain), (dtype, last, fill)


def test_one_bit_does_not_fit_where_torch_treats_nan_by_its_place() -> None:
    x = torch.randn(67, requires_grad=True)
    for op in (torch.nn.functional.hardtanh, torch.nn.functional.softshrink):
        node = op(x).grad_fn
        fits = slots.rule(node.name(), "self").mask.fits
        assert fits(node, x.detach())
        assert not fits(node, torch.full((67,), torch.nan))


class Probe:
    """Moves one slot at a time and looks at how the gradient follows."""

    def __init__(self, case: Case) -> None:
        self.run = Run(case, torch.float64)
        self.slots: dict[tuple[str, str], Slot] = {}  # the first of each name
        for s in self.run.slots():
            if s.rule and s.value.dtype is torch.float64 and s.value.dim():
                self.slots.setdefault((s.node.name(), s.slot), s)

    def of(self, role: Role) -> list[tuple[str, str]]:
        return [name for name, s in self.slots.items() if s.rule and s.rule.role is role]

    def second_difference(self, name: tuple[str, str]) -> tuple[float, float]:
        """How far the gradient is from affine in this slot, and how far it moves at all."""
        s, generator = self.slots[name], torch.Generator().manual_seed(2)
        one, two = (
            torch.randn(s.value.shape, generator=generator, dtype=torch.float64) / 8
            for _ in range(2)
        )
        base, moved = s.value.detach().clone(), [torch.zeros_like(one)]
        s.swap(lambda t: base + moved[0])
        results = []
        for step in (torch.zeros_like(one), one, two, one + two):
            moved[0] = step
            results.append(torch.cat([g.flatten() for g in self.run.gradients()]))
        moved[0] = torch.zeros_like(one)
        plain, first, second, both = results
        scale = max(float(r.abs().max()) for r in results) or 1.0
        bend = float((plain + both - first - second).abs().max()) / scale
        return bend, float((first - plain).abs().max()) / scale


#: (case, node, slot) whose gradient does not depend on the slot in just this variant.
UNREAD = {
    ("div with mode", "DivBackward2", "self"),
    ("grid sample nearest", "GridSampler2DBackward0", "input"),
    ("grid sample nearest", "TanhBackward0", "result"),
    ("rrelu frozen", "RreluWithNoiseBackward0", "noise"),
    ("lp pool", "MulBackward0", "other"),  # times the gradient of a sign, which is 0
    ("LSTMCell", "SigmoidBackward0", "result"),  # the forget gate of an empty memory
    ("ctc", "LogSoftmaxBackward0", "result"),  # times the sum of ctc's gradient, which is 0
    ("ctc with tensors", "LogSoftmaxBackward0", "result"),
}


@named
def test_gradient_is_affine_in_linear_slots_and_bends_in_nonlinear_ones(case: Case) -> None:
    probe = Probe(case)
    for name in probe.of(Role.LINEAR):
        bend, move = probe.second_difference(name)
        assert bend < 1e-10, name
        assert move > 1e-9 or (case.name, *name) in UNREAD, name
    for name in probe.of(Role.NONLINEAR):
        bend, _ = probe.second_difference(name)
        assert bend > 1e-9 or (case.name, *name) in UNREAD, name


# masks


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@settings(max_examples=300, deadline=None)
@given(ends=st.tuples(*[st.floats(allow_nan=False) | st.floats(-1e-6, 1e-6)] * 2))
def test_between_finds_a_value_of_the_dtype_wherever_there_is_one(
    dtype: torch.dtype, ends: tuple[float, float]
) -> None:
    near = torch.tensor(sorted(ends), dtype=torch.float64).to(dtype)
    low, high = near.tolist()
    up, down = near[0].nextafter(near[1]), near[1].nextafter(near[0])
    chosen = torch.tensor(masks.between(low, high, dtype), dtype=torch.float64).to(dtype)
    if (low < up < high and up.isfinite()) or (low < down < high and down.isfinite()):
        assert low < chosen < high
    if math.isfinite(low) or math.isfinite(high):
        assert low <= chosen <= high


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if "dropout" in c.name and "native" not in c.name],
    ids=lambda c: c.name,
)
def test_noise_is_recognised_in_every_dropout_and_one_bit_replaces_it(case: Case) -> None:
    for dtype in case.dtypes:
        run = Run(case, dtype, "edges")
        plain, found = run.gradients(), 0
        for s in run.slots():
            scale = slots.noise(s.value) if s.node.name() == "MulBackward0" else None
            if scale is not None:
                codec = BitMask(on=scale)
                value = codec.decode(codec.encode(s.value))
                s.swap(lambda t, v=value: v)
                found += 1
        assert found == 1, dtype
        assert same_bits(run.gradients(), plain), dtype


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 100),
        torch.tensor([0.0, math.nan]),
        torch.tensor([0.0, math.inf]),
        torch.tensor([-0.0, 2.0]),
        torch.tensor([0.0, -2.0]),
        torch.tensor([0, 1]),
        torch.empty(0),
    ],
    ids=["random", "nan", "inf", "negative zero", "negative", "integers", "empty"],
)
def test_what_is_not_noise_is_not_taken_for_it(x: Tensor) -> None:
    assert slots.noise(x) is None
