"""A callback for the `Trainer` of transformers and those made from it: TRL's, axolotl's."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from actzip.api import Session
from actzip.instance import DEFAULT_METHOD, apply_to_instance, check, unwrapped
from actzip.integrations.logged import is_guarded, logged
from actzip.integrations.noise_probe import NoiseProbe, is_whole
from actzip.integrations.resume import everywhere, warn_of_lost_state
from actzip.methods.base import Method
from actzip.warning import warn

#: what the training loop consists of; an exception that leaves one of these ends it
_LOOP = ("_run_epoch", "training_step", "_evaluate", "_finalize_training")
_EVENT = "call_event"  #: by which the trainer's handler calls every callback


class ActzipCallback(TrainerCallback):
    """Compresses the model from the beginning of training to its end, also by an exception.

    method       as for `actzip.compress`, and so are all other options but the optimizer
    noise_every  optimizer steps between two measurements of the gradients' noise, which take about
                 as long as two steps; 0: none

    Every log of a training loss has the numbers of `integrations.logged`. The session's state is
    saved in each checkpoint, and loaded by `train(resume_from_checkpoint=…)`. With guard=True the
    session is told the loss of each step. `session` is that of the last training.
    """

    def __init__(
        self, method: str | Method = DEFAULT_METHOD, *, noise_every: int = 500, **options: Any
    ):
        if isinstance(noise_every, bool) or not isinstance(noise_every, int) or noise_every < 0:
            raise ValueError(
                f"noise_every is a whole number of steps, 0 for never, got {noise_every!r}"
            )
        check(method, options)
        self.method = method
        self.options = options
        self.noise_every = noise_every
        self.session: Session | None = None
        self._probe: NoiseProbe | None = None
        self._loss = 0.0
        self._undo: list[Callable[[], None]] = []

    def __getstate__(self) -> dict[str, Any]:
        """A copy, for another process or another trial, has no session yet."""
        return {**vars(self), "session": None, "_probe": None, "_undo": []}

    # -- what the trainer calls ------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model: nn.Module = kwargs["model"]
        self._detach()  # a training that was interrupted had no end
        self._loss = 0.0
        self.session = apply_to_instance(
            model, method=self.method, optimizer=kwargs.get("optimizer"), **self.options
        )
        root = unwrapped(model)
        # a compiled model is left alone, and no process can run a sharded one by itself
        other = args.torch_compile or args.fsdp or args.deepspeed or not is_whole(root)
        self._probe = NoiseProbe(self.session, root, 0 if other else self.noise_every)
        trainer, checkpoint = _trainer_of(self)
        if checkpoint is not None:
            self._resume(_state_file(Path(checkpoint), args))
        if trainer is None:
            warn(
                "no trainer was found that runs ActzipCallback: the model is compressed, but the "
                "log will not have actzip's numbers"
            )
        else:
            self._extend(trainer, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        loss, self._loss = self._loss, 0.0
        if is_guarded(self.session):
            self.session.watch(loss)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.session is None or args.save_only_model or state.is_hyper_param_search:
            return  # of these no run can be resumed
        folder = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        folder.mkdir(parents=True, exist_ok=True)  # each node may have a disk of its own
        file = _state_file(folder, args)
        half = file.with_suffix(".half")  # never a file that is half written
        torch.save(self.session.state_dict(), half)
        os.replace(half, file)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._detach()

    # -- the session -----------------------------------------------------------------------

    def _resume(self, file: Path) -> None:
        assert self.session is not None
        # all processes or none: they learn in the same steps, and wait for each other then
        lost = [each for each, there in everywhere((str(file), file.is_file())) if not there]
        if lost:
            return warn_of_lost_state(f"there is no {', '.join(lost)}")
        try:
            self.session.load_state_dict(torch.load(file, weights_only=True))
        except ValueError as error:  # another method, chosen on purpose perhaps
            warn_of_lost_state(str(error))

    def _extend(self, trainer: Any, state: Any) -> None:
        """Have the trainer's log and step pass through here until training ends.

        `on_log` would be too late: the trainer has put a copy of the logs into `log_history` by
        then, and the loggers' callbacks run before those of the user.
        """
        log, step = trainer.log, getattr(trainer, "training_step", None)

        @functools.wraps(log)
        def extended_log(logs: dict[str, float], *args: Any, **kwargs: Any) -> Any:
            more = self._numbers(state.global_step) if "loss" in logs else {}
            return log({**logs, **more}, *args, **kwargs)

        def extended_step(model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._probe is not None:
                self._probe.see(state.global_step, inputs)
            assert step is not None
            loss = step(model, inputs, *args, **kwargs)
            if is_guarded(self.session):
                self._loss += float(loss)
            return loss

        self._undo.append(_replace(trainer, "log", extended_log))
        if step is not None:
            replaced = functools.wraps(step)(extended_step)
            self._undo.append(_replace(trainer, "training_step", replaced))
        for owner, name in (
            *((trainer, each) for each in _LOOP),
            (trainer.callback_handler, _EVENT),
        ):
            if hasattr(owner, name):
                self._undo.append(_replace(owner, name, self._ended(getattr(owner, name))))

    def _ended(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, after whose failure training is over; there is no event for that."""

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except BaseException:
                self._detach()
                raise

        return called

    def _numbers(self, step: int) -> dict[str, float]:
        if self.session is None or not self._undo:
            return {}
        if self._probe is not None:
            self._probe.measure(step)
        return logged(self.session)

    def _detach(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._probe = None
        if self.session is not None:
            self.session.remove()


def _trainer_of(callback: TrainerCallback) -> tuple[Any, str | None]:
    """The trainer whose training begins, and the checkpoint that it goes on from.

    A callback is given neither of them, so they are looked up among the functions that run.
    """
    frame, trainer = sys._getframe(), None
    while frame.f_back is not None:
        frame = frame.f_back
        found = frame.f_locals.get("self")
        if trainer is None and _runs(found, callback):
            trainer = found
        if trainer is not None and found is trainer:
            checkpoint = frame.f_locals.get("resume_from_checkpoint")
            if isinstance(checkpoint, (str, os.PathLike)):
                return trainer, os.fspath(checkpoint)
    return trainer, None


def _runs(trainer: object, callback: TrainerCallback) -> bool:
    # not by getattr: any object may be asked here, and some do things when they are
    handler = getattr(trainer, "__dict__", {}).get("callback_handler")
    return any(each is callback for each in getattr(handler, "callbacks", ()))


def _replace(trainer: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Put a function in the place of a method of this trainer; returns what takes it out."""
    before = vars(trainer).get(name)
    setattr(trainer, name, function)

    def undo() -> None:
        if vars(trainer).get(name) is not function:
            return  # somebody else put one on top; ours does nothing more from now on
        if before is None:
            delattr(trainer, name)
        else:
            setattr(trainer, name, before)

    return undo


def _state_file(folder: Path, args: Any) -> Path:
    """Of this process: what was learned from its share of the data is its own."""
    rank = "" if args.world_size <= 1 else f"_{args.process_index}"
    return folder / f"actzip_state{rank}.pt"
