"""How the rewriting gets into torch.compile, and out again.

While a graph is traced inside a session, Dynamo's tracing context remembers the session (`traced`).
AOTAutograd asks a partition function later, in the same context. Inductor takes it from its
configuration (`custom_partitioner_fn`, whose `uuid` is a part of every cache key); for other
backends the function that they were made with is wrapped. Both are put in place when the first
graph is traced inside a session, and taken away with the last session.
"""

from __future__ import annotations

import copy
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from actzip.autograd import nesting
from actzip.autograd.compiled import LISTENERS
from actzip.autograd.failures import is_debugging
from actzip.compiled.graph_nodes import save_results
from actzip.compiled.rewrite import rewrite
from actzip.methods.lossless import Lossless
from actzip.torch_private import TracingContext, compiler, frame, saved_tensors_hooks
from actzip.warning import warn

if TYPE_CHECKING:
    from actzip.compiled.front import Front

_FORMAT = "actzip.compiled 10"  #: changes when graphs are rewritten in another way
_KWARGS = {"num_fwd_outputs", "static_lifetime_input_indices"}  #: what must be known of a graph
_MOST = 2  #: times that graphs of a session are compiled again because of other sessions
_lock = threading.RLock()
_sessions: weakref.WeakKeyDictionary[Any, list[weakref.ref[Front]]] = weakref.WeakKeyDictionary()
_fronts: weakref.WeakSet[Front] = weakref.WeakSet()
_taken_back: list[Callable[[], None]] = []  # what undoes the installation; empty: not installed
_said: set[str] = set()


def traced(front: Front) -> None:
    """A graph is being traced inside the session of this front end."""
    context = None if TracingContext is None else TracingContext.try_get()
    if context is None:
        _once("this torch does not say which graph is traced; compiled graphs are left as they are")
        return
    known = _sessions.setdefault(context, [])
    if not any(ref() is front for ref in known):
        known.append(weakref.ref(front))
        front.compiles(frame())
    prepare(front)


def prepare(front: Front) -> None:
    """Something may be compiled inside the session."""
    front.graphs = True
    with _lock:
        _fronts.add(front)
        if not _taken_back:
            _install()


def removed(front: Front) -> None:
    """Its session is over; the last one takes the installation away."""
    with _lock:
        _fronts.discard(front)
        if not _fronts:
            while _taken_back:
                _taken_back.pop()()
    if front.graphs:
        forget_compiled()


def forget_compiled() -> None:
    """Have what was compiled so far compiled again, in all of the process, when it runs next.

    Dynamo does not guard on the absence of hooks: a graph that was compiled before a model had a
    session would be used on. It can only forget all at once, and graphs of other sessions, which
    come and go, must not be compiled again and again for that: at most `_MOST` times each.
    """
    dynamo = sys.modules.get("torch._dynamo")
    reset = getattr(dynamo, "reset_code_caches", None)
    if reset is None or not compiler.compiled_anything():
        return
    with _lock:
        running = [front for front in _fronts if front.has_graphs]
        if any(front.forgotten >= _MOST for front in running):
            _once(
                f"graphs of a session were compiled again {_MOST} times because other sessions "
                "began or ended, and are left as they are from now on: a model that was compiled "
                "before its session may run as it was, uncompressed; begin sessions before "
                "torch.compile, or call torch._dynamo.reset_code_caches()"
            )
            return
        for front in running:
            front.forget()
    reset()


def partition(base: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A partition function for `aot_autograd(partition_fn=…)`: `base`, by default PyTorch's min-cut
    partitioner, and then what the session asks for in which the graph was traced, if any."""
    return _partition(base)


def _partition(base: Callable[..., Any] | None, inductor: bool = False) -> Callable[..., Any]:
    if getattr(base, "is_actzip", False):
        assert base is not None
        return base

    def run(gm: Any, joint_inputs: Any, **kwargs: Any) -> Any:
        inner = base or compiler.min_cut_partition()
        if any(not isinstance(front.wish().policy, Lossless) for front in _current()):
            save_results(gm.graph)
        fw, bw = inner(gm, joint_inputs, **kwargs)
        _apply(fw, bw, kwargs, inductor)
        return fw, bw

    run.is_actzip = True  # type: ignore[attr-defined]
    return run


def _current() -> list[Front]:
    context = None if TracingContext is None else TracingContext.try_get()
    known = [] if context is None else _sessions.get(context, [])
    fronts = [front for ref in known if (front := ref()) is not None]
    running = nesting.at_work()[-1:]
    here = LISTENERS.get(running[0].key) if running else None
    if here is not None and here not in fronts and any(here is front for front in _fronts):
        fronts.append(cast("Front", here))
    return fronts


def _apply(fw: Any, bw: Any, kwargs: dict[str, Any], inductor: bool = False) -> None:
    """Rewrite the graphs if they belong to a session; on an error they stay as they were."""
    fronts = _current()
    if fronts and saved_tensors_hooks(True) is not None:
        _once(
            "hooks for saved tensors (save_on_cpu, say) are set where a graph is compiled: it is "
            "left as it is, so that they get the tensors themselves"
        )
        return
    if len(fronts) > 1:
        _once(
            "a compiled graph runs in several actzip sessions, and is left as it is; compile the "
            "part that has a session of its own by itself"
        )
        return
    if fronts and not kwargs.keys() >= _KWARGS:
        _once(
            "this torch partitions compiled graphs in a way that actzip does not know: they are "
            "left as they are"
        )
        return
    for front in fronts:
        before = copy.deepcopy(fw.graph), copy.deepcopy(bw.graph)
        try:
            static = list(kwargs["static_lifetime_input_indices"] or ())
            turned = inductor and compiler.turns_pictures(fw)
            rewrite(fw, bw, kwargs["num_fwd_outputs"], static, front.wish(), turned)
        except Exception as error:
            fw.graph, bw.graph = before
            if is_debugging():
                raise
            _once(
                f"actzip could not rewrite a compiled graph ({type(error).__name__}: {error}), "
                "which is left as it is: what it saves is kept exactly. Please report it with the "
                "trace that ACTZIP_DEBUG=1 gives"
            )


def _once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        warn(message)


def _uuid() -> str:
    """What compiled code depends on beside the graph: a part of the key of every cache."""
    wishes = [front.wish() for front in _current()]
    return f"{_FORMAT} {[(wish.key, str(wish.root), wish.derives) for wish in wishes]}"


def _install() -> None:
    for put in (_into_inductor, _into_aot):
        try:
            _taken_back.append(put())
        except Exception as error:
            if is_debugging():
                raise
            _once(
                f"actzip does not know the compiler of this torch ({type(error).__name__}: "
                f"{error}); compiled graphs are left as they are"
            )
    if not _taken_back:
        _taken_back.append(lambda: None)


def _into_inductor() -> Callable[[], None]:
    config = compiler.inductor_config()
    before = config.custom_partitioner_fn
    mine = compiler.inductor_partitioner(_partition(before, inductor=True), _uuid, before)
    config.custom_partitioner_fn = mine

    def undo() -> None:
        if config.custom_partitioner_fn is mine:
            config.custom_partitioner_fn = before

    return undo


def _into_aot() -> Callable[[], None]:
    """`AotAutograd`, of which all backends but inductor's own are made, hands the partition
    function to `aot_module_simplified`."""
    backends, inductors = compiler.aot_backends(), compiler.inductor_partition()
    before = backends.aot_module_simplified

    @functools.wraps(before)
    def mine(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("partition_fn")
        if given is not None and given is not inductors:
            kwargs["partition_fn"] = partition(given)
        return before(*args, **kwargs)

    backends.aot_module_simplified = mine

    def undo() -> None:
        if backends.aot_module_simplified is mine:
            backends.aot_module_simplified = before

    return undo
