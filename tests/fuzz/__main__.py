"""python -m fuzz: random programs for as long as is wanted; the first failure of each kind is
printed made small, of the others the seed.

python -m fuzz --seconds 3600           from a new first seed; ends with status 1 on a failure
python -m fuzz --first 40 --count 1     one seed again
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

os.environ.setdefault("ACTZIP_DEBUG", "1")  # an exception of ours is to be seen

import torch

from fuzz.generate import generate
from fuzz.isolate import Crash, in_child
from fuzz.judge import EXACT, LOSSY, Failure, derives, judge
from fuzz.program import Program
from fuzz.shrink import shrink

_BATCH = 25


def main() -> int:
    options = _options()
    torch.set_num_threads(1)
    begun, seed, last = time.time(), options.first, options.first + options.count
    seen: Counter[str] = Counter()
    while seed < last and time.time() - begun < options.seconds:
        seeds = range(seed, min(seed + _BATCH, last))
        for found_at, failure in _batch(seeds, options.silent):
            if not seen[failure.kind]:
                _print(found_at, options.silent, failure)
            else:
                print(f"# seed {found_at}, {failure.method}: {failure.kind}", flush=True)
            seen[failure.kind] += 1
        seed = seeds.stop
    done = seed - options.first
    print(f"{done} programs from seed {options.first} on, {sum(seen.values())} failures")
    for kind, count in seen.most_common():
        print(f"{count:6} {kind}")
    return 1 if seen else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=int(time.time()) * 1000, help="seed")
    parser.add_argument("--count", type=int, default=10**9, help="programs")
    parser.add_argument("--silent", action="store_true", help="edits through .data and numpy too")
    return parser.parse_args()


def _batch(seeds: range, silent: bool) -> list[tuple[int, Failure]]:
    """The failures of many programs, in one child; after a crash in one child each."""

    def run() -> list[tuple[int, Failure]]:
        return [(s, f) for s in seeds for f in judged(generate(s, silent=silent), s)]

    try:
        found: list[tuple[int, Failure]] = in_child(run)
        return found
    except Crash as crash:
        if len(seeds) == 1:
            return [(seeds[0], Failure("any", f"crash: {crash}", ""))]
        return [each for s in seeds for each in _batch(range(s, s + 1), silent)]


def judged(program: Program, seed: int) -> list[Failure]:
    """All exact methods and, in turn, one of the lossy ones."""
    names = list(LOSSY)
    return judge(program, (names[seed % len(names)],))


def _print(seed: int, silent: bool, failure: Failure) -> None:
    program = in_child(lambda: generate(seed, silent=silent))
    lossy = (failure.method,) if failure.method in LOSSY else ()

    def fails(smaller: Program) -> bool:
        return any(
            (f.method, f.kind) == (failure.method, failure.kind) for f in judge(smaller, lossy)
        )

    def crashes(smaller: Program) -> bool:
        try:
            in_child(lambda: judged(smaller, seed))
        except Crash:
            return True
        return False

    crash = failure.kind.startswith("crash")
    small = shrink(program, crashes) if crash else in_child(lambda: shrink(program, fails))
    method = repr(LOSSY.get(failure.method, EXACT.get(failure.method, "lossless")))
    method += ", derive=True" if derives(failure.method) else ""
    print(f"\n# seed {seed}, {failure.method}: {failure.kind}")
    print("\n".join(f"# {line}" for line in failure.detail.splitlines()[-12:]))
    print(small.source(method), flush=True)


if __name__ == "__main__":
    sys.exit(main())
