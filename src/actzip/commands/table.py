"""Results of runs side by side, a column for each method."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table

from actzip.commands.progress import shown
from actzip.memory.measure import size
from actzip.tasks.result import Result

LEGEND = (
    "saved: what is kept for backward in one step. Live peak: tensors of one step above weights "
    "and optimizer state; resident peak: growth of the whole process over the run."
)


def table(results: list[Result]) -> Table:
    """All results with the figures that decide between them."""
    first = results[0].config
    made = Table()
    made.add_column(f"{first.model}, batch {first.batch}")
    for result in results:
        made.add_column(result.label, justify="right")
    plain = next((r for r in results if r.config.method == "plain"), None)
    for name, show in _ROWS.items():
        made.add_row(name, *(show(result, plain) for result in results))
    return made


def _step(result: Result, plain: Result | None) -> str:
    own = f"{result.step_seconds * 1e3:.0f} ms"
    if plain is None or plain is result:
        return own
    return f"{own} ({result.step_seconds / plain.step_seconds:.2f}×)"


_Show = Callable[[Result, Result | None], str]

_ROWS: dict[str, _Show] = {
    "test": lambda r, plain: shown(r.config.kind, r.metrics),
    "last loss": lambda r, plain: f"{r.losses[-1]:.6f}",
    "step time, median": _step,
    "saved": lambda r, plain: size(r.cost.stored_bytes),
    "saved, ratio": lambda r, plain: f"{r.cost.ratio:.2f}×",
    "live peak": lambda r, plain: size(r.cost.live_peak),
    "resident peak": lambda r, plain: (
        "not known here" if r.resident_peak is None else size(r.resident_peak)
    ),
}
