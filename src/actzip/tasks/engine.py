"""The training loop: epochs of seeded batches, a test after each, a saved state to go on from."""

from __future__ import annotations

import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from actzip.memory.measure import reset_resident_peak, resident
from actzip.tasks import data as sources
from actzip.tasks import sites
from actzip.tasks.config import Config, read_config
from actzip.tasks.first_process import is_first_here
from actzip.tasks.interrupt import Interrupt
from actzip.tasks.ranks import Ranks
from actzip.tasks.result import History, Progress, Result
from actzip.tasks.run_folder import Journal, read_state
from actzip.tasks.step_memory import cost
from actzip.tasks.task import Batch, first_line
from actzip.tasks.trainer import Part, Trainer, placed

#: settings that decide what is read
_READING = ("side", "length", "limit", "void", "text_column", "label_column", "strict")
_APART = 1_000_003  #: between the seeds of processes that train together
_WARMUP = 2  #: steps that are not timed: oneDNN builds its kernels in them


def run(
    config: Config,
    out: Path | None = None,
    state: Path | None = None,
    resume: Path | None = None,
    notify: Callable[[Progress], None] | None = None,
) -> Result:
    """Train as `config` says; peaks are true only in a fresh process.

    out         a folder for metrics.jsonl, state.pt and result.json
    state       another file for the state, saved after each epoch and on Ctrl-C
    resume      such a file, or the folder of a run, to go on from, bit for bit
    """
    loop = Loop(config, load(config), Journal(out, state), notify)
    if resume is not None:
        loop.load_state_dict(read_state(resume))
    return loop.run()


def load(config: Config) -> sources.Data:
    """The data of a run. The split does not depend on the run's seed: runs stay comparable."""
    with warnings.catch_warnings():
        # who started this run was warned, and of several processes one is enough
        if multiprocessing.parent_process() is not None or not is_first_here():
            warnings.simplefilter("ignore", sources.DataWarning)
        return sources.load(
            config.data,
            config.task,
            tokens=config.kind.models[config.model].tokens,
            **{name: getattr(config, name) for name in _READING},
        )


class Loop:
    """One run from its first or its resumed step to its result."""

    def __init__(
        self,
        config: Config,
        data: sources.Data,
        journal: Journal,
        notify: Callable[[Progress], None] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.ranks.check(config.batch, config.accumulate)
        if self.ranks.world > 1 and config.device != "cpu":
            raise ValueError(
                f"processes that train together run on the CPU here, got device {config.device}; "
                "for several GPUs use actzip.compress in your own script"
            )
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.per_epoch = len(data.train) // config.batch
        if self.per_epoch < 1:
            raise ValueError(
                f"a batch of {config.batch} is more than the {len(data.train)} training examples "
                f"of {data.name}; choose a smaller batch"
            )
        self.config, self.data, self.journal, self.notify = config, data, journal, notify
        self.steps = config.epochs * self.per_epoch
        self.trainer = self._trainer(config.method, self.ranks.spread)
        self.trainer.called = self.ranks.shared(self.trainer.model)
        if not self.ranks.first:  # dropout of its own, weights as the others
            torch.manual_seed(config.seed + _APART * self.ranks.rank)
        self.history = History()
        self.interrupt = Interrupt()
        self.shuffling = torch.Generator().manual_seed(2 * config.seed)
        self.augmenting = torch.Generator().manual_seed(2 * config.seed + 1)

    def _trainer(self, method: str, spread: Callable[[nn.Module], None] | None = None) -> Trainer:
        options = self.config.options if method == self.config.method else {}
        config = replace(self.config, method=method, options=options)
        return Trainer(config, self.data, self.steps, spread)

    def check(self) -> None:
        """One forward pass, so that sizes which do not go together are told before any training."""
        config, model = self.config, self.trainer.model
        part = self._part(torch.arange(min(2, config.batch)))
        try:
            with torch.no_grad(), self.trainer.precision():
                config.kind.loss(model.eval(), part.inputs, part.targets)
        except (RuntimeError, IndexError) as error:
            raise ValueError(
                f"{config.kind.described(config.model, config.sizes)} does not run on "
                f"{self.data.name}, inputs {tuple(part.inputs.shape[1:])}: {first_line(error)}"
            ) from error
        finally:
            model.train()

    def run(self) -> Result:
        if self.ranks.world > 1:
            begun = self.state_dict()  # all processes make it together
            self.journal.start(len(self.history.losses), lambda: begun)
        else:
            self.journal.start(len(self.history.losses), self.state_dict)
        low = reset_resident_peak()
        began = time.perf_counter() - self.history.seconds
        try:
            with self.interrupt:
                while self.history.epoch < self.config.epochs:
                    self._epoch()
                    self.history.seconds = time.perf_counter() - began
                    self.journal.save(self.state_dict())
        except KeyboardInterrupt:
            self.history.seconds = time.perf_counter() - began
            if self.interrupt.asked:  # else the step was cut in the middle: nothing to save
                self.journal.save(self.state_dict())
            raise
        finally:
            high = resident("VmHWM")
            self.trainer.close()
        return self._result(None if low is None or high is None else max(0, high - low))

    def _epoch(self) -> None:
        """The rest of the present epoch, and its test."""
        history, config = self.history, self.config
        if not history.order:
            count = len(self.data.train)
            history.order = torch.randperm(count, generator=self.shuffling).tolist()
        self.trainer.model.train()
        while history.done < self.per_epoch:
            start = history.done * config.batch
            self._step(torch.tensor(history.order[start : start + config.batch]))
            self.interrupt.asked = self.ranks.any(self.interrupt.asked)  # all stop together
            self.interrupt.check()
        epoch = history.epoch + 1
        if epoch % config.test_every == 0 or epoch == config.epochs:
            metrics = self._test()
            history.tests.append({"epoch": epoch, **metrics})
            self.journal.line(step=len(history.losses), epoch=epoch, test=metrics)
        history.epoch, history.done, history.order = epoch, 0, []

    def _step(self, indices: Tensor) -> None:
        history, trainer = self.history, self.trainer
        rate = trainer.rate
        parts = [
            self.ranks.own(self._part(each, self.augmenting))
            for each in indices.chunk(self.config.accumulate)
        ]
        began = time.perf_counter()
        loss = self.ranks.mean(trainer.step(parts))
        seconds = time.perf_counter() - began
        history.done += 1
        history.losses.append(loss)
        history.step_seconds.append(seconds)
        stored, step = None, len(history.losses)
        if trainer.session is not None:
            stored = trainer.session.stats().stored_bytes
            if sites.is_look(step, self.steps):
                sites.note(history.sites, step, trainer.session)
        at = Progress(
            step=step,
            steps=self.steps,
            epoch=history.epoch + 1,
            loss=loss,
            metrics=history.tests[-1] if history.tests else {},
            step_seconds=seconds,
            stored_bytes=stored,
            resident=resident("VmRSS"),
        )
        self.journal.line(
            step=at.step,
            epoch=at.epoch,
            loss=loss,
            rate=rate,
            seconds=seconds,
            stored_bytes=stored,
            resident=at.resident,
        )
        if self.notify is not None:
            self.notify(at)

    def _part(self, indices: Tensor, rng: torch.Generator | None = None) -> Part:
        inputs, targets = self.data.train.batch(indices, rng)
        return placed(self.config, inputs, targets, self.trainer.device)

    def _test(self) -> dict[str, float]:
        model = self.trainer.model.eval()
        with torch.no_grad(), self.trainer.precision():
            found = self.config.kind.evaluate(model, self._tests(), len(self.data.classes))
        model.train()
        return found

    def _tests(self) -> Iterator[Batch]:
        for indices in torch.arange(len(self.data.test)).split(self.config.batch):
            if self.ranks.world == 1:  # together they stop after a step only
                self.interrupt.check()
            inputs, targets = self.data.test.batch(indices)
            part = placed(self.config, inputs, targets, self.trainer.device)
            yield part.inputs, part.targets

    def _result(self, resident_peak: int | None) -> Result:
        history = self.history
        size = self.config.batch // self.config.accumulate // self.ranks.world
        result = Result(
            config=self.config,
            metrics={k: v for k, v in history.tests[-1].items() if k != "epoch"},
            tests=history.tests,
            losses=history.losses,
            step_seconds=statistics.median(history.step_seconds[_WARMUP:] or history.step_seconds),
            seconds=history.seconds,
            cost=cost(
                self._trainer,
                self.config.method,
                self._part(torch.arange(size)),
                self.trainer.state_dict(),
            ),
            resident_peak=resident_peak,
            sites=history.sites,
        )
        self.journal.result(result.plain())
        return result

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs; processes that train together must all ask for it."""
        trainer = self.trainer.state_dict()
        own = {name: trainer[name] for name in ("session", "random")}
        return {
            "config": self.config.plain(),
            "trainer": trainer,
            "ranks": self.ranks.gathered(own),
            "history": asdict(self.history),
            "shuffling": self.shuffling.get_state(),
            "augmenting": self.augmenting.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = read_config(state)
        if saved != self.config:
            raise ValueError(f"the saved state is of {saved}, this run is {self.config}")
        own = state.get("ranks", [{}])
        if len(own) != self.ranks.world:
            raise ValueError(
                f"the saved state is of {len(own)} processes, this run has {self.ranks.world}; "
                f"go on with as many"
            )
        try:
            self.trainer.load_state_dict({**state["trainer"], **own[self.ranks.rank]})
            self.history = History(**state["history"])
            self.shuffling.set_state(state["shuffling"])
            self.augmenting.set_state(state["augmenting"])
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"the saved state does not fit the run that it names: {first_line(error)}; was it "
                "written by another actzip, or has the data changed?"
            ) from error
