"""The traits of ops: nobody else knows a node by its name, and twins on other devices are alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import actzip
from actzip.autograd import slots
from actzip.autograd.slots.lookup import TABLE
from actzip.control.backward import Backward
from actzip.control.error import error_weights
from actzip.control.op import Channels, Kind, Op, channel_dim
from actzip.methods.actnn import group_at
from actzip.methods.base import Role
from predictions import a_site

ROOT = Path(actzip.__file__).parent

#: A level of ActNN is a part of a name by chance.
OTHERWISE = {"L1"}


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """The string constants of a file that are not docstrings."""
    tree = ast.parse(path.read_text())
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def _spells_a_node(text: str) -> bool:
    """A capitalised word that is a part of a node's name, or the end that all of them have."""
    word = text.isidentifier() and text[0].isupper() and text not in OTHERWISE
    return "Backward0" in text or (word and any(text in node for node in TABLE))


@pytest.mark.parametrize("part", ["methods", "control", "autograd"])
def test_no_node_is_known_by_its_name_outside_the_table(part: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / part).rglob("*.py"))
        if "slots" not in path.parts
        for line, text in _strings(path)
        if _spells_a_node(text)
    ]
    assert found == []


def test_what_the_search_above_looks_for() -> None:
    said = ["Conv", "BatchNorm", "ReluBackward0", "Mv", "LayerNorm", "no rule for XBackward0"]
    assert all(_spells_a_node(text) for text in said)
    assert not any(_spells_a_node(text) for text in ["input", "mat2", "a Conv of it", "Zebra"])


#: Nodes of other devices and libraries, and those that do the same on a CPU.
TWINS = {
    "CudnnAttentionBackward0": "ScaledDotProductFlashAttentionForCpuBackward0",
    "CudnnBatchNormBackward0": "NativeBatchNormBackward0",
    "CudnnConvolutionBackward0": "ConvolutionBackward0",
    "CudnnConvolutionTransposeBackward0": "ConvolutionBackward0",
    "CudnnRnnBackward0": "MkldnnRnnLayerBackward0",
    "EfficientAttentionBackward0": "ScaledDotProductFlashAttentionForCpuBackward0",
    "FlashAttentionBackward0": "ScaledDotProductFlashAttentionForCpuBackward0",
    "FusedRmsNormBackward0": "NativeLayerNormBackward0",
    "LstmMpsBackward0": "MkldnnRnnLayerBackward0",
    "MiopenBatchNormBackward0": "NativeBatchNormBackward0",
    "MiopenConvolutionBackward0": "ConvolutionBackward0",
    "MiopenConvolutionTransposeBackward0": "ConvolutionBackward0",
    "MiopenDepthwiseConvolutionBackward0": "ConvolutionBackward0",
    "MiopenRnnBackward0": "MkldnnRnnLayerBackward0",
    "MkldnnConvolutionBackward0": "ConvolutionBackward0",
    "MkldnnLinearBackward0": "LinearBackward0",
    "MpsConvolutionBackward0": "ConvolutionBackward0",
    "MpsConvolutionTransposeBackward0": "ConvolutionBackward0",
    "ScaledDotProductCudnnAttentionBackward0": "ScaledDotProductFlashAttentionForCpuBackward0",
    "ScaledDotProductEfficientAttentionBackward0": "ScaledDotProductFlashAttentionForCpuBackward0",
    "ScaledDotProductFlashAttentionBackward0": "ScaledDotProductFlashAttentionForCpuBackward0",
}


@pytest.mark.parametrize(("node", "twin"), TWINS.items())
def test_nodes_of_other_devices_are_what_their_twins_on_a_cpu_are(node: str, twin: str) -> None:
    a, b = slots.op(node), slots.op(twin)
    assert (a.kind, a.channels, a.weight) == (b.kind, b.channels, b.weight)
    assert a.kind is not Kind.OTHER


def test_every_node_of_another_device_with_a_kind_has_a_twin() -> None:
    elsewhere = ("Cudnn", "Miopen", "Mps", "ScaledDotProduct")
    kinds = {Kind.CONVOLUTION, Kind.BATCH_NORM, Kind.ATTENTION, Kind.RECURRENT}
    found = {n for n, row in TABLE.items() if n.startswith(elsewhere) and row.op.kind in kinds}
    own = {"ScaledDotProductFlashAttentionForCpuBackward0"}
    own.add("ScaledDotProductFusedAttentionOverrideableBackward0")
    assert found - own <= TWINS.keys()


@pytest.mark.parametrize("node", [n for n, row in TABLE.items() if "BatchNorm" in n])
def test_every_batch_norm_has_its_channels_in_dimension_1(node: str) -> None:
    op = slots.op(node)
    assert [channel_dim(op, dims) for dims in (2, 3, 4, 5)] == [-1, 1, 1, 1]


@pytest.mark.parametrize(
    ("row", "size"), [(96, 96), (384, 192), (512, 256), (100, 256), (1024, 256)]
)
def test_groups_end_with_the_rows_of_both_row_norms(row: int, size: int) -> None:
    for node in ("NativeLayerNormBackward0", "FusedRmsNormBackward0"):
        site = a_site(node, "input", Role.NONLINEAR)
        assert group_at(site, torch.zeros(2, 8, row), 256) == size
    conv = a_site("ConvolutionBackward0", "input", Role.LINEAR)
    assert group_at(conv, torch.zeros(2, 8, row), 256) == 256


def _told(op: Op, slot: str, x: Tensor, outer: Tensor, gave: int, **saved: object) -> Tensor:
    b = Backward("twin", op, slot, x, outer, (x,) * gave, (False,) * gave, saved)
    found = error_weights(b)
    assert found is not None
    assert found.input is not None
    return found.input


@pytest.mark.parametrize("slot", ["query", "key", "value", "output"])
def test_attention_on_cuda_has_the_formula_of_the_cpu(slot: str) -> None:
    """CUDA's nodes pad the rows of logsumexp, or give it a dimension or a name of its own."""
    q, k, v = (torch.randn(2, 3, 7, 8) for _ in range(3))
    scores = q @ k.transpose(-1, -2) / 8**0.5 + (bias := torch.randn(1, 1, 7, 7))
    lse, output = scores.logsumexp(-1), scores.softmax(-1) @ v
    given = {"query": q, "key": k, "value": v, "output": output, "scale": None}
    given |= {"is_causal": False, "dropout_p": 0.0}

    def told(node: str, **more: object) -> Tensor:
        return _told(slots.op(node), slot, given[slot], torch.ones_like(q), 3, **given, **more)  # type: ignore[arg-type]

    expected = told("ScaledDotProductFlashAttentionForCpuBackward0", logsumexp=lse, attn_mask=bias)
    padded = torch.nn.functional.pad(lse, (0, 25), value=torch.inf)
    efficient = told(
        "ScaledDotProductEfficientAttentionBackward0", log_sumexp=padded, attn_bias=bias
    )
    cudnn = told(
        "ScaledDotProductCudnnAttentionBackward0", logsumexp=lse[..., None], attn_bias=bias
    )
    assert float(expected.sum()) > 0
    assert torch.equal(efficient, expected)
    assert torch.equal(cudnn, expected)


def test_dropout_inside_attention_has_no_formula() -> None:
    q = torch.randn(1, 1, 4, 4)
    op = slots.op("ScaledDotProductFlashAttentionBackward0")
    with pytest.raises(ValueError, match="dropout"):
        _told(op, "value", q, q, 3, query=q, key=q, dropout_p=0.1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("backend", ["Cudnn", "Miopen", "Mps"])
def test_convolutions_of_single_backends_have_the_formula_of_the_others(
    backend: str, groups: int
) -> None:
    """They do not say whether they are transposed: their name does."""
    x, weight = torch.randn(2, 4, 6, 6), torch.randn(4, 4 // groups, 3, 3)
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    outer = torch.randn(2, 4, 6, 6)
    usual = slots.op("ConvolutionBackward0")
    for transposed, suffix in ((False, ""), (True, "Transpose")):
        op = slots.op(f"{backend}Convolution{suffix}Backward0")
        found = _told(op, "self", x, outer, 2, weight=weight, **options)
        expected = _told(
            usual, "input", x, outer, 2, weight=weight, transposed=transposed, **options
        )
        assert torch.equal(found, expected)


def test_frozen_batch_norm_of_cudnn_calls_eps_epsilon() -> None:
    x, r = torch.randn(4, 3, 5, 5), torch.rand(3)
    saved = {"training": False, "running_var": r, "weight": None, "result2": None}
    found = []
    for node, name in (("NativeBatchNormBackward0", "eps"), ("CudnnBatchNormBackward0", "epsilon")):
        b = Backward(node, slots.op(node), "input", x, x, (x, r), (False, True), {**saved, name: 1})
        told = error_weights(b)
        assert told is not None
        assert told.parameter is not None
        found.append(told.parameter)
    assert torch.equal(*found)
    assert torch.allclose(found[0][:, :, :1, :1], found[0])


def test_the_row_of_a_product_says_where_its_weight_is() -> None:
    """The formula of an operand needs to know which input is the other one."""
    with_formula = {n: r.op for n, r in TABLE.items() if r.op.kind in (Kind.DENSE, Kind.MATMUL)}
    wrong = [n for n, op in with_formula.items() if op.errors and op.weight is None]
    assert wrong == []
    assert sum(op.channels is Channels.LAST for op in with_formula.values()) >= 4
