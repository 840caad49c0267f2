"""The noise of a training run's gradients, measured now and then on a few samples of its batch."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from actzip.api import Session
from actzip.warning import warn

_SAMPLES = 4  #: as many gradients are compared
_COPIES = 4 + _SAMPLES  #: of all trainable parameters, that a measurement holds at once
_LITTLE = 256 << 20  #: bytes that any machine has left


class NoiseProbe:
    """`session.gradient_noise` on samples of the last batch, every so many optimizer steps.

    It runs between two steps, when neither activations nor gradients are held, and only if it
    needs less memory than these do in a step, or little. The share of quantization in the noise
    is nearly that of the whole batch: both variances fall with the number of samples.
    """

    def __init__(self, session: Session, model: nn.Module, every: int):
        self._session = session
        self._model = model
        self._every = every
        self._next = 0
        self._batch: dict[str, Any] | None = None
        self._share = 1.0  # of the batch that is measured

    def see(self, step: int, batch: object) -> None:
        """The batch of a training step: some of it is kept if a measurement is due."""
        if not self._every or step < self._next or not isinstance(batch, Mapping):
            return
        sizes = [len(v) for v in batch.values() if isinstance(v, Tensor) and v.dim() > 0]
        if not sizes or sizes[0] < 2:
            return
        some = {k: _first(v, sizes[0]) for k, v in batch.items()}
        self._batch, self._share = some, min(_SAMPLES, sizes[0]) / sizes[0]

    def measure(self, step: int) -> None:
        """Between two steps: measure, if one is due. The run's random streams stay untouched."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        self._next = step + self._every
        if not self._fits():
            return
        limit = self._session.min_bytes
        # the tensors of some samples are smaller, and the same ones shall be compressed
        self._session.min_bytes = int(limit * self._share)
        try:
            with _random_streams():
                self._session.gradient_noise(batch, draws=_SAMPLES, parts=_SAMPLES)
        except Exception as error:  # a number for the log must not end a run
            self._every = 0
            warn(
                f"actzip/noise will not be in the log, to measure it failed with "
                f"{type(error).__name__}: {error}. noise_every=0 does not try"
            )
        finally:
            self._session.min_bytes = limit

    def _fits(self) -> bool:
        weights = sum(p.numel() * p.element_size() for p in _trainable(self._model))
        now = self._session.stats()
        need = _COPIES * weights + self._share * now.raw_bytes
        return need <= max(_LITTLE, weights + now.stored_bytes)


def is_whole(model: nn.Module) -> bool:
    """Whether each process has all of the model, and can run it alone."""
    # DTensors have a mesh, ZeRO's parameters an id; FSDP's are empty between two passes
    return all(
        p.numel() > 0 and not hasattr(p, "device_mesh") and not hasattr(p, "ds_id")
        for p in _trainable(model)
    )


def _trainable(model: nn.Module) -> Iterator[nn.Parameter]:
    return (p for p in model.parameters() if p.requires_grad)


def _first(value: Any, size: int) -> Any:
    if isinstance(value, Tensor) and value.dim() > 0 and len(value) == size:
        return value[:_SAMPLES].clone()
    return value


@contextlib.contextmanager
def _random_streams() -> Iterator[None]:
    """Python's and NumPy's are afterwards as they were; PyTorch's are seen to by the session."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
