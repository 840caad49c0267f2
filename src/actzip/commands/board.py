"""The table of a comparison: a row for each method, also while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from actzip.commands.progress import figures
from actzip.memory.measure import size
from actzip.tasks.comparison import Run
from actzip.tasks.result import Progress, Result
from actzip.tasks.summary import Row, rows
from actzip.tasks.task import Task


class Board:
    """Follows the runs of a comparison; a context manager.

    On a terminal one table that changes in place, elsewhere a line for each run that ends.
    """

    def __init__(self, console: Console, runs: Sequence[Run]) -> None:
        self.results: list[Result] = []
        self.failed: dict[str, str] = {}  #: the errors of runs that failed, by their names
        self.skipped: dict[str, str] = {}  #: why runs were not begun, by their names
        self._console = console
        self._labels = list(dict.fromkeys(run.label for run in runs))
        self._seeds = len(runs) // max(1, len(self._labels))
        self._task = runs[0].config.kind
        self._now: tuple[str, str] = ("", "")  # the method that runs, and what is known of it
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def start(self, run: Run) -> None:
        self._now = (run.label, "starting")
        self._show()

    def show(self, run: Run, at: Progress) -> None:
        self._now = (run.label, f"{at.step}/{at.steps} · {figures(at, self._task)}")
        self._show()

    def done(self, run: Run, result: Result, known: bool = False) -> None:
        self.results.append(result)
        self._say(
            f"{run.name}: {metric(result.metric, None, self._task)}, "
            f"{result.cost.ratio:.2f}×, {result.step_seconds * 1e3:.0f} ms a step, "
            + ("was there already" if known else f"{result.seconds:.0f} s")
        )

    def fail(self, run: Run, error: str) -> None:
        self.failed[run.name] = error
        self._say(f"{run.name} failed: {short(error)}")

    def skip(self, run: Run, why: str) -> None:
        self.skipped[run.name] = why
        self._say(f"{run.name} skipped: {why}")

    def rows(self) -> list[Row]:
        """The results so far, in the order in which the methods were named."""
        found = {name: f"skipped: {why}" for name, why in self.skipped.items()}
        found |= {name: f"failed: {short(text)}" for name, text in self.failed.items()}
        errors = {name.rpartition(", seed ")[0]: text for name, text in found.items()}
        made = {row.label: row for row in rows(self.results, errors)}
        return [made[label] for label in self._labels if label in made]

    def _say(self, line: str) -> None:
        self._now = ("", "")
        if self._console.is_terminal:
            self._show()
        else:
            self._console.print(line, markup=False, soft_wrap=True)

    def _show(self) -> None:
        if self._live.is_started:
            self._live.update(self._table())

    def _table(self) -> Table:
        """What is known so far, and where the present run is."""
        known = {row.label: row for row in self.rows()}
        shown = [known.get(label, Row(label, [])) for label in self._labels]
        states = {row.label: f"{len(row.seeds)}/{self._seeds}" for row in shown}
        states[self._now[0]] = self._now[1]
        return table(shown, self._task, states)


def table(shown: Sequence[Row], task: Task, states: dict[str, str] | None = None) -> Table:
    """Rows as people read them; with `states` a last column that says how far each method is."""
    made = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    made.add_column("method", min_width=10, overflow="fold")
    for name in (task.metric, "saved", "ratio", "live\npeak", "resident\npeak", "step", "× plain"):
        made.add_column(name, justify="right", no_wrap=True)
    if states is not None:
        made.add_column("state")
    for row in shown:
        last = [] if states is None else [states.get(row.label, "")]
        made.add_row(*cells(row, task), *last)
    if states is None:  # a column would have what is left of 80: a letter a line
        errors = [f"{row.label} {row.error}" for row in shown if row.error]
        made.caption, made.caption_justify = "\n".join(errors) or None, "left"
    return made


def cells(row: Row, task: Task) -> list[str]:
    """The figures of a row as text; what is not known is a dash."""
    numbers = (
        None if row.metric is None else metric(row.metric, row.spread, task),
        None if row.stored_bytes is None else size(row.stored_bytes),
        None if row.ratio is None else f"{row.ratio:.2f}×",
        None if row.live_peak is None else size(row.live_peak),
        None if row.resident_peak is None else size(row.resident_peak),
        None if row.step_seconds is None else f"{row.step_seconds * 1e3:.0f} ms",
        None if row.slower is None else f"{row.slower:.2f}×",
    )
    return [row.label, *(text or "–" for text in numbers)]


def metric(value: float, spread: float | None, task: Task) -> str:
    """The main metric, in per cent where more is better and 1 is the most."""
    if task.better == "lower":
        return f"{value:.3f}" if spread is None else f"{value:.3f} ± {spread:.3f}"
    return f"{value:.2%}" if spread is None else f"{100 * value:.2f} ± {100 * spread:.2f} %"


def short(error: str) -> str:
    """The last line of a traceback."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
