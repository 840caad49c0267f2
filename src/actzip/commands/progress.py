"""The progress bar of a run: loss, metric, step time, saved bytes, resident memory."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from actzip.memory.measure import size
from actzip.tasks.result import Progress as At
from actzip.tasks.result import Result
from actzip.tasks.task import Task


class Bar:
    """One line that follows a run; a context manager."""

    def __init__(self, console: Console, label: str, task: Task) -> None:
        columns = (
            TextColumn("{task.description:9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console)
        self._line = self._progress.add_task(label, total=None, figures="starting")
        self._task = task

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._progress.stop()

    def show(self, at: At) -> None:
        self._progress.update(
            self._line, completed=at.step, total=at.steps, figures=figures(at, self._task)
        )

    def done(self, result: Result) -> None:
        metric = shown(self._task, result.metrics)
        self._progress.update(
            self._line, figures=f"{metric} · {result.step_seconds * 1e3:.0f} ms a step"
        )


def figures(at: At, task: Task) -> str:
    """What is known at a step, the unknown left out."""
    parts = [f"loss {at.loss:.3f}"]
    if at.metrics:
        parts.append(shown(task, at.metrics))
    parts.append(f"{at.step_seconds * 1e3:.0f} ms")
    if at.stored_bytes is not None:
        parts.append(f"saved {size(at.stored_bytes)}")
    if at.resident is not None:
        parts.append(f"resident {size(at.resident)}")
    return " · ".join(parts)


def shown(task: Task, metrics: dict[str, float]) -> str:
    """The main metric, in per cent where more is better and 1 is the most."""
    value = metrics[task.metric]
    return f"{task.metric} {value:.2f}" if task.better == "lower" else f"{task.metric} {value:.1%}"
