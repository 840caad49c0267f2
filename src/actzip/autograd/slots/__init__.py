"""The table of ops: what each autograd node is, and what each of its slots is for.

A row has the op's traits (its kind, where channels are, how errors show: control/op.py) and a rule
for each slot. Nothing else in the package knows a node by its name. Adding an op is one row in one
of the files of rows and one case in tests/autograd/slot_cases_*.py.
What the table does not know is never guessed at: it is kept exactly, counted, and named in
`stats()`. Two principles decide the roles beyond what the op's formula says:

- A slot that backward divides by, takes the logarithm of or compares with another tensor is
  `exact`: a code that moves a value across the pole or the tie would change the gradient without
  bound, however fine the code is.
- A slot that is normally a parameter is `weight`; matmul operands are `linear`, and whether one of
  them leads to a parameter is found out by following the graph.
"""

from actzip.autograd.slots.lookup import (
    IDLE,
    PLANS,
    TRAITS,
    Plan,
    Slot,
    element,
    op,
    plan,
    register,
    rule,
    slots_of,
)
from actzip.autograd.slots.noise import noise
from actzip.autograd.slots.rule import Mask, Node, Rule
from actzip.autograd.slots.views import COPIES, RESHAPES, VIEWS

__all__ = [
    "COPIES",
    "IDLE",
    "PLANS",
    "RESHAPES",
    "TRAITS",
    "VIEWS",
    "Mask",
    "Node",
    "Plan",
    "Rule",
    "Slot",
    "element",
    "noise",
    "op",
    "plan",
    "register",
    "rule",
    "slots_of",
]
