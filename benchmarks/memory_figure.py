"""The README's figure: live bytes over one step of ResNet-50, from results/step.json.

python benchmarks/memory_figure.py    # writes docs/pictures/memory-light.svg and -dark.svg
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

from parts.results import FOLDER

matplotlib.use("svg")

from matplotlib import pyplot as plt

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
MODEL = "resnet50"
SHOWN = {"plain": "plain PyTorch", "checkpoint": "checkpoint", "actnn": "actnn", "auto": "auto"}
#: text, and a colour for each line that is told apart on its background, also without red or green
THEMES = {
    "light": ("#24292f", ("#57606a", "#bf8700", "#0969da", "#cf222e")),
    "dark": ("#c9d1d9", ("#8b949e", "#d29922", "#58a6ff", "#ff7b72")),
}


def draw(runs: dict[str, dict[str, Any]], theme: str, path: Path) -> None:
    """One line for each method, named with its peak."""
    text, colours = THEMES[theme]
    figure, axes = plt.subplots(figsize=(7.2, 3.0))
    for (name, label), colour in zip(SHOWN.items(), colours, strict=True):
        run = runs[name]
        shares, levels = zip(*run["curve"], strict=True)
        seconds = [share * run["median_seconds"] for share in shares]
        mebibytes = [level / 2**20 for level in levels]
        peak = f"{label}: {run['live_peak'] / 2**20:,.0f} MiB"
        axes.plot(seconds, mebibytes, color=colour, linewidth=1.6, label=peak)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds into the step", color=text)
    axes.set_ylabel("live tensors, MiB", color=text)
    axes.tick_params(colors=text)
    for side, line in axes.spines.items():
        line.set_visible(side in ("left", "bottom"))
        line.set_color(text)
    axes.legend(frameon=False, labelcolor=text, loc="upper right")
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "actzip", "svg.fonttype": "none"})
    results = json.loads((FOLDER / "step.json").read_text())["results"]
    runs = {r["variant"]: r for r in results if r["model"] == MODEL}
    for theme in THEMES:
        draw(runs, theme, PICTURES / f"memory-{theme}.svg")


if __name__ == "__main__":
    main()
