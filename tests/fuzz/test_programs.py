"""Random programs give under actzip what they give without it.

ACTZIP_FUZZ=n runs n times as many; `make fuzz` runs them for as long as is wanted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from actzip.autograd.stored import Stored
from actzip.autograd.tensor_store import TensorStore
from actzip.codecs import Bounded, Group
from actzip.codecs.base import Payload
from actzip.methods import Fixed, Lossless
from fuzz.generate import generate
from fuzz.judge import EXACT, LOSSY, _is_forward, judge
from fuzz.program import Line, Program, run, thresholds
from fuzz.references import snapshots
from fuzz.shrink import shrink

_TIMES = int(os.environ.get("ACTZIP_FUZZ", "1"))
_BATCHES = 10
_EACH = 30 * _TIMES


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    yield
    torch.set_num_threads(before)


def _check(program: Program, lossy: str, seed: int) -> None:
    found = judge(program, (lossy,))
    if not found:
        return
    first = found[0]

    def fails(smaller: Program) -> bool:
        again = judge(smaller, (lossy,) if first.method in LOSSY else ())
        return any((f.method, f.kind) == (first.method, first.kind) for f in again)

    small = shrink(program, fails, tries=300)
    pytest.fail(
        f"seed {seed}, {first.method}: {first.kind}\n{first.detail}\n\n{small.source()}",
        pytrace=False,
    )


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_programs_give_what_they_give_without_actzip(batch: int) -> None:
    """Every program under both exact methods and one of the lossy ones."""
    names = list(LOSSY)
    for seed in range(batch * _EACH, (batch + 1) * _EACH):
        _check(generate(seed), names[seed % len(names)], seed)


def test_edits_behind_autograds_back_do_not_reach_other_tensors() -> None:
    names = list(LOSSY)
    for seed in range(2 * _EACH):
        _check(generate(seed, silent=True), names[seed % len(names)], seed)


# -- the fuzzer itself -------------------------------------------------------------------------


def _program(*body: str, tail: str) -> Program:
    lines = [Line("setup", "x1 = torch.randn(6, 8).requires_grad_()")]
    lines += [Line("body", text) for text in body]
    return Program((*lines, Line("tail", tail)))


def test_a_seed_gives_one_program_and_leaves_the_random_state() -> None:
    state = torch.get_rng_state()
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)
    assert torch.equal(torch.get_rng_state(), state)


def test_programs_are_of_all_kinds() -> None:
    programs = [generate(seed) for seed in range(200)]
    text = "\n".join(p.source() for p in programs)
    for part in (
        *("checkpoint(", "use_reentrant=True", "create_graph=True", "retain_graph=True"),
        *("no_grad()", "autocast(", "Cube.apply", "F.dropout", "zeroed(", "bfloat16", ".clone()"),
        *(".unbind(", ".split(", "float('nan')", "nn.BatchNorm", "_()", "root()", "float64"),
    ):
        assert part in text, part
    outcomes = [run(p) for p in programs]
    refused = [o.raised for o in outcomes if o.raised is not None and o.raised.inplace]
    others = [o for o in outcomes if o.raised is not None and not o.raised.inplace]
    assert len(refused) >= 10  # edits in place that are compared with clones
    assert len(others) <= 30  # programs that end early show little


def test_a_refused_edit_is_compared_with_a_clone_before_it() -> None:
    late = _program(
        "v1 = torch.relu(x1 * 2)",
        "v2 = v1 + 0",
        "v1.zero_()",
        tail="g0 = torch.autograd.grad(v2.sum(), x1)",
    )
    raised = run(late).raised
    assert raised is not None
    assert raised.inplace
    ours, clones = run(late, Lossless()), run(late, around=snapshots)
    assert ours.raised is None
    assert torch.equal(ours.values["g0[0]"], clones.values["g0[0]"])
    assert torch.equal(clones.values["g0[0]"], 2.0 * (clones.values["x1"] > 0))
    assert judge(late, tuple(LOSSY)) == []


def test_a_refused_view_of_unbind_and_what_its_clones_raise_are_no_failures() -> None:
    edited = _program(
        "v1, *rest = x1.unbind(0)",
        "v2 = F.hardshrink(v1)",
        "with torch.no_grad():\n    rest[0][0].zero_()",
        tail="g0 = torch.autograd.grad(v2.sum(), x1)",
    )
    raised = run(edited).raised
    assert raised is not None
    assert raised.inplace
    assert judge(edited, tuple(LOSSY)) == []
    missing = _program(
        "v1 = x1.bfloat16()",
        "v2 = torch.special.i1e(v1)",
        "v1.zero_()",
        tail="g0 = torch.autograd.grad(v2.sum(), x1)",
    )
    clones = run(missing, around=snapshots).raised
    assert clones is not None
    assert clones.kind == "NotImplementedError"
    assert judge(missing, tuple(LOSSY)) == []


def test_programs_with_torch_func_are_compared_with_clones_too() -> None:
    """It refuses hooks: programs with it and a refused edit were compared with nothing."""
    program = _program(
        "v1 = torch.func.hessian(lambda t: (t.clone() ** 3).sum())(x1.flatten()[:3])",
        "v2 = torch.relu(x1 * 2)",
        "v3 = v2 * v2",
        "v2.add_(1)",
        tail="g0 = torch.autograd.grad(v3.sum(), x1)",
    )
    clones = run(program, around=snapshots)
    assert clones.raised is None
    x = clones.values["x1"]
    assert torch.equal(clones.values["g0[0]"], 8 * x.relu())
    assert judge(program, tuple(LOSSY)) == []


def test_what_an_edit_takes_from_a_gradient_is_no_value_of_forward() -> None:
    program = _program(
        "v1 = torch.tanh(x1)",
        "v2 = torch.autograd.grad(total(v1 * v1), x1, retain_graph=True)[0]",
        "v3 = v1.detach().clone()",
        "v4 = v3.view(-1)",
        "v4[:9].copy_(v2.flatten()[:9])",
        "v5 = v3 * 2",
        tail="pass",
    )
    assert judge(program, tuple(LOSSY)) == []


def test_what_a_module_keeps_of_a_gradient_is_no_value_of_forward() -> None:
    lines = _program(
        "v1 = torch.autograd.grad(total(x1 * x1.sin()), x1, create_graph=True)[0]",
        "v2 = m1(v1)",
        tail="pass",
    ).lines
    norm = Line("setup", "m1 = nn.BatchNorm1d(8)")
    assert judge(Program((norm, *lines)), tuple(LOSSY)) == []
    fed = Program((norm, lines[0], Line("body", "v3 = m1(x1)")))
    assert _is_forward(fed, "m1.running_mean")  # compared wherever no gradient comes in
    assert not _is_forward(Program((norm, *lines)), "m1.running_mean")


def test_random_state_is_compared_where_both_end_at_one_line() -> None:
    """Ours may refuse an edit in a later step than plain, and has drawn more by then."""
    assert judge(generate(95000105), ("acgc",)) == []


def test_noise_that_a_hook_copies_before_it_is_drawn_is_not_compared() -> None:
    hooks = "torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t)"
    program = _program(
        f"with {hooks}:\n    v1 = F.rrelu(x1, 0.1, 0.4, training=True) * x1",
        tail="g0 = torch.autograd.grad(total(v1), x1)",
    )
    assert judge(program) == []


def test_what_plain_pytorch_holds_for_ever_is_no_failure() -> None:
    cycle = _program("v1 = x1[..., torch.tensor([0, 0])]", "v1.addcmul_(v1, v1)", tail="pass")
    assert run(cycle, Lossless()).held > 0
    assert judge(cycle) == []


def test_a_wrong_gradient_and_a_lost_exception_are_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = _program("v1 = torch.sin(x1)", tail="g0 = torch.autograd.grad(v1.sum(), x1)")
    wrong = _program("v1 = x1 * 2", tail=program.lines[-1].text)
    broken = _program("v1 = x1 @ x1", tail="pass")
    monkeypatch.setattr(
        "fuzz.judge.run", lambda p, method=None, **how: run(wrong if method else p, method, **how)
    )
    assert [f.kind for f in judge(program)] == ["values of forward differs"] * 2
    assert [f.kind for f in judge(broken)] == ["does not raise RuntimeError"] * 2


def _off(monkeypatch: pytest.MonkeyPatch, name: str, method: Any, *body: str) -> list[str]:
    """What the judge says of a program under this method, and before under the one of this name."""
    program = _program(*body, tail="g0 = torch.autograd.grad(total(v2), x1)")
    assert judge(program, (name,)) == []
    monkeypatch.setitem(LOSSY, name, method)
    return [f.kind for f in judge(program, (name,))]


COARSE = Fixed(Group(1), Group(1))
MAGNIFIES = {
    "plain": ("v1 = torch.tanh(x1)", "v2 = v1 * x1"),
    "norms": ("v1 = (x1 * 3).exp()", "v2 = F.layer_norm(v1, (8,)) * v1.softmax(-1)"),
    "rrelu": ("v1 = F.rrelu(x1, 0.1, 0.4, training=True)", "v2 = v1.tanh() * v1"),
    "func": ("v1 = x1 * 1", "v2 = torch.func.grad(lambda t: (t.tanh() ** 3).sum())(v1)"),
}


@pytest.mark.parametrize("body", list(MAGNIFIES.values()), ids=list(MAGNIFIES))
def test_noise_larger_than_the_codes_step_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, body: tuple[str, ...]
) -> None:
    """Also where noise of the right size is a third of the gradient, where hooks see RReLU's noise
    before it is drawn, and in the graph that torch.func leaves: none of it was compared."""
    assert _off(monkeypatch, "group", COARSE, *body) == ["too far off"]


def test_an_absolute_error_is_compared_with_noise_of_its_own_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values of 1e-6 are lost to `Bounded`, as it was asked to; more than that is a failure."""
    tail = "g0 = torch.autograd.grad(total(v1), x1)"
    tiny = _program("v1 = (x1 * 1e-6).square() * 1e9", tail=tail)
    assert judge(tiny, ("bounded", "group")) == []
    body = ("v1 = x1 * 0.01", "v2 = v1 * v1")
    large = Fixed(Bounded(5e-3), Bounded(5e-3))
    assert _off(monkeypatch, "bounded", large, *body) == ["too far off"]


@pytest.mark.parametrize("instead", ["x1 * 1e-3", "x1 * float('nan')"])
def test_a_gradient_where_plain_has_zero_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    tail = "g0 = torch.autograd.grad(v1.sum(), x1)"
    zero, wrong = _program("v1 = x1 * 0.0", tail=tail), _program(f"v1 = {instead}", tail=tail)
    # values of forward are not what this is about
    monkeypatch.setattr("fuzz.judge._is_forward", lambda _, key: not key.startswith(("g", "v")))
    monkeypatch.setattr(
        "fuzz.judge.run", lambda p, method=None, **how: run(wrong if method else p, method, **how)
    )
    kinds = {f.method: f.kind for f in judge(zero, ("group", "auto"))}
    nan = "nan" in instead
    assert kinds["group"] == ("not finite" if nan else "too far off")
    assert kinds.get("auto") == ("not finite" if nan else None)


def test_shrinking_leaves_what_fails() -> None:
    program = next(p for p in map(generate, range(99)) if len(p.lines) > 15)
    mark = next(line for line in program.of("body") if line.writes)
    small = shrink(program, lambda p: mark in p.lines)
    assert mark in small.lines
    assert len(small.lines) < 6
    assert (small.form, small.steps) == ("around", 1)


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("form", ["around", "forward", "module"])
def test_a_printed_program_runs(form: str) -> None:
    program = replace(next(p for p in map(generate, range(99)) if not run(p).raised), form=form)
    with thresholds(low=True):  # it sets them itself, and they are put back
        exec(compile(program.source(), "<printed>", "exec"), {"__name__": "printed"})


# -- the judge reports defects -------------------------------------------------------------------


def _flip_signs(t: Tensor) -> Tensor:
    out = t.clone()
    out.view(-1)[::4].neg_()
    return out


def _one_further(t: Tensor) -> Tensor:
    return t.roll(1, -1) if t.dim() else t


def _defective(damage: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored in a code comes back damaged."""
    decode = Stored.decode

    def damaged(self: Stored, payload: Payload) -> Tensor:
        return damage(decode(self, payload).contiguous())

    monkeypatch.setattr(Stored, "decode", damaged)


METHODS_JUDGED = ("group", "acgc", "division", "actnn")
CURVED = ("v1 = torch.sin(x1)", "v2 = v1 * v1.cos()")
MASKED = ("v1 = x1 * 2", "v2 = torch.relu(v1) + F.hardtanh(v1)")
#: What it does, to which program, and which of the exact methods decode anything in that.
DEFECTS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[str, ...], tuple[str, ...]]] = {
    "every fourth sign": (_flip_signs, CURVED, ("keep",)),
    "all one place further": (_one_further, CURVED, ("lossless", "keep")),
    "a mask one place further": (_one_further, MASKED, ("lossless", "keep")),
}


def _reported(program: Program) -> dict[str, str]:
    return {f.method: f.kind for f in judge(program, METHODS_JUDGED)}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_what_is_stored_is_reported(
    monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    damage, body, methods = DEFECTS[defect]
    program = _program(*body, tail="g0 = torch.autograd.grad(total(v2), x1)")
    assert _reported(program) == {}
    _defective(damage, monkeypatch)
    exact = {name: "gradient differs" for name in methods if name in EXACT}
    assert _reported(program) == {**exact, **dict.fromkeys(METHODS_JUDGED, "too far off")}


def test_a_tensor_that_is_taken_for_what_it_was_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tail = "g0 = torch.autograd.grad(total(v3), x1)"
    edits = ("v1 = x1.sin()", "v2 = x1 * v1", "v1.data.mul_(-2)", "v3 = x1 * v1")
    program = replace(_program(*edits, tail=tail), silent=True)
    assert _reported(program) == {}
    monkeypatch.setattr(TensorStore, "is_same", lambda *_: True)
    exact = dict.fromkeys(EXACT, "gradient differs")
    assert _reported(program) == {**exact, **dict.fromkeys(METHODS_JUDGED, "too far off")}


MIXED = (
    "v1 = F.softshrink(x1)",
    "v2 = torch.norm(v1, p=float('inf'))",  # a number: autograd keeps it
    "x1.detach().numpy()[...] = 0.0",
    "v2.data.mul_(2)",
)


def test_a_mixture_of_old_and_edited_values_is_no_defect_and_another_gradient_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All old and all new values give 0 here: 0/0 of the edited norm, which autograd keeps, shows
    where softshrink's input, which is stored, is as it was."""
    program = _program(*MIXED, tail="g0 = torch.autograd.grad(v2 * 0, x1)")
    program = replace(program, silent=True)
    for name, method in EXACT.items():
        assert run(program, method).values["g0[0]"].isnan().any(), name
    assert _reported(program) == {}
    _defective(_one_further, monkeypatch)
    assert _reported(program) == dict.fromkeys(EXACT, "gradient differs")
