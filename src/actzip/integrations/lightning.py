"""A callback for the `Trainer` of Lightning 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback

from actzip.api import Session
from actzip.instance import DEFAULT_METHOD, apply_to_instance, check
from actzip.integrations.logged import is_guarded, logged
from actzip.integrations.resume import warn_of_lost_state
from actzip.methods.base import Method


class ActzipCallback(Callback):
    """Compresses the LightningModule from the start of `fit` to its end.

    method  as for `actzip.compress`, and so are all other options but the optimizer

    Every training batch logs the numbers of `integrations.logged`, `actzip/noise` once
    `callback.session.gradient_noise(…)` was asked for. The session's state is in each checkpoint,
    that of the first process, and is loaded by `fit(ckpt_path=…)`. With guard=True the session is
    told the loss of each batch. `session` is that of the last fit.
    """

    def __init__(self, method: str | Method = DEFAULT_METHOD, **options: Any):
        check(method, options)
        self.method = method
        self.options = options
        self.session: Session | None = None
        self._fits = False
        self._loaded: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy, for another process, has no session yet."""
        return {**vars(self), "session": None, "_fits": False}

    # -- coming and going ------------------------------------------------------------------

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        # one optimizer says when a step is over; of several no one does
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self.session = apply_to_instance(
            pl_module, method=self.method, optimizer=optimizer, **self.options
        )
        self._fits = True
        if self._loaded is not None:
            self.load_state_dict(self._loaded)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        # later than fit's start: some strategies load what callbacks saved only after that
        if trainer.ckpt_path is not None and self._loaded is None:
            warn_of_lost_state(f"{trainer.ckpt_path} has no state of ActzipCallback")
        self._loaded = None

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._detach()

    def _detach(self) -> None:
        self._fits, self._loaded = False, None
        if self.session is not None:
            self.session.remove()

    # -- each batch ------------------------------------------------------------------------

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.session is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if is_guarded(self.session) and isinstance(loss, torch.Tensor):
            self.session.watch(loss)
        numbers = logged(self.session)
        if numbers:
            pl_module.log_dict(numbers, on_step=True, on_epoch=False)

    # -- checkpoints -----------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {} if self.session is None or not self._fits else self.session.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict
        if self.session is None or not self._fits:
            return  # fit has not started: it will load it
        try:
            self.session.load_state_dict(state_dict)
        except ValueError as error:  # another method, chosen on purpose perhaps
            warn_of_lost_state(str(error))
