"""A context manager around `training_step`, in the place where TRL's trainers have one."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch import nn

from actzip.api import Session
from actzip.instance import DEFAULT_METHOD, apply_to_instance, check
from actzip.methods.base import Method


class CompressedSteps:
    """`with steps:` around every training step; the model is compressed from the first one on.

    method     as for `actzip.compress`, and so are all other options
    optimizer  the optimizer, or a function that gives it: a trainer has none before it trains

    The session stays with the model between the steps, because what it learns in one serves the
    next; `remove()` detaches it. `session` is None before the first step.
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | Method = DEFAULT_METHOD,
        *,
        optimizer: object | Callable[[], object] | None = None,
        **options: Any,
    ):
        check(method, options)
        self.session: Session | None = None
        self._model = model
        self._method = method
        self._optimizer = optimizer
        self._options = options

    def __enter__(self) -> Session:
        if self.session is None:  # late: adapters, wrappers and the optimizer are there by now
            found = self._optimizer() if callable(self._optimizer) else self._optimizer
            self.session = apply_to_instance(
                self._model, method=self._method, optimizer=found, **self._options
            )
        return self.session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing: the next step goes on."""

    def remove(self) -> None:
        """Detach; to enter again begins anew."""
        if self.session is not None:
            self.session.remove()
            self.session = None
