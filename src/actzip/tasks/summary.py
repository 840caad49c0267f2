"""Runs of several seeds as one row for each method: what it reached, and what it cost."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from actzip.tasks.result import Result


@dataclass(frozen=True)
class Row:
    """One method: means over its seeds, of step times and peaks medians; None: not known."""

    label: str
    seeds: list[int]  #: those that ended well
    metric: float | None = None
    spread: float | None = None  #: standard deviation over the seeds; None with one seed
    raw_bytes: int | None = None
    stored_bytes: int | None = None
    ratio: float | None = None  #: plain's saved bytes to these; without a plain run raw to these
    live_peak: int | None = None
    resident_peak: int | None = None
    step_seconds: float | None = None
    slower: float | None = None  #: step time against plain's; None without a plain run
    error: str = ""  #: why a run failed or was skipped

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def rows(results: Sequence[Result], failed: Mapping[str, str] | None = None) -> list[Row]:
    """A row for each method, in the order of the results; `failed`: why by method."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.label, []).append(result)
    errors = dict(failed or {})
    plain = groups.get("plain")
    base = None if plain is None else _row("plain", plain, None, "")
    made = [_row(name, group, base, errors.pop(name, "")) for name, group in groups.items()]
    return made + [Row(name, [], error=error) for name, error in errors.items()]


def _row(name: str, group: list[Result], plain: Row | None, error: str) -> Row:
    metrics = [result.metric for result in group]
    stored = statistics.fmean(result.cost.stored_bytes for result in group)
    raw = statistics.fmean(result.cost.raw_bytes for result in group)
    peaks = [result.resident_peak for result in group if result.resident_peak is not None]
    seconds = statistics.median(result.step_seconds for result in group)
    whole = plain.raw_bytes if plain is not None and plain.raw_bytes else raw
    base = None if plain is None else plain.step_seconds
    return Row(
        label=name,
        seeds=[result.config.seed for result in group],
        metric=statistics.fmean(metrics),
        spread=statistics.stdev(metrics) if len(metrics) > 1 else None,
        raw_bytes=round(raw),
        stored_bytes=round(stored),
        ratio=whole / stored if stored else 1.0,
        live_peak=round(statistics.median(result.cost.live_peak for result in group)),
        resident_peak=round(statistics.median(peaks)) if peaks else None,
        step_seconds=seconds,
        slower=seconds / base if base else None,
        error=error,
    )


def as_csv(found: Sequence[Row]) -> str:
    """A line for each row under a line of names; what is not known stays empty."""
    text = io.StringIO()
    names = [field.name for field in fields(Row)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow({**row.plain(), "seeds": " ".join(str(seed) for seed in row.seeds)})
    return text.getvalue()
