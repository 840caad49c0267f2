"""compress() and Session: what a user touches."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from actzip import methods, noise, report
from actzip.autograd.attachment import Attachment, drop, push
from actzip.autograd.ledger import Stats
from actzip.autograd.observe import Observer
from actzip.autograd.paths import Paths
from actzip.autograd.saved import Pool
from actzip.autograd.trace import Settings, Trace
from actzip.autograd.watcher import Watcher
from actzip.control.agree import is_together
from actzip.control.statistics import Statistics, sample_indices
from actzip.memory.heap import give_back
from actzip.methods.base import Method
from actzip.noise import NoiseReport
from actzip.torch_private import require

_STATE = 2  # version of Session.state_dict()


class ActzipWarning(UserWarning):
    """Something a user of actzip would want to know, once."""


def compress(
    model: nn.Module | None = None,
    method: str | Method = "lossless",
    *,
    optimizer: torch.optim.Optimizer | None = None,
    min_bytes: int = 4096,
    seed: int = 0,
    guard: bool = False,
    **options: Any,
) -> Session:
    """Keep the tensors that autograd saves in compressed form.

    With a model, every forward call of it in training mode is compressed from now on, until
    `session.remove()`. Without one, the session is a context manager around any code.

    method     a name with its options as keywords, or a method object such as `Lossless()`
    optimizer  for methods that read the optimizer's state
    min_bytes  tensors in smaller storages are left alone
    seed       of the rounding; PyTorch's random streams are never touched
    guard      raise precision, with a warning, when gradients or losses leave their band
    """
    require()
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(
            f"compress needs an nn.Module, got {type(model).__name__}; without a model use "
            "`with actzip.compress(method=…):` around the code"
        )
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}")
    for name, value in (("min_bytes", min_bytes), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} must be a whole number of at least 0, got {value!r}")
    if model is not None and Attachment.of(model) is not None:
        raise ValueError(
            f"this {type(model).__name__} is compressed by another session already; call that "
            "session's remove() first"
        )
    chosen = methods.resolve(method, options)
    chosen = methods.Guarded(chosen) if guard else chosen
    return Session(model, chosen, optimizer, min_bytes, seed)


class Session:
    """What `compress` returns: the numbers of the last forward pass, and the way out."""

    def __init__(
        self,
        model: nn.Module | None,
        method: Method,
        optimizer: torch.optim.Optimizer | None,
        min_bytes: int,
        seed: int,
    ):
        self.method = method
        self.optimizer = optimizer
        self.min_bytes = min_bytes
        self.seed = seed
        self.step = 0  #: forward passes begun
        self._model = None if model is None else weakref.ref(model)
        self.log: list[str] = []  #: what a guard did, and why
        self._policy = method.start(optimizer)
        self._statistics = Statistics(self._policy.history)
        self._indices: torch.Tensor | None = None
        self._learns = True
        self._looked = False  # whether the last pass was looked at
        self._paths = Paths()
        self._pool = Pool()
        self._last: Trace | None = None
        self._lock = threading.Lock()
        self._warned = False
        self._around = threading.local()
        self._attachment = None if model is None else Attachment(model, self._watch)

    # -- numbers ---------------------------------------------------------------------------

    def stats(self) -> Stats:
        """The last finished forward pass: bytes, ratio, and a row per saved tensor."""
        if self._last is None:
            raise RuntimeError(
                "no forward pass has finished yet; run the model in training mode with gradients "
                "enabled, then ask again"
            )
        return self._last.stats()

    def report(self) -> str:
        """The same as a table: where the bytes went, by module, the largest first."""
        return report.table(self.stats(), repr(self.method))

    def explain(self, name: str = "") -> str:
        """Why the saved tensors of a module or site were or were not compressed, and what to do."""
        return report.explain(self.stats(), name, self.min_bytes)

    @property
    def live_bytes(self) -> int:
        """Payload bytes held at this moment, for all graphs that are alive."""
        return self._pool.nbytes

    # -- learning --------------------------------------------------------------------------

    def samples(self, indices: torch.Tensor | Sequence[int]) -> None:
        """Say which samples of the data set the next forward pass is given, by their indices.

        Methods that spread bits over samples then remember how sensitive each of them was. For
        that they look at each backward pass so announced, which takes several times as long.
        """
        self._indices = sample_indices(indices)

    def watch(self, loss: torch.Tensor | float) -> None:
        """Tell a guarded session the loss of this step; precision rises when it leaves its band."""
        self._policy.watch(float(loss.detach() if isinstance(loss, torch.Tensor) else loss))
        self._tell()

    def gradient_noise(
        self,
        batch: tuple[Any, Any],
        loss: Callable[[Any, Any], torch.Tensor] = F.cross_entropy,
        *,
        draws: int = 16,
        parts: int = 8,
    ) -> NoiseReport:
        """Bias², quantization variance and SGD variance of each parameter's gradient on a batch.

        batch  (inputs, targets); the loss is loss(model(inputs), targets), a mean over samples
        draws  repeated forward and backward passes with new rounding
        parts  pieces of the batch whose gradients show the SGD variance

        Precision stays as the method has it now. Gradients, buffers, random streams and the
        session's state are afterwards as they were.
        """
        model = None if self._model is None else self._model()
        if model is None or self._attachment is None:
            raise RuntimeError("gradient_noise needs a session of a model that is attached")
        if draws < 2 or parts < 2:
            raise ValueError(
                f"a variance needs at least 2 draws and parts, got {draws} and {parts}"
            )
        names, gradients = noise.gradients_of(model, loss)
        with self._aside(model):
            policy, self._policy = self._policy, methods.Lossless().start(None)
            exact = gradients(*batch)
            count = min(parts, len(batch[1]))
            pieces = [
                gradients(x, y)
                for x, y in zip(batch[0].chunk(count), batch[1].chunk(count), strict=True)
            ]
            self._policy = policy
            return noise.compare(names, exact, lambda: gradients(*batch), pieces, draws)

    @contextlib.contextmanager
    def _aside(self, model: nn.Module) -> Iterator[None]:
        """Passes that leave no trace: nothing is learned, and all is put back."""
        policy, step, last, warned = self._policy, self.step, self._last, self._warned
        learned, indices = policy.state_dict(), self._indices
        self._learns, self._warned, self._indices = False, True, None
        try:
            with noise.put_back(model):
                yield
        finally:
            self._learns, self._warned, self._indices = True, warned, indices
            self._policy, self.step, self._last = policy, step, last
            policy.load_state_dict(learned)

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on bit for bit."""
        return {
            "version": _STATE,
            "method": repr(self.method),
            "seed": self.seed,
            "step": self.step,
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
        self._policy.load_state_dict(state["policy"])
        self._statistics.load_state_dict(state["statistics"])

    # -- coming and going ------------------------------------------------------------------

    def remove(self) -> None:
        """Detach: the model is as it was. Graphs that are alive can still run backward."""
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment = None
        self._pool.buffers.clear()

    def __enter__(self) -> Session:
        if self._model is None:
            watcher = Watcher(lambda: self._begin(None), self._finished)
            push(watcher)
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
            drop(watcher)
            watcher.finish()
            self._pool.buffers.clear()
        else:
            self.remove()

    def __repr__(self) -> str:
        model = None if self._model is None else self._model()
        what = "any code" if self._model is None else type(model).__name__
        if self._model is not None and self._attachment is None:
            what += " (removed)"
        ratio = f", {self.stats().ratio:.1f}x" if self._last else ""
        return f"<actzip.Session of {what}: {self.method!r}, step {self.step}{ratio}>"

    @property
    def _watchers(self) -> list[Watcher]:
        """This thread's `with` blocks, outermost first."""
        if not hasattr(self._around, "watchers"):
            self._around.watchers = []
        watchers: list[Watcher] = self._around.watchers
        return watchers

    def _watch(self, module: nn.Module) -> Watcher:
        return Watcher(lambda: self._begin(module), self._finished)

    def _begin(self, root: nn.Module | None) -> Trace:
        with self._lock:
            step, self.step = self.step, self.step + 1
            self._statistics.indices, self._indices = self._indices, None
            self._statistics.together = is_together(root)
            learns = self._learns and self._policy.begin(step, self._statistics)
        self._tell()
        if self._looked or learns:  # what a look takes for a moment would come on top, and stay
            give_back()
        self._looked = learns
        seed = (self.seed << 32) + step
        observer = Observer(self._statistics, step) if learns else None
        settings = Settings(self._policy, self.min_bytes, seed, self._paths, self._pool, observer)
        return Trace(settings, root)

    def _tell(self) -> None:
        for message in self._policy.messages():
            self.log.append(message)
            warnings.warn(message, ActzipWarning, stacklevel=3)

    def _finished(self, trace: Trace) -> None:
        if self._model is None and trace.empty and self._last is not None:
            return  # the tail of a `with` after its last backward
        self._last = trace
        if not trace.compressed and not self._warned:
            self._warned = True
            warnings.warn(
                report.nothing(trace.stats(), self.min_bytes), ActzipWarning, stacklevel=2
            )
