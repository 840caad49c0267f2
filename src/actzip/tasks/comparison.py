"""The same training with several methods and seeds: what is to be run, and what is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from actzip.memory.fresh_process import call_fresh
from actzip.tasks import engine, run_folder
from actzip.tasks.config import Config, read_config
from actzip.tasks.method_spec import label
from actzip.tasks.result import Progress, Result


@dataclass(frozen=True)
class Run:
    """One training run and its folder."""

    config: Config
    folder: Path

    @property
    def label(self) -> str:
        """The method and its options in one word."""
        return label(self.config.method, self.config.options)

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.config.seed}"

    def found(self) -> Result | None:
        """The result that is in the folder; None when the run is not finished.

        Raises ValueError when the folder has a run with other settings.
        """
        values = run_folder.read_result(self.folder)
        if values is not None:
            try:
                result = Result.read(values)
            except ValueError as error:
                raise ValueError(f"{self.folder}: {error}; remove that folder") from error
            self._check(result.config)
            return result
        if self._state.exists():
            self._check(read_config(run_folder.read_state(self.folder)))
        return None

    def go(self, listen: Callable[[Progress], None]) -> Result:
        """Run, or go on from its saved state, in a fresh process: its peaks are its own."""
        resume = self.folder if self._state.exists() else None
        result: Result = call_fresh(
            engine.run, self.config, self.folder, None, resume, listen=listen
        )
        return result

    @property
    def _state(self) -> Path:
        return self.folder / run_folder.STATE

    def _check(self, there: Config) -> None:
        asked, is_there = self.config.plain(), there.plain()
        for name, value in asked.items():
            if is_there[name] != value:
                raise ValueError(
                    f"the run in {self.folder} has {name}={is_there[name]!r}, asked was {value!r}; "
                    "name another --out, or remove that folder"
                )


def plan(configs: Sequence[Config], seeds: Sequence[int], out: Path) -> list[Run]:
    """Every config with every seed; all of a seed first, so that a stop leaves a comparison."""
    return [
        Run(replace(config, seed=seed), out / folder_name(config, seed))
        for seed in seeds
        for config in configs
    ]


def folder_name(config: Config, seed: int | None = None) -> str:
    """The name of a run's folder among those of a comparison."""
    name = re.sub(r"[^\w.=]+", "-", label(config.method, config.options))
    return name if seed is None else f"{name}-seed{seed}"
