"""A program: lines of Python over named tensors, and what becomes of them when they run."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib
import inspect
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import actzip
from fuzz import functions

_PREAMBLE = """\
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
"""
_OWN = ("Cube", "Exp", "Gate", "Double_", "Setup", "Straight", "Block", "Cleared", "total")


#: From which size on something is done, and a size that the tensors of programs have.
THRESHOLDS = [
    ("actzip.autograd.calls", "SNAPSHOT", 64),
    ("actzip.methods.error_bounded", "ENTROPY_FROM", 16),
    ("actzip.codecs.dithered", "_SMALL", 16),
    ("actzip.methods.auto_codes", "LARGE", 16),
    ("actzip.control.rate_curves", "LARGE", 16),
]


@contextlib.contextmanager
def thresholds(low: bool) -> Iterator[None]:
    held = [(importlib.import_module(m), n, v) for m, n, v in THRESHOLDS if low]
    before = [getattr(module, name) for module, name, _ in held]
    try:
        for module, name, value in held:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(held, before, strict=True):
            setattr(module, name, value)


def zeroed(module: nn.Module) -> nn.Module:
    """A head that starts at zero, as fine-tuning recipes want it."""
    for p in module.parameters():
        nn.init.zeros_(p)
    return module


@dataclass(frozen=True)
class Line:
    """A statement of one stage: "setup" makes leaves and modules, "body" is the forward pass,
    "tail" the backward passes."""

    stage: str
    text: str

    def __reduce__(self) -> tuple[type[Line], tuple[str, str]]:
        return Line, (self.stage, self.text)  # code has no pickle

    @functools.cached_property
    def code(self) -> CodeType:
        return compile(self.text, "<program>", "exec")

    @functools.cached_property
    def writes(self) -> frozenset[str]:
        return frozenset(n.id for n in self._names if isinstance(n.ctx, ast.Store))

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        return frozenset(n.id for n in self._names if isinstance(n.ctx, ast.Load))

    @property
    def _names(self) -> Iterator[ast.Name]:
        return (n for n in ast.walk(ast.parse(self.text)) if isinstance(n, ast.Name))


@dataclass(frozen=True)
class Program:
    """Its lines, and how a session is laid around them.

    form    "around": `with compress():` around all steps; "forward": around each forward pass
            only; "module": the forward pass is that of a module that was given to compress
    wild    NaN and infinity may appear: nothing is said about lossy methods' gradients
    silent  edits through .data and numpy are among the lines
    low     thresholds of size are set low: its small tensors are treated as large ones are
    """

    lines: tuple[Line, ...]
    form: str = "around"
    steps: int = 1
    wild: bool = False
    silent: bool = False
    seed: int = 0
    low: bool = False

    def of(self, *stages: str) -> list[Line]:
        return [line for line in self.lines if line.stage in stages]

    def source(self, method: str = "'lossless'") -> str:
        """The program as a script that runs by itself."""
        text = "\n".join(line.text for line in self.lines)
        own = [inspect.getsource(getattr(functions, name)) for name in _OWN if name in text]
        own += [inspect.getsource(zeroed)] if "zeroed" in text else []
        head = _PREAMBLE + "import actzip\n"
        if "(" in method:
            head += "from actzip.codecs import *\nfrom actzip.methods import *\n"
        if self.low:
            head += "".join(f"import {m}\n{m}.{n} = {v}\n" for m, n, v in THRESHOLDS)
        if "Function" in "".join(own):
            head += "from typing import Any\n"
            head += "from torch.autograd.function import Function, once_differentiable\n"
        setup, body, tail = (
            "\n".join(line.text for line in self.of(stage)) or "pass"
            for stage in ("setup", "body", "tail")
        )
        parts = [head, *own, f"torch.manual_seed({self.seed})", setup]
        session = f"actzip.compress(method={method}, min_bytes=0)"
        loop = f"for step in range({self.steps}):\n"
        if self.form == "around":
            parts += [f"with {session}:", _in(loop + _in(body + "\n" + tail))]
        elif self.form == "forward":
            parts += [loop + _in(f"with {session}:\n" + _in(body) + "\n" + tail)]
        else:
            parts += [self._module(body), session.replace("(", "(root, ", 1)]
            parts += [loop + _in("root()\n" + tail)]
        return "\n".join(parts) + "\n"

    def _module(self, body: str) -> str:
        names = sorted(set().union(*(line.writes for line in self.of("body"))))
        scope = f"global {', '.join(names)}\n" if names else ""
        own = "\n".join(f"root.{name} = {name}" for name in self.weights)
        return (
            "class Root(nn.Module):\n    def forward(self):\n"
            + _in(_in(scope + body))
            + f"\nroot = Root()\n{own}"
        )

    @property
    def weights(self) -> list[str]:
        """What the module of the form "module" has for parameters and children."""
        names = (sorted(line.writes) for line in self.of("setup") if "nn." in line.text)
        return [name for each in names for name in each]


@dataclass(frozen=True)
class Raised:
    """An exception, and the line that it came from."""

    kind: str
    message: str
    at: int
    frame: str  #: the deepest place in actzip, "" for none
    trace: str = field(compare=False, default="")

    @property
    def inplace(self) -> bool:
        """Autograd refuses a graph of which a saved tensor was edited."""
        refused = (
            *("modified by an inplace operation", "that has been detached in-place"),
            "its base or another view of its base has been modified inplace",
        )
        return self.kind == "RuntimeError" and any(each in self.message for each in refused)


@dataclass
class Outcome:
    """What a program left behind: tensors by name (and by step), an exception, random state."""

    values: dict[str, Tensor]
    raised: Raised | None
    rng: Tensor
    held: int = 0  #: payload bytes that were still alive when all else was gone


Around = Callable[[], contextlib.AbstractContextManager[object]]


def run(
    program: Program,
    method: Any = None,
    *,
    around: Around = contextlib.nullcontext,
    stop: int | None = None,
    steps: int | None = None,
    seen: Callable[[Tensor], None] | None = None,
    derive: bool | None = None,
) -> Outcome:
    """Run it plain, or under a session of this method; up to line `stop` only.

    `around` is entered for all steps: hooks that show what the gradients should be. `seen` is told
    all tensors before they go.
    """
    space = namespace()
    torch.manual_seed(program.seed)
    session: actzip.Session | None = None
    steps = program.steps if steps is None else steps
    values: dict[str, Tensor] = {}
    raised = None
    with warnings.catch_warnings(), thresholds(program.low):
        warnings.simplefilter("ignore")
        try:
            counter = _Counter(stop)
            counter.run(program.of("setup"), space)
            with around(), contextlib.ExitStack() as stack:
                session = _session(program, method, derive, stack, space, counter)
                for _ in range(steps):
                    _step(program, session, space, counter)
        except _Stopped:
            pass
        except Exception as error:
            raised = _raised(error, counter.at)
        rng = torch.get_rng_state()
        # gradients that were being added up when a run ended are of no step
        values = _values(space, grads=raised is None and stop is None)
        for value in space.values() if seen is not None else ():
            if isinstance(value, Tensor) and seen is not None:
                seen(value)
        space.clear()
    if session is not None and session.live_bytes:
        gc.collect()
    return Outcome(values, raised, rng, 0 if session is None else session.live_bytes)


class _Stopped(Exception):
    pass


class _Counter:
    """Runs lines and counts them."""

    def __init__(self, stop: int | None):
        self.at = 0
        self._stop = stop

    def run(self, lines: list[Line], space: dict[str, Any]) -> None:
        for line in lines:
            if self.at == self._stop:
                raise _Stopped
            exec(line.code, space)
            self.at += 1


def _session(
    program: Program,
    method: Any,
    derive: bool | None,
    stack: contextlib.ExitStack,
    space: dict[str, Any],
    counter: _Counter,
) -> actzip.Session | None:
    if program.form == "module":
        root = space["root"] = _Root(lambda: counter.run(program.of("body"), space))
        for name in program.weights:
            setattr(root, name, space[name])
        if method is not None:
            return stack.enter_context(actzip.compress(root, method, min_bytes=0, derive=derive))
    if method is None:
        return None
    session = actzip.compress(method=method, min_bytes=0, derive=derive)
    return stack.enter_context(session) if program.form == "around" else session


def _step(
    program: Program, session: actzip.Session | None, space: dict[str, Any], counter: _Counter
) -> None:
    if program.form == "module":
        space["root"]()
    elif program.form == "forward" and session is not None:
        with session:
            counter.run(program.of("body"), space)
    else:
        counter.run(program.of("body"), space)
    counter.run(program.of("tail"), space)


class _Root(nn.Module):
    def __init__(self, body: Callable[[], None]):
        super().__init__()
        self._body = body

    def forward(self) -> None:
        self._body()


def namespace() -> dict[str, Any]:
    """What the lines of a program may call."""
    space: dict[str, Any] = {name: getattr(functions, name) for name in _OWN}
    space.update(torch=torch, F=F, nn=nn, Tensor=Tensor, checkpoint=checkpoint, zeroed=zeroed)
    return space


def _raised(error: Exception, at: int) -> Raised:
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/actzip/" in f.filename]
    frame = f"{ours[-1].filename.split('/actzip/')[-1]}:{ours[-1].name}" if ours else ""
    text = "".join(traceback.format_exception(error))
    # keeps no reference to frames, and with them to tensors
    traceback.clear_frames(error.__traceback__)
    return Raised(type(error).__name__, str(error), at, frame, text)


def _values(space: dict[str, Any], grads: bool) -> dict[str, Tensor]:
    """The tensors of a program, and the gradients that lie at its leaves."""
    found: dict[str, Tensor] = {}
    for name, value in space.items():
        if not re.fullmatch(r"[a-z]\d+", name):  # a helper inside a line that raised
            continue
        each = value if isinstance(value, (tuple, list)) else (value,)
        for k, t in enumerate(each):
            if isinstance(t, Tensor):
                found[f"{name}[{k}]" if each is value else name] = _copy(t)
        tensors = {name: value} if isinstance(value, Tensor) else {}
        if isinstance(value, nn.Module) and not isinstance(value, _Root):
            found.update({f"{name}.{n}": _copy(p) for n, p in value.state_dict().items()})
            tensors = {f"{name}.{n}": p for n, p in value.named_parameters()}
        if grads:
            for n, t in tensors.items():
                grad = _grad(t)
                if grad is not None:
                    found[f"{n}.grad"] = _copy(grad)
    return found


def _grad(t: Tensor) -> Tensor | None:
    try:
        return t.grad if t.is_leaf and t.requires_grad else None
    except RuntimeError:  # a view made under no_grad whose base was edited since: PyTorch refuses
        return None


def _copy(t: Tensor) -> Tensor:
    with torch.no_grad():
        t = t.detach()
        return t.to_dense().clone() if t.layout is not torch.strided else t.clone()


def _in(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())
