"""Session: what `compress` returns; it begins each pass, learns from it, and can be detached."""

from __future__ import annotations

import itertools
import threading
import weakref
from types import TracebackType
from typing import Any

import torch
from torch import nn

from actzip import report
from actzip.autograd import nesting
from actzip.autograd.attachment import Attachment
from actzip.autograd.by_identity import ByIdentity
from actzip.autograd.compiled import inside
from actzip.autograd.forward_pass import ForwardPass, Settings
from actzip.autograd.module_paths import Paths, runs_compiled
from actzip.autograd.observe import Observer
from actzip.autograd.watcher import Watcher
from actzip.compiled.front import Front
from actzip.compiled.installation import forget_compiled
from actzip.control.distributed import is_together
from actzip.learning import Learning
from actzip.memory.heap import give_back
from actzip.methods.base import Derives, Method
from actzip.warning import warn

_STATE = 2  # version of Session.state_dict()
_TURN = 0x632BE59BD9B4E019  # keeps the seeds of a step's parts apart

_NUMBERS = itertools.count(1)

#: The session of each model that has one; the model's hooks keep it alive.
_SESSIONS: ByIdentity[nn.Module, weakref.ref[Session]] = ByIdentity()


def session_of(model: nn.Module) -> Session | None:
    """The session that `compress(model, …)` made and that was not removed; None if there is none.

    A part of a compressed model has none, unless it was given one of its own.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"session_of needs an nn.Module, got {type(model).__name__}")
    found = _SESSIONS.get(model)
    return None if found is None else found()


class Session(Learning):
    """What `compress` returns: the numbers of the last passes, and the way out."""

    def __init__(
        self,
        model: nn.Module | None,
        method: Method,
        optimizer: torch.optim.Optimizer | None,
        min_bytes: int,
        seed: int,
        eval_mode: bool = False,
        derive: bool | None = None,
    ):
        super().__init__(method, method.start(optimizer), optimizer, min_bytes)
        if model is not None:
            self._policy.attach(model)
        self.seed = seed
        self._derives = derive
        self._model = None if model is None else weakref.ref(model)
        self._looks = False  # whether this step is looked at
        self._looked = False  # whether the last pass was looked at
        self._ran: list[int] = []  # ids of the modules that were called in this step
        self._paths = Paths()
        self._lock = threading.Lock()
        self._warned = False
        self._around = threading.local()
        self._inner = None if model is None else weakref.ref(inside(model))
        self._front = Front(
            _key(model, method, min_bytes, derive),
            lambda: self._policy,
            min_bytes,
            self._root,
            self._begin,
            self._wants_look,
            self._finished,
            self._failures,
            lambda: self._mode() is Derives.LOSSY,
        )
        self._attachment = (
            None
            if model is None
            else Attachment(model, self._watch, self._failures, eval_mode, self._front.key)
        )
        if model is not None:
            if model is not self._root():
                self._front.calls.hook(model)
            _SESSIONS[model] = weakref.ref(self)
            forget_compiled()

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on bit for bit."""
        self._hear_peak()
        return {
            "version": _STATE,
            "method": repr(self.method),
            "seed": self.seed,
            "step": self.step,
            "untold": self._untold,
            "compiled": self._front.state_dict(),
            "policy": self._policy.state_dict(),
            "statistics": self._statistics.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("version") != _STATE:
            raise ValueError(
                f"this state has version {state.get('version')!r}, this actzip reads {_STATE}"
            )
        if state["method"] != repr(self.method):
            raise ValueError(
                f"the state was saved with {state['method']}, this session runs {self.method!r}; "
                "a resumed run needs the same method"
            )
        self.seed, self.step = int(state["seed"]), int(state["step"])
        self._untold = int(state.get("untold", 0))
        self._front.load_state_dict(state.get("compiled", {}))
        self._policy.load_state_dict(state["policy"])
        self._statistics.load_state_dict(state["statistics"])

    # -- coming and going ------------------------------------------------------------------

    def remove(self) -> None:
        """Detach: the model is as it was. Graphs that are alive can still run backward."""
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment = None
            self._front.remove()
            self._totals.remove()
            self._policy.stop()
            self._meter.end()
            model = None if self._model is None else self._model()
            if model is not None and session_of(model) is self:
                del _SESSIONS[model]
        self._pool.buffers.clear()

    def __enter__(self) -> Session:
        if self._model is None:
            watcher = Watcher(lambda: self._begin(None), self._finished, self._front.key)
            nesting.begin(watcher)
            self._watchers.append(watcher)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._model is None:
            watcher = self._watchers.pop()
            nesting.end(watcher)
            if kind is None:
                watcher.finish()
            else:
                watcher.abandon()
            self._pool.buffers.clear()
        else:
            self.remove()

    def __repr__(self) -> str:
        model = None if self._model is None else self._model()
        what = "any code" if self._model is None else type(model).__name__
        if self._model is not None and self._attachment is None:
            what += " (removed)"
        ratio = f", {self.stats().ratio:.1f}x" if self._totals.last else ""
        return f"<actzip.Session of {what}: {self.method!r}, step {self.step}{ratio}>"

    @property
    def _watchers(self) -> list[Watcher]:
        """This thread's `with` blocks, outermost first."""
        if not hasattr(self._around, "watchers"):
            self._around.watchers = []
        watchers: list[Watcher] = self._around.watchers
        return watchers

    def _watch(self, module: nn.Module) -> Watcher:
        later = runs_compiled(module) and self._front.can_look()
        return Watcher(lambda: self._begin(module, later), self._finished, self._front.key)

    def _attached(self) -> tuple[nn.Module, list[Session]]:
        model = None if self._model is None else self._model()
        if model is None or self._attachment is None:
            raise RuntimeError("gradient_noise needs a session of a model that is attached")
        return model, [s for m in model.modules() if (s := session_of(m)) is not None]

    def _compiled(self) -> tuple[int, int]:
        return self._front.compiled, self._front.recompiled

    def _root(self) -> nn.Module | None:
        return None if self._inner is None else self._inner()

    def _begin(self, running: nn.Module | None, later: bool = False) -> ForwardPass:
        """A pass of the model begins, or of a part of it that is called without the model.

        Parts that are called in turn, an encoder and then a decoder, make one step. `later`: it is
        compiled, and cannot be looked at; the next one can.
        """
        root = self._root()
        with self._lock:
            if not self._ran or id(running) in self._ran:
                passed_over = later and self._wants_look()
                self.step += 1
                self._ran = []
                self._statistics.indices, self._indices = self._indices, None
                self._statistics.together = is_together(root)
                if passed_over:
                    self._untold += 1
                self._looks = False
                if self._trains and not passed_over:
                    self._looks = self._learn(self._pass())
                    self._measure(root)
            self._ran.append(id(running))
            step, learns, turn = self.step - 1, self._looks, len(self._ran) - 1
        self._tell()
        if self._looked or learns:  # what a look takes for a moment would come on top, and stay
            give_back()
        self._looked = learns
        seed = (self.seed << 32) + step + turn * _TURN
        observer = Observer(self._statistics, self._pass()) if learns else None
        settings = Settings(
            policy=self._policy,
            min_bytes=self.min_bytes,
            seed=seed,
            paths=self._paths,
            pool=self._pool,
            failures=self._failures,
            derives=self._mode(),
            observer=observer,
        )
        forward_pass = ForwardPass(settings, root, running)
        if self._trains:
            self._totals.begin(forward_pass)
        return forward_pass

    def _mode(self) -> Derives:
        """What is made again: what the method makes, if the user did not say."""
        own = self._policy.derives
        if self._derives is None or (self._derives and own is not Derives.NOTHING):
            return own
        return Derives.LOSSY if self._derives else Derives.NOTHING

    def _finished(self, forward_pass: ForwardPass) -> None:
        if not self._trains or (
            self._model is None and forward_pass.ledger.empty and self._totals.last
        ):
            return  # empty: the tail of a `with` after its last backward
        self._totals.finish(forward_pass)
        if self._looks:
            self._totals.settle()
            self._front.looked(self.step, forward_pass.ledger.rows)
        if self._looks or self._policy.wants_peak:
            stats = forward_pass.stats()
            self._policy.passed(stats.raw_bytes, stats.stored_bytes)
        if not (forward_pass.ledger.compressed or forward_pass.gave_way or self._warned):
            blind = not forward_pass.visited and _is_trained(forward_pass.root)
            message = report.nothing(forward_pass.stats(), self.min_bytes, blind=blind)
            if message is not None:
                self._warned = True
                warn(message)


def _key(model: nn.Module | None, method: Method, min_bytes: int, derive: bool | None) -> str:
    """The name of a session for what is compiled in it.

    Of the sessions of models in a process only one has it, and the same one in the next run of a
    script, so that compiled code is found in caches. A `with` in a loop is a new session each time,
    and must not compile anew: there the watcher at work says which session it is.
    """
    number = 0 if model is None else next(_NUMBERS)
    return f"{number} {method!r} {min_bytes} {derive}"


def _is_trained(root: nn.Module | None) -> bool:
    return root is None or any(p.requires_grad for p in root.parameters())
