"""actzip: train PyTorch models with the tensors autograd saves held in compressed form.

The names below are imported when they are first asked for: `import actzip` alone costs nothing,
and `actzip --help` need not wait for PyTorch.
"""

import importlib as _importlib
from typing import TYPE_CHECKING, Any

import actzip.memory.heap as _heap

_heap.ask_for_huge_pages()  # before anything makes a tensor

if TYPE_CHECKING:
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
    from actzip.methods.base import Derives, Policy
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
    "Derives",
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

#: The public names by the module that has them, as above; after a colon its name there.
_MODULES = {
    "actzip.api": "Session compress session_of",
    "actzip.autograd.ledger": "Row Stats",
    "actzip.autograd.slots": "register_slot:register",
    "actzip.codecs": "register_codec:register",
    "actzip.codecs.verified": "BrokenBoundError",
    "actzip.growth": "Growth grow_batch",
    "actzip.instance": "apply_to_instance",
    "actzip.memory.measure": "Measurement measure",
    "actzip.methods": (
        "ACGC ActNN Auto Comet Division Fixed Guarded Lossless Method Role Site register_method"
    ),
    "actzip.methods.base": "Derives Policy",
    "actzip.noise": "NoiseReport",
    "actzip.warning": "ActzipWarning",
}
_PLACES = {
    name.partition(":")[0]: (module, name.partition(":")[2] or name)
    for module, names in _MODULES.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """A public name or a module of the package, imported now."""
    if name in _PLACES:
        module, there = _PLACES[name]
        found = getattr(_importlib.import_module(module), there)
        globals()[name] = found
        return found
    if not name.startswith("_"):
        try:
            return _importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
