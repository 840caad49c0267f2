"""Writes the tables of the README and of docs/ from results/*.json: no figure is typed by hand.

python benchmarks/tables.py            # rewrites the pages
python benchmarks/tables.py --check    # fails when a page is not what the results say
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from actzip.memory.measure import size
from actzip.tasks.method_spec import label
from parts.results import sources

HERE = Path(__file__).parent
PAGES = [HERE.parent / "README.md", *sorted((HERE.parent / "docs").rglob("*.md"))]


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


ORIGIN = ("date", "commit", "cpu", "instructions", "torch")
LOADED: dict[str, Any] = {}  #: the results of the table that is being made


def load(name: str) -> Any:
    """The values of results/<name>.json."""
    LOADED[name] = json.loads((HERE / "results" / f"{name}.json").read_text())
    return LOADED[name]


def made(name: str) -> tuple[str, list[dict[str, Any]]]:
    """A table, and what its results say of the code and the machines they are of."""
    LOADED.clear()
    text = TABLES[name]()
    return text, [each for values in LOADED.values() for each in sources(values)]


def origin(found: list[dict[str, Any]]) -> str:
    """One line below a table: when, at which commit and where its figures were taken."""
    if not found:
        return "Measured before commits were recorded with results."
    date, commit, cpu, instructions, torch = (_joined(found, key) for key in ORIGIN)
    return f"Measured {date}, commit {commit}, {cpu}, {instructions}, torch {torch}."


def _joined(found: list[dict[str, Any]], key: str) -> str:
    """The values in order; of dates the first and the last."""
    values = list(dict.fromkeys(str(each.get(key, "unknown")) for each in found))
    if key == "date" and len(values) > 1:
        return f"{min(values)} to {max(values)}"
    return " and ".join(values)


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
            rows.append([r["label"], r["error"], *[""] * 5])
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


CASES = ("cifar10", "detection", "segmentation", "reviews", "shakespeare")


def one_task(case: str) -> str:
    return compared(load(f"compare_{case}"))


def tasks() -> str:
    """Every method on every task: the metric, how much smaller what is saved is, step time."""
    found = {case: load(f"compare_{case}") for case in CASES}
    rows = []
    for i, method in enumerate(r["label"] for r in found[CASES[0]]["rows"]):
        cells = []
        for of_case in found.values():
            r = of_case["rows"][i]
            metric = _metric(of_case["metric"], r["metric"])
            cells.append(f"{metric} · {r['ratio']:.1f}× · {r['slower']:.2f}×")
        rows.append([method, *cells])
    header = [f"{case}, {found[case]['metric']}" for case in CASES]
    return markdown(["method", *header], rows)


def _metric(name: str, value: float) -> str:
    return f"{value:.2f}" if name == "perplexity" else f"{value:.1%}"


VARIANTS = {"actnn": "actnn, 2 bits", "actnn:bits=3": "actnn, 3 bits"}
NETWORKS = {
    "resnet50": "ResNet-50",
    "vit_s16": "ViT-S/16",
    "gpt": "GPT decoder",
    "minilm_lora": "MiniLM, LoRA",
    "vgg16": "VGG-16",
    "resnet50_nchw": "ResNet-50, NCHW",
}
FACE = ("resnet50", "vit_s16", "gpt", "minilm_lora")


def _steps() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each result of the step benchmark, and plain's of the same network."""
    runs = load("step")["results"]
    plain = {r["model"]: r for r in runs if r["variant"] == "plain"}
    order = {name: at for at, name in enumerate(NETWORKS)}
    return [(r, plain[r["model"]]) for r in sorted(runs, key=lambda r: order[r["model"]])]


def _saved(r: dict[str, Any], plain: dict[str, Any]) -> str:
    stored = r["stored_bytes"]
    if stored is None:
        return "-"
    return f"{size(stored)} ({plain['raw_bytes'] / stored:.1f}×)"


def _smaller(r: dict[str, Any], plain: dict[str, Any], key: str) -> str:
    return f"{size(r[key])} ({plain[key] / r[key]:.1f}×)"


def step() -> str:
    """One training step of each network: ratios to plain PyTorch."""
    rows = []
    for r, plain in _steps():
        times = (f"{r[key] / plain[key]:.2f}×" for key in ("median_seconds", "mean_seconds"))
        rows.append(
            [
                NETWORKS[r["model"]],
                VARIANTS.get(r["variant"], r["variant"]),
                *times,
                _saved(r, plain),
                _smaller(r, plain, "live_peak"),
                _smaller(r, plain, "resident_growth"),
            ]
        )
    header = ["network", "method", "step time, median", "mean", "saved"]
    return markdown([*header, "live peak", "resident growth"], rows)


def face() -> str:
    """The README's table: four networks, and what is smaller than plain's how many times."""
    rows, lora = [], _accuracies("reviews-minilm-lora")
    for r, plain in _steps():
        variant = r["variant"]
        if r["model"] not in FACE or variant in ("plain", "lossless"):
            continue
        rows.append(
            [
                NETWORKS[r["model"]] if variant == "checkpoint" else "",
                VARIANTS.get(variant, variant),
                _saved(r, plain),
                _smaller(r, plain, "live_peak"),
                _smaller(r, plain, "resident_growth"),
                f"{r['median_seconds'] / plain['median_seconds']:.2f}×",
                lora.get(variant, "-") if r["model"] == "minilm_lora" else "-",
            ]
        )
    header = ["network", "method", "saved", "live peak", "resident growth", "step time"]
    return markdown([*header, "points of accuracy"], rows)


def _accuracies(case: str) -> dict[str, str]:
    """How far a method ends from plain, over the seeds that both have."""
    finals: dict[str, dict[int, float]] = {}
    for run in load("finetune")["runs"]:
        if run["case"] == case:
            of = finals.setdefault(label(run["method"], run["options"]), {})
            of[run["seed"]] = 100 * run["final"]
    found, plain = {}, finals["plain"]
    for name, own in finals.items():
        apart = [final - plain[seed] for seed, final in own.items() if seed in plain]
        spread = f" ± {statistics.stdev(apart):.1f}" if len(apart) > 1 else ""
        seeds = f"{len(apart)} seed{'s' * (len(apart) > 1)}"
        found[name] = f"{round(statistics.mean(apart), 1) + 0.0:+.1f}{spread} ({seeds})"
    return found


def compiled() -> str:
    """Compiled training: ways to save memory, beside compiled plain."""
    rows = []
    for name in ("resnet50", "gpt"):
        ways = load(f"compiled_{name}")["ways"]
        plain, network = ways["plain"], NETWORKS[name]
        for way, r in ways.items():
            if "failed" in r:
                rows.append([network, way, "does not run", "", "", ""])
                continue
            timed = r["seconds"] is not None and plain["seconds"] is not None
            rows.append(
                [
                    network,
                    way,
                    f"{size(r['saved_bytes'])} ({r['ratio']:.1f}×)",
                    _smaller(r, plain, "live_peak"),
                    f"{r['error']:.2g}",
                    f"{r['seconds'] / plain['seconds']:.2f}×" if timed else "-",
                ]
            )
    header = ["network", "compiled, with", "saved", "live peak", "‖Δg‖²/‖g‖²", "step time"]
    return markdown(header, rows)


def codecs() -> str:
    """Speed of each codec against copy_ of the same tensor, for each instruction set."""
    found = load("codecs")
    sets = found["instructions"]
    rows = []
    for r in found["speed"]:
        if "missing" in r:
            continue
        each = [r["sets"].get(isa) or r["sets"]["none"] for isa in sets]
        ratios = [f"{speed[way]:.2f}" for speed in each for way in ("encode", "decode")]
        rows.append([r["name"], *ratios, f"{r['bits']:.2f}"])
    ways = [f"{way}, × copy_" for way in ("encode", "decode")]
    named = ways if len(sets) == 1 else [f"{isa} {way}" for isa in sets for way in ways]
    return markdown(["codec", *named, "bits per element"], rows)


def overhead() -> str:
    """What one op more costs over plain, where every op saves a tensor."""
    rows = []
    for name, case in load("overhead")["cases"].items():
        count = case["instructions"]
        kept = "not counted" if count is None else f"{count / 1e3:.0f} k"
        rows.append([name, f"{case['us']:.1f} µs", f"{case['python_calls']:.0f}", kept])
    return markdown(["one op more", "over plain", "Python calls", "instructions"], rows)


def accuracy(name: str = "accuracy", peak: bool = False) -> str:
    """Full trainings on real data: mean ± deviation over seeds, and the difference to plain."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in load(name)["runs"]:
        options = ", ".join(f"{name}={value}" for name, value in run["options"].items())
        method = f"{run['method']}, {options}" if options else run["method"]
        groups.setdefault((run["case"], method), []).append(run)
    rows = []
    for (case, method), runs in groups.items():
        plain = {r["seed"]: r["final"] for r in groups.get((case, "plain"), [])}
        finals = [r["final"] for r in runs]
        spread = f" ± {statistics.stdev(finals):.2%}" if len(finals) > 1 else ""
        apart = [100 * (r["final"] - plain[r["seed"]]) for r in runs if r["seed"] in plain]
        against = f"{statistics.mean(apart):+.2f}" if apart and method != "plain" else ""
        if against and len(apart) > 1:
            against += f" ± {statistics.stdev(apart):.2f}"
        ratio = statistics.mean(r["ratio"] for r in runs)
        mean = f"{statistics.mean(finals):.2%}{spread}"
        rows.append([case, method, str(len(runs)), mean, against, f"{ratio:.1f}×"])
        if peak:
            rows[-1].append(size(max(r["live_peak"] for r in runs)))
    rows.sort(key=lambda row: (row[0], row[1] != "plain", row[1]))
    header = ["case", "method", "seeds", "test accuracy", "points against plain", "saved, smaller"]
    return markdown(header + ["live peak"] * peak, rows)


def finetune() -> str:
    """A pretrained encoder, fine-tuned: as `accuracy`, and the live peak of a step."""
    return accuracy("finetune", peak=True)


def sites() -> str:
    """One kind of site in a coarse code: its noise, and the accuracy of 2 bits."""
    finals: dict[str, dict[int, float]] = {}
    for run in load("sites")["runs"]:
        finals.setdefault(run["options"]["kind"], {})[run["seed"]] = 100 * run["final"]
    kinds: dict[str, dict[int, float]] = {}
    for share in (s for s in load("sites_noise")["shares"] if s["bits"] is not None):
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


def bounded(methods: tuple[str, ...] = ("comet", "acgc")) -> str:
    """COMET and AC-GC on partly trained networks: what is stored, and the error of the gradient."""
    rows = []
    for network, runs in load("bounded_training")["networks"].items():
        for name, r in runs.items():
            if methods and name not in methods:
                continue
            error, conv = r["error"], r["conv_ratio"]
            above = error.get("layers_above_e2")
            rows.append(
                [
                    network,
                    name.replace("_", " "),
                    f"{r['ratio']['mean']:.1f}×",
                    f"{conv['mean']:.1f}×" if conv else "",
                    f"{error['total_mean']:.2g}",
                    f"{error['layer_worst']:.2g}",
                    "" if above is None else f"{above} of {error['layers_checked']}",
                ]
            )
    columns = ["smaller", "inputs of convolutions", "‖Δg‖²/‖g‖²", "worst layer", "above e²"]
    return markdown(["network", "method", *columns], rows)


def search() -> str:
    """Bits by a bound and by search."""
    found = load("search")["results"]
    names = {"acgc": "AC-GC", "grid": "grid of fixed bits", "halving": "successive halving"}
    rows = [
        [
            names.get(name, name),
            str(r["trainings"]),
            f"{r['seconds'] / found['acgc']['seconds']:.1f}×",
            f"{r['bits']:.2f}",
            f"{r['accuracy']:.2%}",
        ]
        for name, r in found.items()
    ]
    return markdown(["digits, ResNet-8", "trainings", "training time", "bits", "accuracy"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "train": train,
    "tasks": tasks,
    **{f"compare_{case}": partial(one_task, case) for case in CASES},
    "accuracy": accuracy,
    "finetune": finetune,
    "sites": sites,
    "ratios": ratios,
    "bounded": bounded,
    "bounded_all": lambda: bounded(()),
    "search": search,
    "step": step,
    "compiled": compiled,
    "face": face,
    "codecs": codecs,
    "overhead": overhead,
}


def filled(text: str) -> str:
    """The text with every `<!-- table:name -->` … `<!-- end -->` filled from its results."""

    def fill(match: re.Match[str]) -> str:
        text, found = made(match[1])
        return f"<!-- table:{match[1]} -->\n{text}\n\n{origin(found)}\n<!-- end -->"

    return re.sub(r"<!-- table:(\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> None:
    for page in PAGES:
        text = page.read_text()
        wanted = filled(text)
        if wanted == text:
            continue
        if "--check" in sys.argv:
            sys.exit(f"{page.name} differs from the results")
        page.write_text(wanted)


if __name__ == "__main__":
    main()
