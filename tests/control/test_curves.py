"""The predicted variance of gradients is the measured one: curved ops, on real activations.

The formulas are of first order in the error, so the codes here are fine ones.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.autograd import slots
from actzip.codecs import Group
from actzip.control.backward import Backward
from actzip.control.error import error_weights
from predictions import OneSite, check, outcome
from trained import caught

SDPA = "ScaledDotProductFlashAttentionForCpuBackward0"

Function = Callable[[Tensor], Tensor]


def hidden() -> tuple[Tensor, Tensor]:
    """The input of a GELU (8, 17, 256), and the gradient at its output."""
    layer = caught("vit")["blocks.1.mlp.1"]
    return layer.x[:8], layer.gy[:8]


@pytest.mark.parametrize(
    ("node", "slot", "f"),
    [
        ("GeluBackward0", "self", F.gelu),
        ("GeluBackward0", "self", lambda x: F.gelu(x, approximate="tanh")),
        ("SiluBackward0", "self", F.silu),
        ("MishBackward0", "self", F.mish),
        ("HardswishBackward0", "self", F.hardswish),
        ("SoftplusBackward0", "self", lambda x: F.softplus(x, beta=2.0, threshold=5.0)),
        ("EluBackward0", "self", F.elu),
        ("CeluBackward0", "self", lambda x: F.celu(x, 0.7)),
        ("SinBackward0", "self", torch.sin),
        ("CosBackward0", "self", torch.cos),
        ("SinhBackward0", "self", torch.sinh),
        ("CoshBackward0", "self", torch.cosh),
        ("AsinhBackward0", "self", torch.asinh),
        ("ErfBackward0", "self", torch.erf),
        ("ErfcBackward0", "self", torch.erfc),
        ("AtanBackward0", "self", torch.atan),
        ("PowBackward0", "self", torch.square),
        ("PowBackward0", "self", lambda x: x**3),
        ("SigmoidBackward0", "result", torch.sigmoid),
        ("TanhBackward0", "result", torch.tanh),
        ("TanBackward0", "result", torch.tan),
        ("ExpBackward0", "result", torch.exp),
        ("Exp2Backward0", "result", torch.exp2),
        ("Expm1Backward0", "result", torch.expm1),
        ("ReciprocalBackward0", "result", torch.reciprocal),
        ("RsqrtBackward0", "result", torch.rsqrt),
    ],
)
def test_element_by_element(node: str, slot: str, f: Function) -> None:
    x, gy = hidden()
    if f is torch.tan:
        x = x / 4  # the poles are far
    elif f in (torch.reciprocal, torch.rsqrt):
        x = x.square() + 1
    check(outcome(f, [x], [], gy, OneSite(node, slot, Group(6)), draws=20))


@pytest.mark.parametrize("f", [F.selu, lambda x: F.elu(x, 1.3)])
def test_a_slope_that_jumps_has_no_formula(f: Function) -> None:
    x, gy = hidden()
    with pytest.raises(AssertionError, match="the slope jumps at 0"):
        outcome(f, [x], [], gy, OneSite("EluBackward0", "self", Group(6)), draws=2)


def test_an_activation_of_maps_in_channels_last() -> None:
    layer = caught("resnet")["stages.0.0.bn1"]
    x = layer.x.to(memory_format=torch.channels_last)
    check(outcome(F.silu, [x], [], layer.gy, OneSite("SiluBackward0", "self", Group(6)), draws=20))


@pytest.mark.parametrize("dim", [-1, 1, 0])
def test_softmax(dim: int) -> None:
    x, gy = hidden()
    method = OneSite("SoftmaxBackward0", "result", Group(6))
    check(outcome(lambda x: x.softmax(dim), [x], [], gy, method, draws=30))


def test_log_softmax() -> None:
    x, gy = hidden()
    method = OneSite("LogSoftmaxBackward0", "result", Group(6))
    check(outcome(lambda x: x.log_softmax(-1), [x], [], gy, method, draws=30))


def test_gated_linear_units() -> None:
    x, gy = hidden()
    method = OneSite("GluBackward0", "self", Group(6))
    check(outcome(lambda x: F.glu(x, -1), [x], [], gy[..., :128].contiguous(), method, draws=30))


def test_rms_norm_by_its_jacobian() -> None:
    """A CPU has no fused node: its backward is written down here."""
    layer = caught("vit")["blocks.1.norm1"]
    x, gz, gamma = layer.x[0, :4].double(), layer.gy[0, :4].double(), torch.rand(64).double()
    r = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

    def gradients(x: Tensor) -> Tensor:
        normal, h = x * r, gz * gamma
        gx = r * (h - normal * (h * normal).mean(-1, keepdim=True))
        return torch.cat([gx.flatten(), (gz * normal).sum(0)])

    jacobian = torch.autograd.functional.jacobian(gradients, x)
    exact = jacobian.square().flatten(1, -1)
    saved = {"normalized_shape": [64], "weight": gamma, "result1": r}
    gave = (gz, gamma)
    node = "FusedRmsNormBackward0"
    b = Backward(node, slots.op(node), "input", x, gz, gave, (False, True), saved)
    found = error_weights(b)
    assert found is not None
    assert found.parameter is not None
    assert found.input is not None
    assert torch.allclose(found.parameter.flatten(), exact[256:].sum(0))
    assert float(found.input.sum()) == pytest.approx(float(exact[:256].sum()), rel=0.05)


# -- products --------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", ["self", "other"])
def test_a_product(slot: str) -> None:
    x, gy = hidden()
    gate = torch.sigmoid(x.flip(0))
    check(outcome(torch.mul, [x, gate], [], gy, OneSite("MulBackward0", slot, Group(3)), draws=20))


def test_a_product_with_a_parameter_in_every_row() -> None:
    x, gy = hidden()
    scale = nn.Parameter(torch.rand(256))
    method = OneSite("MulBackward0", "self", Group(3))
    found = outcome(lambda x: x * scale, [x], [scale], gy, method, draws=60)
    check(found)
    assert found.predicted_input == 0


def test_a_factor_that_is_broadcast() -> None:
    x, gy = hidden()
    gate = torch.sigmoid(x[:, :, :1])
    method = OneSite("MulBackward0", "other", Group(3, 32))
    check(outcome(torch.mul, [x, gate], [], gy, method, draws=100))


def test_a_product_with_itself_has_the_error_in_both_gradients() -> None:
    x, gy = hidden()
    check(outcome(lambda x: x * x, [x], [], gy, OneSite("MulBackward0", "", Group(3)), draws=20))


# -- attention -------------------------------------------------------------------------------


def operands(heads: int = 2) -> tuple[list[Tensor], Tensor]:
    """Real q, k and v (16, 2, 17, 32), and the gradient at attention's output."""
    layers = caught("vit")
    y = layers["blocks.1.attention.qkv"].module(layers["blocks.1.attention.qkv"].x[:16]).detach()
    split = [t.unflatten(-1, (2, -1)).transpose(1, 2).contiguous() for t in y.chunk(3, -1)]
    out = layers["blocks.1.attention.out"]
    gy = (out.gy[:16] @ out.module.weight.detach()).unflatten(-1, (2, -1)).transpose(1, 2)
    return [split[0], *(t[:, :heads].contiguous() for t in split[1:])], gy.contiguous()


def _mask() -> Tensor:
    mask = torch.zeros(16, 1, 17, 17)
    mask[:8, :, :, 12:] = -torch.inf
    mask[3, :, 5] = -torch.inf  # a row that attends to nothing
    return mask


ATTENTION = {
    "plain": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "masked": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=_mask()),
    "bool mask": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.ones(17, 17, dtype=torch.bool).tril(3)
    ),
    "scaled": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.4),
    "shared heads": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
}


@pytest.mark.parametrize("slot", ["query", "key", "value", "output"])
@pytest.mark.parametrize("kind", list(ATTENTION))
def test_attention_at_its_own_operands(slot: str, kind: str) -> None:
    inputs, gy = operands(heads=1 if kind == "shared heads" else 2)
    check(outcome(ATTENTION[kind], inputs, [], gy, OneSite(SDPA, slot, Group(6)), draws=40))


def test_attention_is_looked_at_in_parts_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from actzip.control import attention

    inputs, gy = operands()
    method = OneSite(SDPA, "key", Group(6))
    whole = outcome(ATTENTION["plain"], inputs, [], gy, method, draws=2).reading
    monkeypatch.setattr(attention, "_SCORES", 17 * 17)  # one head at a time
    parts = outcome(ATTENTION["plain"], inputs, [], gy, method, draws=2).reading
    assert float(parts.input.sum()) == pytest.approx(float(whole.input.sum()), rel=0.05)


def test_attention_over_sequences_that_are_too_long_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from actzip.control import attention

    inputs, gy = operands()
    monkeypatch.setattr(attention, "_LONGEST", 100)
    with pytest.raises(AssertionError, match="too long to look at"):
        outcome(ATTENTION["plain"], inputs, [], gy, OneSite(SDPA, "key", Group(6)), draws=2)


def test_only_gradients_that_are_given_can_have_an_error() -> None:
    """With q and k frozen the errors of v reach nothing at all, those of q still reach gV."""
    (q, k, v), gy = operands()

    def run(v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    of_query = outcome(run, [v], [], gy, OneSite(SDPA, "query", Group(6)), draws=40)
    check(of_query)
    of_value = outcome(run, [v], [], gy, OneSite(SDPA, "value", Group(6)), draws=4)
    assert of_value.predicted_input == of_value.input == 0
