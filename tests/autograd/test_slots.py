"""The slot table against PyTorch itself: every op is run and its saved tensors are listed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from slot_cases import CASES, Case
from slot_graph import Run, Slot
from torch import Tensor

from actzip.autograd import slots
from actzip.autograd.slots import lookup
from actzip.autograd.slots.lookup import TABLE
from actzip.control.op import UNKNOWN
from actzip.methods.base import Role

LARGE = 1024

#: Rows of nodes that only other devices, layouts or builds make.
ELSEWHERE = re.compile(
    r"^(Generated|Cudnn|Miopen|Mps|Mkldnn(?!Rnn)|Nnpack|Thnn|LstmMps|Fused(Dropout|Rms)|ConvDepthwise"
    r"|ConvolutionOverrideable|GroupedMm|Linear|Matmul|MaxPool2DBackward|FlashAtt|EfficientAtt"
    r"|ScaledDotProduct(?!FlashAttentionForCpu))"
)

#: Nodes that the oldest torch does not have.
NEWER = {
    *("AminmaxBackward0", "LdexpBackward0", "UpsampleLanczos2DAaBackward0"),
    *("MiopenCtcLossBackward0", "MiopenCtcLossBackward1"),
}

# Ops that are worth a row although PyTorch itself warns about them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is in beta and the API may change"),
    pytest.mark.filterwarnings("ignore:.*prototype stage"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported"),
]

named = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def filled(slot: Slot) -> bool:
    return slot.value.numel() >= LARGE


# what exists


@named
def test_rows_name_the_slots_that_exist_and_know_every_large_tensor(case: Case) -> None:
    run = Run(case, torch.float32)
    for node in run.nodes():
        if node.name() in TABLE:
            assert set(TABLE[node.name()].slots) == set(slots.slots_of(node)), node.name()
    unknown = [f"{s.node.name()}.{s.slot}" for s in run.slots() if filled(s) and s.rule is None]
    assert unknown == []


@named
def test_integers_are_index_booleans_are_mask_or_index(case: Case) -> None:
    for s in Run(case, torch.float32).slots():
        if s.rule is None or not filled(s) or s.value.is_floating_point() or s.value.is_complex():
            continue
        allowed = {Role.INDEX, Role.EXACT}
        if s.value.dtype is torch.bool:
            allowed.add(Role.MASK)
        assert s.rule.role in allowed | {Role.SMALL}, f"{s.node.name()}.{s.slot}"


@pytest.fixture(scope="module")
def met() -> set[tuple[str, str]]:
    """(node, slot) of every saved tensor of every case; lists without their numbers."""
    return {
        (s.node.name(), s.slot.partition("[")[0])
        for case in CASES
        for dtype in (torch.float32, torch.float64)  # an LSTM has other nodes in float64
        for s in Run(case, dtype).slots()
    }


def test_every_row_is_reached_by_a_case_or_belongs_elsewhere(met: set[tuple[str, str]]) -> None:
    absent = NEWER - generated().keys()
    here = {n: row for n, row in TABLE.items() if not ELSEWHERE.match(n) and n not in absent}
    rows = {
        (node, slot)
        for node, row in here.items()
        for slot, rule in row.slots.items()
        if rule.role is not Role.EXACT
    }
    assert sorted(rows - met) == []
    storing = {node for node, row in here.items() if row.slots}
    assert sorted(storing - {n for n, _ in met}) == []


def generated() -> dict[str, set[str]]:
    """{node: tensor slots} from the header of generated nodes that comes with PyTorch."""
    path = Path(torch.__file__).parent / "include/torch/csrc/autograd/generated/Functions.h"
    if not path.exists():
        pytest.skip("this PyTorch comes without its generated headers")
    struct = re.compile(r"struct TORCH_API (\w+) : public \w+ \{\n#endif(.*?)\n\};", re.S)
    field = re.compile(r"^  (?:SavedVariable|std::vector<SavedVariable>) (\w+)_;", re.M)
    return {name: set(field.findall(body)) for name, body in struct.findall(path.read_text())}


def test_rows_are_spelled_as_in_pytorchs_own_list_on_other_devices_too() -> None:
    real = generated()
    assert len(real) > 600
    rows = {node: row for node, row in TABLE.items() if node in real or node not in NEWER}
    ours = {node: set(row.slots) for node, row in rows.items() if "GeneratedBackward" not in node}
    wrong = {node: names ^ real.get(node, {"?"}) for node, names in ours.items()}
    assert {node: names for node, names in wrong.items() if names} == {}
    assert real.keys() >= slots.VIEWS | slots.COPIES
    assert not any(real[name] for name in slots.VIEWS | slots.COPIES)


def test_views_share_their_input_storage_and_copies_do_not() -> None:
    x = torch.randn(8, 6, requires_grad=True) * 1
    for y in (x.view(-1), x.t(), x[1], x[1:], x.unsqueeze(0), x.expand(2, 8, 6), x.split(4)[1]):
        assert y.grad_fn.name() in slots.VIEWS
        assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    for y in (x.clone(), x.double(), x.t().contiguous()):
        assert y.grad_fn.name() in slots.COPIES
        assert y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


# asking and adding


def test_unknown_nodes_and_slots_have_no_rule() -> None:
    assert slots.rule("NoSuchBackward0", "self") is None
    assert slots.rule("ReluBackward0", "self") is None
    assert slots.op("NoSuchBackward0") is UNKNOWN
    assert "ReluBackward0" in TABLE


def test_list_slots_are_named_by_number_and_share_a_rule() -> None:
    x = torch.randn(8, 8, requires_grad=True)
    node = x[torch.tensor([1, 2]), torch.tensor([3, 4])].grad_fn
    assert slots.slots_of(node) == ("indices",)
    assert len(node._raw_saved_indices) == 2
    assert slots.rule("IndexBackward0", "indices[1]") == slots.rule("IndexBackward0", "indices")


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 2


def test_a_custom_function_has_the_slot_saved_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_ADDED", {})
    out = Double.apply(torch.randn(8, requires_grad=True))  # held: torch 2.10 frees with it
    node = out.grad_fn
    assert slots.slots_of(node) == ("tensors",)
    assert len(node._raw_saved_tensors) == 1
    assert slots.rule("DoubleBackward", "saved_tensors[0]") is None
    slots.register("DoubleBackward", "saved_tensors", "geometry")
    slots.register("DoubleBackward", "saved_tensors[1]", Role.LINEAR)
    assert slots.rule("DoubleBackward", "saved_tensors[0]") == slots.Rule(Role.GEOMETRY)
    assert slots.rule("DoubleBackward", "tensors[0]") == slots.Rule(Role.GEOMETRY)
    assert slots.rule("DoubleBackward", "saved_tensors[1]") == slots.Rule(Role.LINEAR)


def test_a_registered_role_replaces_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_ADDED", {})
    slots.register("LogBackward0", "self", "nonlinear")
    assert slots.rule("LogBackward0", "self") == slots.Rule(Role.NONLINEAR)


def test_a_wrong_role_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="got role 'lossy'; allowed are 'weight', 'small'"):
        slots.register("LogBackward0", "self", "lossy")
    with pytest.raises(ValueError, match="both must be names"):
        slots.register("", "self", "linear")


@pytest.mark.parametrize(
    ("exponent", "role"),
    [
        (0, "geometry"),
        (1, "geometry"),
        (2, "linear"),
        (3, "nonlinear"),
        (0.5, "exact"),
        (-1, "exact"),
    ],
)
def test_the_role_of_a_power_depends_on_the_exponent(exponent: float, role: str) -> None:
    node = (torch.rand(8, requires_grad=True) ** exponent).grad_fn
    rule = slots.rule("PowBackward0", "self")
    assert rule is not None
    assert rule.role is Role.EXACT
    assert rule.at(node).role is Role(role)
