"""What an op is: the traits that precision depends on, once for each autograd node.

The table of ops (autograd/slots) gives every node it knows an `Op`, and whoever has to treat ops
differently asks it: a method its site's (`site.op.kind`), a formula that of the backward it looks
at. Names of nodes are the table's business alone.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actzip.control.backward import Formula


class Kind(enum.Enum):
    """What sort of op it is."""

    CONVOLUTION = "convolution"
    DENSE = "dense"  #: a linear layer: all rows times one matrix
    MATMUL = "matmul"  #: any other product, of two batches of matrices say
    VECTOR = "vector"  #: a product with a vector: spectral norm's, not an activation's
    BATCH_NORM = "batch norm"  #: over the batch, each channel by itself
    GROUP_NORM = "group norm"  #: over groups of channels of each sample
    ROW_NORM = "row norm"  #: over each row of channels: LayerNorm, RMSNorm
    ACTIVATION = "activation"  #: GELU and its like: smooth, saved by its input
    RELU = "relu"  #: ReLU and its like: straight pieces
    GATE = "gate"  #: sigmoid, tanh, GLU
    POINTWISE = "pointwise"  #: any other function of single elements
    ATTENTION = "attention"
    SOFTMAX = "softmax"
    RECURRENT = "recurrent"
    POOL = "pool"
    RESIZE = "resize"  #: upsampling, pixel shuffle
    PAD = "pad"
    DROPOUT = "dropout"
    INDEXING = "indexing"  #: picks or places elements by index: what it gives depends on the batch
    REDUCTION = "reduction"
    LOSS = "loss"
    SUM = "sum"  #: of tensors: saves nothing, passes gradients on
    VIEW = "view"  #: the output is a view of the input: one storage
    COPY = "copy"  #: the input's values in new memory, perhaps in another dtype
    OTHER = "other"

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python


NORMS = frozenset({Kind.BATCH_NORM, Kind.GROUP_NORM, Kind.ROW_NORM})


class Channels(enum.Enum):
    """Where a tensor that the op reads or makes has its channels; the rest are places or times."""

    SECOND = "second"  #: maps (N, C, …)
    LAST = "last"  #: (N, …, C)
    HEADS = "heads"  #: (N, heads, T, C)
    NOWHERE = "nowhere"  #: of no dimension is it known to be a place or a time


@dataclass(frozen=True, eq=False)
class Op:
    """The traits of an op; what the table does not know has none of them.

    `errors` has a formula for each slot of which it is known how an error in what is stored shows
    in the op's gradients (control/error.py).
    """

    kind: Kind = Kind.OTHER
    channels: Channels | None = None  #: None: the op does not say
    weight: int | None = None  #: which of its inputs is the weight; a product's right operand
    sliced: str = ""  #: the slot that its backward can read a few samples at a time
    window: int = 0  #: dimensions of the window that a max-pool's indices point into
    errors: Mapping[str, Formula] = field(default_factory=dict)


#: An op that the table does not know.
UNKNOWN = Op()


def channel_dim(op: Op, dims: int) -> int:
    """Where a stored tensor has its channels: dimension 1 of maps, the last of everything else."""
    maps = dims > 3 or op.channels is Channels.SECOND
    return 1 if maps and dims > 2 else -1
