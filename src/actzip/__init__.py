"""actzip: train PyTorch models with the tensors autograd saves held in compressed form."""

import actzip.memory.heap as _heap

_heap.ask_for_huge_pages()  # before anything makes a tensor

# ruff: noqa: E402
from actzip import codecs, memory
from actzip.api import Session, compress, session_of
from actzip.autograd.ledger import Stats
from actzip.autograd.slots import register as register_slot
from actzip.growth import Growth, grow_batch
from actzip.instance import apply_to_instance
from actzip.memory.measure import measure
from actzip.methods import ACGC, ActNN, Comet, Division, Fixed, Lossless, Method
from actzip.warning import ActzipWarning

__version__ = "0.1.0"

__all__ = [
    "ACGC",
    "ActNN",
    "ActzipWarning",
    "Comet",
    "Division",
    "Fixed",
    "Growth",
    "Lossless",
    "Method",
    "Session",
    "Stats",
    "apply_to_instance",
    "codecs",
    "compress",
    "grow_batch",
    "measure",
    "memory",
    "register_slot",
    "session_of",
]
