"""actzip: train PyTorch models with the tensors autograd saves held in compressed form."""

import actzip.memory.heap as _heap

_heap.ask_for_huge_pages()  # before anything makes a tensor

# ruff: noqa: E402
from actzip import codecs, memory
from actzip.api import Session, compress, session_of
from actzip.autograd.ledger import Row, Stats
from actzip.autograd.slots import register as register_slot
from actzip.codecs import register as register_codec
from actzip.codecs.verified import BrokenBoundError
from actzip.growth import Growth, grow_batch
from actzip.instance import apply_to_instance
from actzip.memory.measure import Measurement, measure
from actzip.methods import (
    ACGC,
    ActNN,
    Auto,
    Comet,
    Division,
    Fixed,
    Guarded,
    Lossless,
    Method,
    Role,
    Site,
    register_method,
)
from actzip.methods.base import Policy
from actzip.noise import NoiseReport
from actzip.warning import ActzipWarning

__version__ = "0.1.0"

__all__ = [
    "ACGC",
    "ActNN",
    "ActzipWarning",
    "Auto",
    "BrokenBoundError",
    "Comet",
    "Division",
    "Fixed",
    "Growth",
    "Guarded",
    "Lossless",
    "Measurement",
    "Method",
    "NoiseReport",
    "Policy",
    "Role",
    "Row",
    "Session",
    "Site",
    "Stats",
    "apply_to_instance",
    "codecs",
    "compress",
    "grow_batch",
    "measure",
    "memory",
    "register_codec",
    "register_method",
    "register_slot",
    "session_of",
]
