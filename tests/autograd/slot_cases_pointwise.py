"""Cases of element-by-element functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from slot_case import MAP, ROWS, case, coin, unary

# activations
unary(
    {
        "relu": F.relu,
        "relu method": lambda x: x.relu(),
        "relu in place": lambda x: F.relu_(x.clone()),
        "leaky relu": lambda x: F.leaky_relu(x, 0.1),
        "leaky relu falling": lambda x: F.leaky_relu(x, -0.1),
        "leaky relu in place": lambda x: F.leaky_relu_(x.clone(), 0.1),
        "leaky relu in place flat": lambda x: F.leaky_relu_(x.clone(), 0.0),
        "rrelu frozen": lambda x: F.rrelu(x, training=False),
        "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.7),
        "hardtanh positive": lambda x: F.hardtanh(x, 0.3, 0.7),
        "hardtanh half-open": lambda x: F.hardtanh(x, 0.3, float("inf")),
        "hardtanh in place": lambda x: F.hardtanh_(x.clone(), -1.0, 1.0),
        "relu6": F.relu6,
        "hardsigmoid": F.hardsigmoid,
        "hardsigmoid in place": lambda x: F.hardsigmoid(x.clone(), inplace=True),
        "threshold": lambda x: F.threshold(x, 0.3, 2.0),
        "threshold in place": lambda x: F.threshold_(x.clone(), 0.3, 2.0),
        "threshold at infinity": lambda x: F.threshold(x, float("inf"), 2.0),
        "softshrink": lambda x: F.softshrink(x, 0.3),
        "hardshrink": lambda x: F.hardshrink(x, 0.3),
        "hardshrink negative": lambda x: F.hardshrink(x, -0.3),
        "clamp": lambda x: x.clamp(-0.3, 0.7),
        "clamp positive": lambda x: x.clamp(0.3, 0.7),
        "clamp from zero": lambda x: x.clamp(0, 1),
        "clamp to a point": lambda x: x.clamp(0.5, 0.5),
        "clamp nothing": lambda x: x.clamp(1.0, -1.0),
        "clamp below": lambda x: x.clamp(min=0.3),
        "clamp above": lambda x: x.clamp(max=-0.3),
        "clamp in place": lambda x: x.clone().clamp_(-0.3, 0.7),
        "clamp_min": lambda x: x.clamp_min(0.3),
        "clamp_min of everything": lambda x: x.clamp_min(float("-inf")),
        "clamp_max": lambda x: x.clamp_max(0.3),
        "nan_to_num": torch.nan_to_num,
        "nansum": lambda x: x.nansum(-1),
        "hardswish": F.hardswish,
        "elu": F.elu,
        "elu in place": lambda x: F.elu_(x.clone()),
        "selu": F.selu,
        "celu": F.celu,
        "celu in place": lambda x: F.celu_(x.clone()),
        "gelu": F.gelu,
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        "mish": F.mish,
        "softplus": F.softplus,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "logsigmoid": F.logsigmoid,
        "glu": F.glu,
        "tanhshrink": F.tanhshrink,
        "softsign": F.softsign,
    }
)
case("rrelu training", lambda x: F.rrelu(x, training=True), half=False, brain=True)
case("rrelu in place", lambda x: F.rrelu_(x.clone(), training=True), half=False, brain=True)
case("clamp far", lambda x: x.clamp(60000.0, 1e6), half=False, brain=True)
case(
    "rrelu functional",
    lambda x: torch.ops.aten.rrelu_with_noise_functional(x, torch.ones_like(x), 0.1, 0.3, True)[0],
    half=False,
    brain=True,
)
case("clamp near the top of fp16", lambda x: x.clamp(60000.0, 65504.0))
case("prelu", F.prelu, MAP, (8,))
case("softmax", lambda x: F.softmax(x, -1), ROWS)
case("log softmax", lambda x: F.log_softmax(x, 0), ROWS)
case("safe softmax", lambda x: torch._safe_softmax(x, -1), ROWS)
case("masked softmax", lambda x: torch._masked_softmax(x, coin(64, 48), 1, 2), ROWS, half=False)

# arithmetic
case("mul", lambda a, b: a * b, ROWS, ROWS)
case("mul in place", lambda a, b: a.clone().mul_(b), ROWS, ROWS)
case("mul broadcast", torch.mul, ROWS, (48,))
case("div", lambda a, b: a / b, ROWS, ROWS, positive=True)
case(
    "div with mode",
    lambda a, b: torch.div(a, b, rounding_mode=None) + a.div(b, rounding_mode="floor"),
    ROWS,
    ROWS,
    positive=True,
)
case("addcmul", torch.addcmul, ROWS, ROWS, ROWS)
case("addcdiv", torch.addcdiv, ROWS, ROWS, ROWS, positive=True)
case("lerp", torch.lerp, ROWS, ROWS, ROWS)
case("hypot", torch.hypot, ROWS, ROWS, positive=True)
case("atan2", torch.atan2, ROWS, ROWS, positive=True)
case("logaddexp", torch.logaddexp, ROWS, ROWS)
case("logaddexp2", torch.logaddexp2, ROWS, ROWS, half=False)
case("xlogy", torch.xlogy, ROWS, ROWS, positive=True)
case("fmod", torch.fmod, ROWS, ROWS, positive=True)
case("remainder", torch.remainder, ROWS, ROWS, positive=True)
case("pow of tensors", torch.pow, ROWS, ROWS, positive=True)
case("ldexp", torch.ldexp, ROWS, ROWS)
case("frexp", lambda x: torch.frexp(x)[0], ROWS)
case("maximum", torch.maximum, ROWS, ROWS)
case("minimum", torch.minimum, ROWS, ROWS)
case("fmax", torch.fmax, ROWS, ROWS)
case("fmin", torch.fmin, ROWS, ROWS)
case("clamp by tensors", torch.clamp, ROWS, ROWS, ROWS)
case("clamp_min by a tensor", torch.clamp_min, ROWS, ROWS)
case("clamp_max by a tensor", torch.clamp_max, ROWS, ROWS)
case("copysign", lambda a, b: torch.copysign(a, b) + torch.copysign(a, -1.0), ROWS, ROWS)
unary({f"pow {p}": lambda x, p=p: x**p for p in (0, 1, 2, 3, 2.0)})
unary({f"pow {p}": lambda x, p=p: x**p for p in (0.5, -1, 1.5)}, positive=True)
unary({"two to the x": lambda x: 2**x, "zero to the x": lambda x: torch.pow(0, x)})
unary(
    {
        n: getattr(torch, n)
        for n in (
            "exp",
            "exp2",
            "expm1",
            "sin",
            "cos",
            "sinh",
            "cosh",
            "asinh",
            "atan",
            "erf",
            "erfc",
            "abs",
            "sgn",
            "sign",
            "sinc",
        )
    }
)
unary(
    {
        n: getattr(torch, n)
        for n in (
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "acos",
            "asin",
            "atanh",
            "erfinv",
            "tan",
            "lgamma",
            "digamma",
            "logit",
        )
    },
    positive=True,
)
unary(
    {
        "acosh": lambda x: torch.acosh(x + 1),
        "entr": torch.special.entr,
        "xlogy scalar": lambda x: torch.xlogy(2.0, x),
        "xlogy by scalar": lambda x: torch.xlogy(x, 2.0),
    },
    positive=True,
)
case("where", lambda a, b: torch.where(coin(64, 48), a, b), ROWS, ROWS)
case("masked_fill", lambda x: x.masked_fill(coin(64, 48), 0.5))
case("masked_fill in place", lambda x: x.clone().masked_fill_(coin(64, 48), 0.5))
case("masked_fill by a tensor", lambda x, v: x.masked_fill(coin(64, 48), v), ROWS, ())
case("fake quantize", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 8), half=False)
case(
    "fake quantize tensor parameters",
    lambda x: torch.fake_quantize_per_tensor_affine(x, torch.tensor(0.1), torch.tensor(0), -8, 8),
    half=False,
)
case(
    "fake quantize channels",
    lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.full((48,), 0.1), torch.zeros(48, dtype=torch.int32), 1, -8, 8
    ),
    half=False,
)

case(
    "fake quantize learned",
    lambda x, s: torch._fake_quantize_learnable_per_tensor_affine(
        x.float(), s.float(), torch.zeros(1), -8, 8
    ),
    ROWS,
    (1,),
    positive=True,
    half=False,
)
case(
    "fake quantize learned channels",
    lambda x, s: torch._fake_quantize_learnable_per_channel_affine(
        x.float(), s.float(), torch.zeros(48), 1, -8, 8
    ),
    ROWS,
    (48,),
    positive=True,
    half=False,
)
case(
    "fake quantize observed",
    lambda x: torch.fused_moving_avg_obs_fake_quant(
        x.float(),
        torch.ones(1),
        torch.ones(1),
        torch.zeros(1),
        torch.ones(1),
        torch.ones(1),
        torch.zeros(1, dtype=torch.int32),
        0.1,
        -8,
        8,
        0,
    ),
    half=False,
)
