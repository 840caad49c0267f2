"""The report: one HTML file that needs no network, drawn by the few scripts beside this file."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from actzip.report import colours, series
from actzip.report.reading import reading

#: in the order in which they need each other
SCRIPTS = ("draw.js", "lines.js", "sites.js", "bars.js", "page.js")

_FOOTER = (
    "Made by actzip. Live bytes are what tensors hold, above weights and optimizer state; resident "
    "bytes are what the process takes from the machine, over the whole run. Each run had a process "
    "of its own, and no two ran at once."
)
_PROFILE = (
    "Made by actzip. Live bytes are what tensors hold, above weights and inputs, in one forward "
    "and backward pass; adaptive methods had one pass before it to learn from."
)
_TABLE = (
    "saved: kept for backward in one step. Live peak: tensors of one step. Resident peak: growth "
    "of the process. The best of each column is bold; ± is the standard deviation over seeds."
)
_MEMORY = "Bytes that tensors hold during one training step, above weights and optimizer state."
_MODULES = "Kept for backward by each module: grey by plain PyTorch, coloured with the method."
_SITES = "A row for each stored tensor, in the order of forward; stronger colour, more precise."


def page(
    about: dict[str, Any], runs: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]
) -> str:
    """The report of `runs`, each the JSON of a result with its label; `rows` is their summary.

    about  what all runs share: task, model, data, batch, epochs, optimizer, seeds, threads,
           torch, metric and better
    """
    facts = [
        about["task"],
        f"batch {about['batch']}",
        _count(about["epochs"], "epoch"),
        about["optimizer"],
        f"seed{'s' * (len(about['seeds']) > 1)} {', '.join(map(str, about['seeds']))}",
        _count(about["threads"], "thread"),
        f"torch {about['torch']}",
    ]
    head = {
        "title": f"{about['model']} on {about['data']}",
        "facts": facts,
        "lead": reading(rows, about["metric"], about["better"]),
        "metric": about["metric"],
        "better": about["better"],
        "footer": _FOOTER,
        "note_table": _TABLE,
        "note_memory": _MEMORY,
        "note_modules": _MODULES,
        "note_sites": _SITES,
    }
    return document(
        {
            "about": head,
            "rows": list(rows),
            "methods": colours.accents(row["label"] for row in rows),
            "memory": series.memory(runs),
            "phases": series.bands(runs),
            "modules": series.modules(runs),
            "ops": {},
            "loss": series.loss(runs),
            "tests": series.tests(runs, about["metric"]),
            "sites": series.sites(runs),
        }
    )


def profile(
    title: str,
    facts: list[str],
    cards: list[dict[str, Any]],
    runs: Sequence[dict[str, Any]],
    ops: Sequence[dict[str, Any]],
) -> str:
    """The page of passes without training; `ops` has shares of ops where `runs` has modules."""
    head = {
        "title": title,
        "facts": facts,
        "footer": _PROFILE,
        "note_memory": _MEMORY,
        "note_modules": _MODULES,
    }
    data = {
        "about": head,
        "rows": [],
        "cards": cards,
        "methods": colours.accents(run["label"] for run in runs),
        "memory": series.memory(runs),
        "phases": series.bands(runs),
        "modules": series.modules(runs),
        "ops": series.modules(ops),
    }
    return document({**data, "loss": [], "tests": [], "sites": {}})


def document(data: dict[str, Any]) -> str:
    """The HTML file that shows `data`."""
    folder = resources.files("actzip.report")
    style = (folder / "page.css").read_text()
    script = "\n".join((folder / name).read_text() for name in SCRIPTS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(data["about"]["title"])} · actzip</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main><noscript>This report draws its charts with JavaScript, which is off.</noscript></main>
<script id="data" type="application/json">{embedded(data)}</script>
<script>
"use strict";
{script}</script>
</body>
</html>
"""


def embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end the script block it stands in."""
    text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _finite(value: Any) -> Any:
    """The same with null for NaN and infinities, which JSON has not."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
