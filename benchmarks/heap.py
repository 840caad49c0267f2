"""What malloc's two thresholds do to a step's time and to resident memory.

    python benchmarks/heap.py       # ResNet-50 in channels_last, batch 16: four minutes

Below the first, freed memory stays in the heap; above the second, the heap's free end goes back to
the system. What went back costs page faults when it is asked for again, what stayed is resident. By
itself malloc moves both with what a program frees. Each setting runs in a fresh process; writes
results/heap.json.
"""

from __future__ import annotations

import torch
from rich.console import Console

from actzip.memory.measure import size
from parts.results import FOLDER, write
from step import Job, call_with

#: thresholds in MiB; None: as it is
SETTINGS = (None, (8, 64), (16, 64), (32, 64), (64, 64), (64, 128))


def environment(thresholds: tuple[int, int] | None) -> dict[str, str]:
    if thresholds is None:
        return {}
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    return {name: str(each << 20) for name, each in zip(names, thresholds, strict=True)}


def main() -> None:
    results = []
    cases = [("plain", None), *(("actnn", each) for each in SETTINGS)]
    for variant, thresholds in cases:
        job = Job("resnet50", variant, 16, 6, 6, torch.get_num_threads())
        got = call_with(environment(thresholds), job)
        result = {
            "variant": variant,
            "thresholds_mib": thresholds,
            "seconds": min(got.seconds),
            "resident_growth": got.resident_growth,
        }
        results.append(result)
        where = "as it is" if thresholds is None else "{} and {} MiB".format(*thresholds)
        took = f"{result['seconds']:.3f} s, {size(result['resident_growth'])}"
        Console().print(f"{variant}, malloc {where}: {took}")
    write(FOLDER / "heap.json", {"batch": job.batch, "results": results})


if __name__ == "__main__":
    main()
