"""Random programs: each line is tried while the program grows, and kept if it runs."""

from __future__ import annotations

import contextlib
import random
import re
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from fuzz import layers, ops
from fuzz.functions import CUSTOM
from fuzz.program import Line, Program, namespace

_SHAPES = (
    (6, 8),
    (8, 8),
    (16, 8),
    (2, 16, 8),
    (4, 6, 6),
    (2, 4, 6, 6),
    (2, 8, 4, 4),
    (12,),
    (3, 1),
)
_MOST = 4096  #: elements of a tensor
_LARGE = 300.0  #: magnitude from which a tame program takes another way
_NUMBERS = ("0.5", "2.0", "-1.5", "0.1", "1.0", "0.0", "3.0")
_HOLE = re.compile(r"\{(unary:)?((?:[^{}]|\{[^{}]*\})*)\}")

#: What lines are made from, and how often.
_KINDS: list[tuple[int, str, list[str]]] = [
    (22, "value", ops.POINTWISE),
    (14, "value", ops.BINARY),
    (8, "value", ops.REDUCTIONS),
    (14, "value", ops.VIEWS),
    (10, "value", ops.COPIES),
    (6, "value", ops.INDEXING),
    (6, "value", ops.PRODUCTS),
    (4, "value", CUSTOM),
    (2, "value", ops.ODD),
    (10, "edit", layers.EDITS),
    (5, "edit", layers.ISLANDS),
    (8, "block", layers.BLOCKS),
    (10, "block", layers.CHAINS),
    (12, "module", []),
    (2, "inner", []),
]


def generate(seed: int, *, silent: bool = False) -> Program:
    """The program of this seed; `silent` ones also edit tensors behind autograd's back."""
    return _Generator(random.Random(seed), silent, seed).program()


class _Generator:
    def __init__(self, rng: random.Random, silent: bool, seed: int):
        self._rng = rng
        self._silent = silent
        self._seed = seed % 2**31
        self._wild = not silent and rng.random() < 0.15
        self._broken = rng.random() < 0.05  # may hold lines that raise
        self._lines: list[Line] = []
        self._space: dict[str, Any] = namespace()
        self._count = 0
        self._made: list[str] = []  # tensors, the newest last
        self._leaves: list[str] = []

    def program(self) -> Program:
        rng = self._rng
        # the program grows in the state in which it is run later
        state = torch.get_rng_state()
        torch.manual_seed(self._seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(rng.randint(1, 3)):
                    self._leaf()
                for _ in range(rng.choice((3, 6, 12, 20, 30))):
                    self._grow()
                self._tail()
        finally:
            torch.set_rng_state(state)
        form = rng.choice(("around", "around", "forward", "module"))
        steps = rng.choice((1, 1, 1, 2, 3))
        order = {"setup": 0, "body": 1, "tail": 2}
        lines = sorted(self._lines, key=lambda line: order[line.stage])
        low = rng.random() < 0.5
        return Program(tuple(lines), form, steps, self._wild, self._silent, self._seed, low)

    # -- lines -----------------------------------------------------------------------------

    def _leaf(self) -> None:
        rng, name = self._rng, self._name("x")
        shape = rng.choice(_SHAPES)
        dtype = rng.choice(("", "", "", "", ", dtype=torch.float64", ", dtype=torch.bfloat16"))
        value = f"torch.{rng.choice(('randn', 'randn', 'randn', 'rand', 'zeros'))}{{}}"
        value += rng.choice(("", "", "", "", ".mul(3).round()", ".relu()"))
        kind = rng.random()
        if kind < 0.1 and len(shape) > 1:
            value = value.format(f"({(*shape[:-2], shape[-1], shape[-2])}{dtype})") + ".mT"
        elif kind < 0.15:
            value = value.format(f"({(*shape[:-1], 2 * shape[-1])}{dtype})") + "[..., ::2]"
        elif kind < 0.2 and len(shape) == 4:
            value = value.format(f"({shape}{dtype})")
            value += ".contiguous(memory_format=torch.channels_last)"
        else:
            value = value.format(f"({shape}{dtype})")
        if rng.random() < 0.4:
            self._try("setup", f"{name} = nn.Parameter({value})")
        else:
            grad = rng.choice((".requires_grad_()", "")) if self._leaves else ".requires_grad_()"
            self._try("setup", f"{name} = {value}{grad}")
        self._leaves.append(name)

    def _grow(self) -> None:
        weights = [weight for weight, _, _ in _KINDS]
        for _ in range(6):  # tries
            _, kind, templates = self._rng.choices(_KINDS, weights)[0]
            if self._wild and kind == "value" and self._rng.random() < 0.2:
                templates = ops.WILD
            if self._silent and self._rng.random() < 0.2:
                kind, templates = "edit", layers.SILENT
            if getattr(self, f"_{kind}")(templates):
                return

    def _value(self, templates: list[str]) -> bool:
        expression = self._fill(self._rng.choice(templates), self._pick())
        name = self._name("v")
        return self._try("body", f"{name} = {expression}")

    def _edit(self, templates: list[str]) -> bool:
        target = self._pick()
        return self._try("body", self._fill(self._rng.choice(templates), target))

    def _block(self, templates: list[str]) -> bool:
        name = self._name("v")
        text = self._rng.choice(templates).replace("{o}", name)
        return self._try("body", self._fill(text, self._pick()))

    def _module(self, _: list[str]) -> bool:
        a = self._pick()
        t = self._space[a]
        fitting = [m for m in layers.MODULES if m[0] in (0, t.dim())]
        if not t.dim() or t.dtype is not torch.float32:
            return False
        _, make, call = self._rng.choice(fitting)
        sizes = {"{w}": str(t.shape[-1]), "{n}": str(t.shape[min(1, t.dim() - 1)])}
        for hole, size in sizes.items():
            make = make.replace(hole, size)
        layer, name = self._name("m"), self._name("v")
        stage = "body" if self._rng.random() < 0.1 else "setup"
        call = self._fill(call.replace("{l}", layer), a)
        if not self._try(stage, f"{layer} = {make}"):
            return False
        if self._try("body", f"{name} = {call}"):
            return True
        self._lines.pop()
        return False

    def _inner(self, _: list[str]) -> bool:
        """A backward pass in the midst of the forward pass."""
        sources = self._graded(self._leaves)
        ends = self._graded(self._made)
        if not sources or not ends:
            return False
        end, name = self._rng.choice(ends), self._name("v")
        graph = self._rng.choice(("create_graph=True", "retain_graph=True"))
        source = self._rng.choice(sources)
        return self._try(
            "body", f"{name} = torch.autograd.grad(total({end}), {source}, {graph})[0]"
        )

    # -- the backward passes ---------------------------------------------------------------

    def _tail(self) -> None:
        rng = self._rng
        ends = self._graded(self._made)
        leaves = self._graded(self._leaves)
        if not ends or not leaves:
            return
        chosen = ends[-1:] + rng.sample(ends, min(len(ends), rng.randint(0, 3)))
        chosen = list(dict.fromkeys(chosen))
        loss = f"total({', '.join(chosen)})"
        sources = f"[{', '.join(leaves)}]"
        middle = [n for n in ends if n not in chosen]
        kind = rng.choice(("backward", "grad", "twice", "second", "second", "each", "middle"))
        grad = "torch.autograd.grad({}, {}, allow_unused=True{})"
        if kind == "backward":
            lines = [f"{loss}.backward()"]
        elif kind == "grad":
            lines = ["g0 = " + grad.format(loss, sources, "")]
        elif kind == "twice":
            lines = [f"l0 = {loss}", "l0.backward(retain_graph=True)", "l0.backward()"]
        elif kind == "each":
            lines = [
                f"g{k} = " + grad.format(f"total({end})", sources, ", retain_graph=True")
                for k, end in enumerate(chosen)
            ]
        elif kind == "middle" and middle:
            sources = f"[{', '.join([*leaves, rng.choice(middle)])}]"
            lines = ["g0 = " + grad.format(loss, sources, "")]
        else:
            first = grad.format(loss, sources, ", create_graph=True")
            squares = "total(*[g * g for g in g0 if g is not None and g.requires_grad])"
            lines = [f"g0 = {first}", f"l1 = {squares}", "g1 = " + grad.format("l1", sources, "")]
        self._lines += [Line("tail", text) for text in lines]

    # -- names and holes -------------------------------------------------------------------

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _graded(self, names: list[str]) -> list[str]:
        def good(t: object) -> bool:
            return isinstance(t, Tensor) and t.requires_grad and t.layout is torch.strided

        return [n for n in names if good(self._space.get(n))]

    def _pick(self) -> str:
        """A tensor: mostly one of the newest, and one with a gradient."""
        names = self._made[-4:] if self._rng.random() < 0.7 else self._made
        graded = self._graded(names)
        return self._rng.choice(graded if graded and self._rng.random() < 0.9 else names)

    def _like(self, a: str) -> str:
        shape = self._space[a].shape
        same = [n for n in self._made if self._space[n].shape == shape]
        if self._rng.random() < 0.2:
            for n in self._rng.sample(self._made, len(self._made)):
                with contextlib.suppress(RuntimeError):
                    torch.broadcast_shapes(shape, self._space[n].shape)
                    return n
        return self._rng.choice(same)

    def _fill(self, template: str, a: str) -> str:
        rng, t = self._rng, self._space[a]
        d = rng.randrange(t.dim()) if t.dim() else 0
        n = t.shape[d] if t.dim() else 1
        fixed = {
            "a": a,
            "b": self._like(a),
            "q": rng.choice(self._made),
            "d": str(d if rng.random() < 0.5 else d - t.dim()),
            "e": str(rng.randrange(max(t.dim(), 1))),
            "n": str(n),
            "i": f"torch.tensor([0, {max(n - 1, 0)}])",
            "m": f"({self._like(a)} > 0.2)",
            "shape": str(tuple(t.shape)),
        }

        def hole(match: re.Match[str]) -> str:
            unary, name = match.groups()
            if unary:
                inner = self._rng.choice(ops.POINTWISE).replace("{a}", name)
                return "(" + fill(inner) + ")"
            if name == "c":
                return rng.choice(_NUMBERS)
            if name == "p":
                return rng.choice(("0.0", "0.1", "0.5", "1.0"))
            return rng.choice(("1", "2", "3")) if name == "k" else fixed[name]

        def fill(text: str) -> str:
            while "{" in text:
                text = _HOLE.sub(hole, text)
            return text

        return fill(template)

    # -- trying ----------------------------------------------------------------------------

    def _try(self, stage: str, text: str) -> bool:
        """Run a line; keep it if its results are tensors that a program can go on with."""
        line = Line(stage, text)
        before = set(self._space)
        try:
            exec(line.code, self._space)
        except Exception:
            if self._broken and self._rng.random() < 0.05:
                self._lines.append(line)  # the user's mistake: has to look the same with actzip
                return True
            return False
        new = [n for n in self._space if n not in before and not n.startswith("__")]
        if stage == "setup" or isinstance(self._space.get(next(iter(new), "")), nn.Module):
            self._made += [n for n in new if isinstance(self._space[n], Tensor)]
            self._lines.append(line)
            return True
        made: list[str] = []
        for name in new:
            value = self._space.pop(name)
            target = self._spread(value, made)
            if target is None:
                return False
            line = Line(stage, line.text.replace(name, target) if len(new) == 1 else line.text)
        if not self._is_good([self._space[n] for n in (*made, *self._made)], len(made)):
            if made:
                for n in made:
                    del self._space[n]
                return False
            return self._undo(line)
        self._lines.append(line)
        self._made += made
        return True

    def _undo(self, line: Line) -> bool:
        """An edit cannot be taken back: it stays, and what it spoiled is used no more."""
        self._lines.append(line)
        kept = [n for n in self._made if self._is_good([self._space[n]], 1)]
        self._made = kept or self._made
        return True

    def _spread(self, value: Any, made: list[str]) -> str | None:
        """Names for a result, as the left side of an assignment; None if it is no tensor."""
        if isinstance(value, Tensor):
            if value.dtype in (torch.bool, torch.int64, torch.int32):
                return "_"
            name = self._name("v")
            self._space[name] = value
            made.append(name)
            return name
        if not isinstance(value, (tuple, list)) or not 0 < len(value) <= 16:
            return None
        parts = [self._spread(v, made) for v in value]
        return None if None in parts else f"({', '.join(str(p) for p in parts)},)"

    def _is_good(self, tensors: list[Tensor], new: int) -> bool:
        for t in tensors[: new or None]:
            if t.layout is not torch.strided or t.is_nested or t.numel() > _MOST:
                return False
            if not self._wild and t.numel():
                peak = t.detach().abs().max()
                if not bool(peak <= _LARGE):
                    return False
        return new == 0 or bool(tensors)
