"""What a run tells while it goes, what it remembers, and what it ends with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from actzip.tasks.config import Config
from actzip.tasks.method_spec import label
from actzip.tasks.sites import Sites
from actzip.tasks.step_memory import Cost


@dataclass(frozen=True)
class Progress:
    """Where a run is; sent after every step and after every test."""

    step: int
    steps: int
    epoch: int  #: of the epochs, the first is 1
    loss: float
    metrics: dict[str, float]  #: of the last test; empty before the first
    step_seconds: float
    stored_bytes: int | None  #: kept for backward in this step; None where no session counts it
    resident: int | None  #: bytes of the process now; None without /proc


@dataclass(frozen=True)
class Result:
    """What a run reached and what it cost."""

    config: Config
    metrics: dict[str, float]  #: on the test set, at the end
    tests: list[dict[str, float]]  #: the same after each tested epoch, with its number, "epoch"
    losses: list[float]  #: of every step
    step_seconds: float  #: median over all steps but the first ones; fetching data left out
    seconds: float  #: all steps and tests, fetching included
    cost: Cost
    resident_peak: int | None  #: growth of the process from the first step on; None without /proc
    sites: Sites = field(default_factory=dict)  #: how precisely each tensor was stored, over time

    @property
    def label(self) -> str:
        """The method and its options in one word."""
        return label(self.config.method, self.config.options)

    @property
    def metric(self) -> float:
        """The task's main figure."""
        return self.metrics[self.config.kind.metric]

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        values = asdict(self)
        values["metric"] = self.metric
        values["cost"]["ratio"] = self.cost.ratio
        return values

    @classmethod
    def read(cls, values: dict[str, Any]) -> Result:
        """The result of which `values` is the JSON; a ValueError when it is of something else."""
        known = {name: value for name, value in values.items() if name != "metric"}
        try:
            known["config"] = Config(**known["config"])
            known["cost"] = Cost.read(known["cost"])
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no result that this actzip reads: {error}") from error


@dataclass
class History:
    """What happened so far; part of the saved state."""

    epoch: int = 0  #: finished epochs
    done: int = 0  #: steps of the present epoch that are finished
    order: list[int] = field(default_factory=list)  #: of the present epoch; empty before it
    tests: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    sites: Sites = field(default_factory=dict)
