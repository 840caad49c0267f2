"""The report of one or several runs, next to what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from actzip.report import html
from actzip.tasks.result import Result
from actzip.tasks.run_folder import replace_text
from actzip.tasks.summary import Row

REPORT = "report.html"


def write_report(folder: Path, results: Sequence[Result], rows: Sequence[Row]) -> Path:
    """Write report.html into `folder`; its path."""
    first = results[0].config
    seeds = sorted({result.config.seed for result in results})
    about = {
        "task": first.task,
        "model": first.model,
        "data": first.data,
        "batch": first.batch,
        "epochs": first.epochs,
        "optimizer": first.optimizer,
        "seeds": seeds,
        "threads": first.threads or torch.get_num_threads(),
        "torch": torch.__version__,
        "metric": first.kind.metric,
        "better": first.kind.better,
    }
    runs = [{**result.plain(), "label": result.label} for result in results]
    path = folder / REPORT
    replace_text(path, html.page(about, runs, [row.plain() for row in rows]))
    return path
