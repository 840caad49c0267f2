"""Writes the README's tables from results/*.json, so that no figure is typed by hand.

python benchmarks/tables.py            # rewrites README.md
python benchmarks/tables.py --check    # fails when README.md is not what the results say
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actzip.memory.measure import size

HERE = Path(__file__).parent
README = HERE.parent / "README.md"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def load(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text())


def train() -> str:
    """The digits job: one column per method; train.json is a compare.json, or older."""
    found = load("train")
    if "rows" in found:
        return compared(found)
    runs = found["results"]
    first = runs[0]
    config = first["config"]
    rows = [
        ["test accuracy", *(f"{r['accuracy']:.1%}" for r in runs)],
        ["saved for backward", *(size(r["cost"]["stored_bytes"]) for r in runs)],
        ["ratio", *(f"{r['cost']['ratio']:.2f}×" for r in runs)],
        ["live peak", *(size(r["cost"]["live_peak"]) for r in runs)],
        ["resident peak", *(size(r["resident_peak"]) for r in runs)],
        ["step time", *(f"{r['step_seconds'] / first['step_seconds']:.2f}×" for r in runs)],
    ]
    title = f"{config['model']}, batch {config['batch']}, {config['epochs']} epochs"
    return markdown([title, *(r["config"]["method"] for r in runs)], rows)


def compared(found: Any) -> str:
    """What `actzip compare` wrote: one line per method."""
    config = found["config"]
    percent = found["metric"] != "perplexity"
    rows = []
    for r in found["rows"]:
        if r["metric"] is None:
            rows.append([r["label"], f"failed: {r['error']}", *[""] * 5])
            continue
        spread = "" if r["spread"] is None else f" ± {r['spread'] * (100 if percent else 1):.2f}"
        rows.append(
            [
                r["label"],
                (f"{r['metric']:.2%}" if percent else f"{r['metric']:.2f}") + spread,
                size(r["stored_bytes"]),
                f"{r['ratio']:.2f}×",
                size(r["live_peak"]),
                "-" if r["resident_peak"] is None else size(r["resident_peak"]),
                "-" if r["slower"] is None else f"{r['slower']:.2f}×",
            ]
        )
    title = f"{config['model']}, batch {config['batch']}, {config['epochs']} epochs"
    columns = [found["metric"], "saved", "ratio", "live peak", "resident peak", "step time"]
    return markdown([title, *columns], rows)


def step() -> str:
    """One training step of each model: ratios to plain PyTorch."""
    runs = [r for r in load("step")["results"] if "error" not in r]
    plain = {r["model"]: r for r in runs if r["variant"] == "plain"}
    rows = []
    for r in runs:
        base = plain[r["model"]]
        stored = r["stored_bytes"]
        rows.append(
            [
                r["model"],
                r["variant"],
                f"{r['best_seconds'] / base['best_seconds']:.2f}×",
                "-" if stored is None else size(stored),
                "-" if stored is None else f"{base['raw_bytes'] / stored:.1f}×",
                f"{size(r['live_peak'])} ({base['live_peak'] / r['live_peak']:.2f}×)",
                f"{size(r['resident_peak'])} ({base['resident_peak'] / r['resident_peak']:.2f}×)",
            ]
        )
    header = ["model", "variant", "step time", "saved", "smaller", "live peak", "resident peak"]
    return markdown(header, rows)


def codecs() -> str:
    """Speed of each codec against copy_ of the same tensor."""
    rows = [
        [r["name"], f"{r['encode']:.2f}", f"{r['decode']:.2f}", f"{r['bits']:.2f}"]
        for r in load("codecs")["speed"]
        if "missing" not in r
    ]
    return markdown(["codec", "encode, × copy_", "decode, × copy_", "bits per element"], rows)


def overhead() -> str:
    found = load("overhead")
    rows = [[name, f"{us:.2f} µs"] for name, us in found["over_plain_us"].items()]
    return markdown(["200 × Linear(8, 8)", "per op over plain"], rows)


def accuracy() -> str:
    """Full trainings on real data: mean ± deviation over seeds, and the difference to plain."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in load("accuracy")["runs"]:
        options = ", ".join(f"{name}={value}" for name, value in run["options"].items())
        name = f"{run['method']}, {options}" if options else run["method"]
        groups.setdefault((run["case"], name), []).append(run)
    rows = []
    for (case, name), runs in groups.items():
        plain = {r["seed"]: r["final"] for r in groups.get((case, "plain"), [])}
        finals = [r["final"] for r in runs]
        spread = f" ± {statistics.stdev(finals):.2%}" if len(finals) > 1 else ""
        apart = [r["final"] - plain[r["seed"]] for r in runs if r["seed"] in plain]
        against = f"{100 * statistics.mean(apart):+.2f}" if apart and name != "plain" else ""
        ratio = statistics.mean(r["ratio"] for r in runs)
        mean = f"{statistics.mean(finals):.2%}{spread}"
        rows.append([case, name, str(len(runs)), mean, against, f"{ratio:.1f}×"])
    rows.sort(key=lambda row: (row[0], row[1] != "plain", row[1]))
    header = ["case", "method", "seeds", "test accuracy", "points against plain", "saved, smaller"]
    return markdown(header, rows)


def sites() -> str:
    """One kind of site in a coarse code: its noise, and the accuracy of 2 bits."""
    finals: dict[str, dict[int, float]] = {}
    for run in load("sites")["runs"]:
        finals.setdefault(run["options"]["kind"], {})[run["seed"]] = 100 * run["final"]
    kinds: dict[str, dict[int, float]] = {}
    for share in (s for s in load("sites_noise") if s["bits"] is not None):
        found = kinds.setdefault(share["kind"], {})
        found[share["bits"]] = share["variance"] + share["bias"]
    rows = []
    for kind, shares in kinds.items():
        lost = [final - finals["none"][seed] for seed, final in finals[kind].items()]
        points = f"{statistics.mean(lost):+.2f} ({min(lost):+.1f} to {max(lost):+.1f})"
        rows.append([kind, *(f"{shares[bits]:.1%}" for bits in sorted(shares)), points])
    bits = sorted(next(iter(kinds.values())))
    header = ["in the code", *(f"{b} bits add" for b in bits), "points of accuracy in 2 bits"]
    return markdown(header, rows)


def ratios() -> str:
    """Saved bytes of networks of the usual sizes, per method."""
    rows = [
        [
            r["model"],
            r["method"],
            size(r["raw_bytes"]),
            size(r["stored_bytes"]),
            f"{r['ratio']:.1f}×",
        ]
        for r in load("ratios")["runs"]
    ]
    return markdown(["model", "method", "plain keeps", "stored", "smaller"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "train": train,
    "accuracy": accuracy,
    "sites": sites,
    "ratios": ratios,
    "step": step,
    "codecs": codecs,
    "overhead": overhead,
}


def filled(text: str) -> str:
    """The text with every `<!-- table:name -->` … `<!-- end -->` filled from its results."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- table:{match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table:(\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> None:
    text = README.read_text()
    wanted = filled(text)
    if "--check" in sys.argv:
        sys.exit("README.md differs from the results" if wanted != text else 0)
    README.write_text(wanted)


if __name__ == "__main__":
    main()
