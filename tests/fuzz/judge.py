"""What a program does under actzip, beside what it should do.

- Exact methods give every tensor and gradient bit for bit, and the same exceptions.
- Where plain PyTorch refuses a graph because a saved tensor was edited in place, actzip refuses it
  too, or gives what a clone of each saved tensor before the edit gives.
- Lossy methods leave all that forward computes as it is; their gradients err by no more than ten
  times what noise of the size of their step, put on the saved tensors of the plain run, makes them
  err: in the worst of three draws with noise on all of them, or of thirty, or of sixty more that
  leave out each tensor half the time. What has no rule is kept exactly: a divisor that is nearly 0
  still is, and noise on all of them hides how much it magnifies the noise of others.
"""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from actzip.codecs import Bounded, Group, Keep
from actzip.methods import ACGC, ActNN, Auto, Comet, Division, Fixed, Lossless
from fuzz.program import Around, Outcome, Program, Raised, run
from fuzz.references import cloned, hooked, mixture, noise, snapshots

EXACT: dict[str, Any] = {"lossless": Lossless(), "keep": Fixed(Keep(), Keep())}

_ERROR = 1e-4  #: of "bounded", whatever the peak

#: Every one errs by less than `_NOISE` of the peak of what it stores.
LOSSY: dict[str, Any] = {
    "actnn": ActNN(bits=8, group_size=64),
    "actnn-L2": ActNN(bits=8, level="L3.1", slice_bytes=256),
    "division": Division(bits=8, dense=8, norm=8, rows=8, activation=8, nonlinear=8, block=2),
    "comet": Comet(sigma=1e-3, rest_bits=8, interval=1),
    "comet-all": Comet(sigma=1e-3, scope="all", rest_bits=8, interval=1),
    "acgc": ACGC(e2=1e-4, interval=1),
    "acgc-fixed": ACGC(e2=1e-4, codec="fixed", interval=1),
    "group": Fixed(Group(8, zero=False), Group(8)),
    "group-zero": Fixed(Group(8, zero=True), Group(8, zero=True, entropy=True)),
    "bounded": Fixed(Bounded(_ERROR), Bounded(_ERROR)),
    "group-derive": Fixed(Group(8), Group(8)),
    "actnn-derive": ActNN(bits=8, group_size=64),
    "acgc-derive": ACGC(e2=1e-4, interval=1),
    "auto": Auto(),
    "auto-budget": Auto(budget=20_000),  # the weights of a program take less
}
#: Methods that say nothing about the size of an error in a single pass.
_FREE = ("auto", "auto-budget")


def derives(name: str) -> bool | None:
    """What `compress` is told beside the method."""
    return True if name.endswith("derive") else None


_NOISE = 0.012  #: 1/255 for the step, 1/128 for the rounding of its ends
#: The noise of the others, as a share of the peak and by itself; before `auto` knows anything it
#: has codes of 4 bits, 1/15.
_STEPS = {"bounded": (0.0, _ERROR), **dict.fromkeys(_FREE, (0.07, 0.0))}
#: Draws of noise, and whether it is on all that is saved; each where those before say that a method
#: errs too much.
_DRAWS = ((3, True), (30, True), (60, False))
_MIXTURES = 64  #: draws, where a program edits tensors silently and a gradient is off
_SLACK = 10.0  #: how much more than noise in plain PyTorch a method may err
_EDIT = re.compile(r"\w_\(|[-+*/]=|\] = |\bout=")
_BACKWARD = re.compile(r"autograd\.(grad|functional)|torch\.func\.")


@dataclass(frozen=True)
class Failure:
    """What went wrong, under which method."""

    method: str
    kind: str  #: short, and the same for programs that fail in the same way
    detail: str


def judge(program: Program, lossy: tuple[str, ...] = ()) -> list[Failure]:
    """Run a program plain, under the exact methods and under these lossy ones."""
    plain = run(program)
    found: list[Failure] = []
    if program.silent:
        # plain reads what was edited behind its back: only where that makes no difference to
        # the gradients is there something to compare with
        same = run(program, around=snapshots)
        if plain.raised or same.raised or _differing(plain, same):
            return []
    if _reads_undrawn(program) or _reads_nothing(program):
        return []
    for name, method in EXACT.items():
        found += _exact(program, plain, name, method)
    for name in lossy:
        found += _lossy(program, plain, name, LOSSY[name])
    return [f for f in found if not (program.silent and _is_mixture(program, plain, f))]


def _is_mixture(program: Program, plain: Outcome, found: Failure) -> bool:
    """Whether a gradient is that of some tensors as they were saved and others as edited behind
    PyTorch's back, and such gradients differ though all old and all new values happen to agree:
    actzip reads what it stored as it was, and what it left to autograd as it is."""
    if found.kind not in ("gradient differs", "too far off", "not finite"):
        return False
    mixed = (run(program, around=mixture(k)) for k in range(_MIXTURES))
    if found.method not in EXACT:
        return any(m.raised or _differing(plain, m) for m in mixed)
    ours = run(program, EXACT[found.method])
    return any(not m.raised and not _differing(m, ours) for m in mixed)


def _exact(program: Program, plain: Outcome, name: str, method: Any) -> list[Failure]:
    ours = run(program, method)
    found = _common(program, plain, name, ours)
    if found:
        return found
    expected = plain
    if plain.raised and plain.raised.inplace:
        expected = _before_edits(program, ours)
        if expected.raised:
            return [Failure(name, "goes on where clones raise", expected.raised.trace)]
    differing = _differing(expected, ours)
    if differing:
        what = "values of forward" if _is_forward(program, differing[0]) else "gradient"
        return [Failure(name, f"{what} differs", _show(differing, expected, ours))]
    return []


def _lossy(program: Program, plain: Outcome, name: str, method: Any) -> list[Failure]:
    ours = run(program, method, derive=derives(name))
    found = _common(program, plain, name, ours)
    if found:
        return found
    expected = plain
    stop = None if ours.raised is None else ours.raised.at
    if plain.raised and plain.raised.inplace:
        expected = _before_edits(program, ours)
        if expected.raised:
            return [Failure(name, "goes on where clones raise", expected.raised.trace)]
    exact = [n for n in expected.values if _is_forward(program, n)]
    differing = [n for n in _differing(expected, ours) if n in exact]
    if differing:
        return [Failure(name, "values of forward differ", _show(differing, expected, ours))]
    if program.wild or not _is_finite(expected):
        return _compare(name, expected, ours, None)
    found: list[Failure] = []
    noisy: list[Outcome] = []
    for draws, everywhere in _DRAWS:
        noisy += [run(program, around=_noise(name, k, everywhere), stop=stop) for k in range(draws)]
        if any(n.raised or not _is_finite(n) or not _same_shapes(n, expected) for n in noisy):
            return []  # x[grad > 0.2] has another length
        found = _compare(name, expected, ours, noisy)
        if not found:
            break
    return found


def _noise(name: str, seed: int, everywhere: bool) -> Around:
    """Of the size of a method's errors."""
    share, error = _STEPS.get(name, (_NOISE, 0.0))
    remembers = name.startswith(("acgc", "comet"))
    how = {"derives": derives(name) is True, "remembers": remembers, "all_of_it": everywhere}
    return noise(seed, share, error, **how)


def _before_edits(program: Program, ours: Outcome) -> Outcome:
    """What clones of all saved tensors give, as far as ours came."""
    return run(program, around=snapshots, stop=None if ours.raised is None else ours.raised.at)


def _reads_undrawn(program: Program) -> bool:
    """RReLU's noise is read before it is drawn, memory that nobody has written: the program's own
    hooks copy it, or a checkpoint ends its second run as soon as the noise was saved."""
    early = ("_hooks(", "checkpoint(")
    return any(
        "rrelu" in line.text and any(w in line.text for w in early) for line in program.lines
    )


def _reads_nothing(program: Program) -> bool:
    """The gradient of `sgn` is a tensor without memory, which GroupNorm's backward reads all the
    same: plain PyTorch gives what was at some address (2.13: NaN in one run, 1e24 in the next)."""
    text = program.source()
    return "sgn" in text and ("group_norm(" in text or "GroupNorm(" in text)


def _compare(
    name: str, plain: Outcome, ours: Outcome, noisy: list[Outcome] | None
) -> list[Failure]:
    """Every gradient's error beside that of plain runs with noise on what they saved; without such
    runs, as NaN and infinity are expected, its shape alone."""
    for key, value in plain.values.items():
        mine = ours.values.get(key)
        if mine is None or mine.shape != value.shape or mine.dtype != value.dtype:
            return [Failure(name, "shape or dtype differs", key)]
        if noisy is None or not (value.is_floating_point() or value.is_complex()):
            continue
        if not bool(torch.isfinite(mine).all()):
            return [Failure(name, "not finite", key)]
        if name in _FREE:
            continue
        size = _distance(value, torch.zeros_like(value))
        allowed = max(_distance(n.values[key], value) for n in noisy)
        error = _distance(mine, value)
        # a dtype's own rounding, of a value that came about in another order
        allowed = _SLACK * allowed + 8 * torch.finfo(value.dtype).eps * size
        if not error <= allowed:
            what = f"{key}: error {error:.3g}, allowed {allowed:.3g} of {size:.3g}"
            return [Failure(name, "too far off", what)]
    return []


def _distance(a: Tensor, b: Tensor) -> float:
    wide = torch.complex128 if a.is_complex() else torch.float64
    return float((a.to(wide) - b.to(wide)).norm())


def _common(program: Program, plain: Outcome, name: str, ours: Outcome) -> list[Failure]:
    """What holds for all methods: exceptions, random streams, memory."""
    a, b = plain.raised, ours.raised
    if b is not None and (a is None or not _alike(a, b)):
        later = a is not None and a.inplace and b.inplace and b.at > a.at
        if not later and not (a is not None and a.inplace and _clones_raise(program, b)):
            said = f"{b.kind} in {b.frame}" if b.frame else f"{b.kind}: {b.message[:50]}"
            return [Failure(name, f"raises {said}", b.trace)]
    if a is not None and b is None and not a.inplace:
        return [Failure(name, f"does not raise {a.kind}", a.trace)]
    # where ours refuses an edit in a later step than plain, it drew more
    same_end = (None if a is None else a.at) == (None if b is None else b.at)
    if same_end and not torch.equal(plain.rng, ours.rng):
        return [Failure(name, "random state differs", "")]
    # torch itself keeps the last graph that raised, and those whose hooks keep their own result
    hooked = any("autograd.graph" in line.text for line in program.lines)
    if ours.held and b is None and not hooked and not _plain_holds(program):
        return [Failure(name, "bytes are held for ever", f"{ours.held} bytes")]
    return []


def _clones_raise(program: Program, ours: Raised) -> bool:
    """Whether the program raises the same when every saved tensor is a clone."""
    raised = run(program, around=snapshots).raised
    return raised is not None and _alike(raised, ours)


def _alike(a: Raised, b: Raised) -> bool:
    """The same exception at the same line; what refuses an edit may name another tensor."""
    same = a.message == b.message or (a.inplace and b.inplace)
    return (a.at, a.kind) == (b.at, b.kind) and same


def _plain_holds(program: Program) -> bool:
    """Whether plain PyTorch, too, keeps the graph for ever: some ops, `v.addcmul_(v, v)` on an
    indexed tensor for one, make a cycle that no collector sees."""
    storages: list[StorageWeakRef] = []
    packed: weakref.WeakSet[_Packed] = weakref.WeakSet()

    def pack(t: Tensor) -> _Packed:
        found = _Packed(cloned(t))
        packed.add(found)
        return found

    def seen(t: Tensor) -> None:
        if t.layout is torch.strided and not t.is_nested:
            storages.append(StorageWeakRef(t.untyped_storage()))

    run(program, seen=seen)
    run(program, around=lambda: hooked(pack, lambda found: found.tensor))
    gc.collect()
    return bool(packed) or not all(ref.expired() for ref in storages)


class _Packed:
    def __init__(self, tensor: Tensor):
        self.tensor = tensor


def _differing(plain: Outcome, ours: Outcome) -> list[str]:
    keys = {**plain.values, **ours.values}
    return [
        key
        for key in keys
        if key not in plain.values
        or key not in ours.values
        or not same_bits(plain.values[key], ours.values[key])
    ]


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and values; NaN equals NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _is_forward(program: Program, key: str) -> bool:
    """Whether a name is made without any gradient."""
    name = key.split(".")[0].split("[")[0]
    spoiled = {w for line in program.of("tail") for w in line.writes}
    for line in program.of("body"):
        if _BACKWARD.search(line.text) or line.reads & spoiled:
            if _EDIT.search(line.text):
                return False  # and so is whatever shares memory with what it edits
            # what reads a gradient may keep it: a BatchNorm's buffers
            spoiled |= line.writes | ({name} & line.reads)
    return name not in spoiled and not key.endswith(".grad")


def _same_shapes(a: Outcome, b: Outcome) -> bool:
    return {k: t.shape for k, t in a.values.items()} == {k: t.shape for k, t in b.values.items()}


def _is_finite(outcome: Outcome) -> bool:
    return all(
        bool(torch.isfinite(t).all()) for t in outcome.values.values() if t.is_floating_point()
    )


def _show(names: list[str], plain: Outcome, ours: Outcome) -> str:
    lines = [", ".join(names)]
    for side, outcome in (("expected", plain), ("actzip", ours)):
        t = outcome.values.get(names[0])
        text = "nothing" if t is None else f"{t.dtype} {tuple(t.shape)} {t.flatten()[:8].tolist()}"
        lines.append(f"{names[0]} {side}: {text}")
    return "\n".join(lines)
