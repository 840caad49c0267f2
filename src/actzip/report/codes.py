"""What a codec is, in a few words: means instead of a number for each sample."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable

_TUPLE = re.compile(r"(\w+=)\(([-+.e\d, ]+)\)")
_VALUE = re.compile(r"(\w+=)([-+.e\d]+)(?=[,)])")


def short(codec: str) -> str:
    """A codec's repr with the mean for each tuple of numbers: Group(bits=2.1)."""
    return _TUPLE.sub(lambda found: f"{found[1]}{_mean(found[2]):.3g}", codec)


def kind(codec: str) -> str:
    """The same without its numbers, equal for codecs that differ in these alone."""
    return _VALUE.sub(r"\1…", short(codec))


def together(codecs: Iterable[str]) -> str:
    """Several of one kind as one: a number that is not the same in all is given as least-most."""
    said = [short(codec) for codec in dict.fromkeys(codecs)]
    columns = zip(*([found[2] for found in _VALUE.finditer(each)] for each in said), strict=True)
    ranges = iter([_range(column) for column in columns])
    return _VALUE.sub(lambda found: found[1] + next(ranges), said[0])


def _range(values: tuple[str, ...]) -> str:
    least, most = min(values, key=float), max(values, key=float)
    return least if least == most else f"{least}-{most}"


def _mean(numbers: str) -> float:
    return statistics.fmean(float(n) for n in numbers.split(",") if n.strip())
