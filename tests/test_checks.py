"""Options that are wrong are refused with what was asked and what came."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from actzip import checks


@dataclass
class Box:
    value: Any


def _said(check: Any, value: object, *args: Any, **options: Any) -> str:
    with pytest.raises(ValueError, match="got") as found:
        check(Box(value), "value", *args, **options)
    return str(found.value)


@pytest.mark.parametrize("wrong", [0, 9, 2.0, True, None, "2", (2,), math.nan])
def test_a_whole_number_in_a_range(wrong: object) -> None:
    said = _said(checks.whole, wrong, least=1, most=8)
    assert said == f"Box(value=…) is a whole number of 1 to 8, got {wrong!r}"
    for good in (1, 8):
        checks.whole(Box(good), "value", least=1, most=8)


def test_several_whole_numbers() -> None:
    for wrong in ((), (1, 9), (True,), 9):
        said = _said(checks.whole, wrong, least=1, most=8, several=True)
        assert "1 to 8, or a tuple of these" in said
    checks.whole(Box((1, 8)), "value", least=1, most=8, several=True)


@pytest.mark.parametrize("wrong", [0, -1.0, 10**400, math.inf, math.nan, True, None, "1", (1.0,)])
def test_a_number_above_zero(wrong: object) -> None:
    said = _said(checks.positive, wrong, advice="take Keep()")
    assert said == f"Box(value=…) is a finite number above 0, got {wrong!r}; take Keep()"
    for good in (1, 1e-300):
        checks.positive(Box(good), "value")
    checks.positive(Box((1, 0.5)), "value", several=True)


def test_one_of_some_values() -> None:
    assert _said(checks.one_of, "c", ("a", None)) == "Box(value=…) is 'a' or None, got 'c'"
    assert "is one of a, b, d, got 'c'" in _said(checks.one_of, "c", ("a", "b", "d"))
    assert "got True" in _said(checks.one_of, True, (1, -1))
    assert "got 1.0" in _said(checks.one_of, 1.0, (1, -1))
    checks.one_of(Box(None), "value", ("a", None))


def test_true_or_false_and_no_number() -> None:
    assert _said(checks.flag, 1) == "Box(value=…) is True or False, got 1"
    checks.flag(Box(False), "value")
