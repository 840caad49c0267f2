"""What a comparison says, in sentences: for the terminal below its table, for the report on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actzip.memory.measure import size


def reading(rows: Sequence[Mapping[str, Any]], name: str, better: str) -> str:
    """One sentence on what stores least, against plain; a second one with a single seed.

    `rows` are those of `actzip compare` as plain values, `name` and `better` the metric's. Empty
    where there is nothing to compare: no plain run, or no other.
    """
    done = [row for row in rows if row["metric"] is not None]
    plain = next((row for row in done if row["label"] == "plain"), None)
    others = [row for row in done if row is not plain]
    if plain is None or not others:
        return ""
    least = min(others, key=lambda row: float(row["stored_bytes"]))
    said = (
        f"{least['label']} keeps {size(least['stored_bytes'])} for backward where plain PyTorch "
        f"keeps {size(plain['stored_bytes'])}: {least['ratio']:.1f} times less. The step's peak is "
        f"{size(least['live_peak'])} instead of {size(plain['live_peak'])}, a step takes "
        f"{least['slower']:.2f} times as long, and {name} is "
        f"{_metric(least['metric'], better)}, plain's {_metric(plain['metric'], better)}."
    )
    if len(plain["seeds"]) == 1:
        said += " One seed: differences of a point come from chance as well."
    return said


def _metric(value: float, better: str) -> str:
    return f"{value:.3f}" if better == "lower" else f"{value:.2%}"
