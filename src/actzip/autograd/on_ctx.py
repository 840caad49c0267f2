"""Tensors that an `autograd.Function` keeps on its ctx, past `save_for_backward`.

bitsandbytes does so in `MatMul4Bit` and `MatMul8bitLt`. No hook sees them, so they can be named and
counted, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

ON_CTX = "kept on ctx, where no hook reaches it"


def tensors_on(node: Any) -> Iterator[tuple[str, Tensor]]:
    """The attributes of a custom function's node that are tensors, or tuples or lists of them.

    Other objects are not looked into: what a quantized weight has beside it belongs to the weight.
    """
    for name, value in vars(node).items():
        if isinstance(value, Tensor):
            yield f"ctx.{name}", value
        elif isinstance(value, (tuple, list)):
            for i, each in enumerate(value):
                if isinstance(each, Tensor):
                    yield f"ctx.{name}[{i}]", each
