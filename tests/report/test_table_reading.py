from typing import Any

import pytest

from actzip.report.reading import reading
from actzip.tasks.summary import Row

PLAIN = Row("plain", [0], 0.9, None, 4096, 4096, 1.0, 8192, None, 0.1, 1.0)
SMALL = Row("auto", [0], 0.875, None, 4096, 128, 32.0, 2048, None, 0.15, 1.5)
LESS = Row("actnn", [0], 0.89, None, 4096, 256, 16.0, 2048, None, 0.12, 1.2)
FAILED = Row("acgc", [], error="failed: no memory")


def values(*rows: Row) -> list[dict[str, Any]]:
    return [row.plain() for row in rows]


def test_it_says_what_stores_least_and_what_that_costs() -> None:
    said = reading(values(PLAIN, LESS, SMALL, FAILED), "top1", "higher")
    assert said == (
        "auto keeps 128 B for backward where plain PyTorch keeps 4.00 KiB: 32.0 times less. The "
        "step's peak is 2.00 KiB instead of 8.00 KiB, a step takes 1.50 times as long, and top1 is "
        "87.50%, plain's 90.00%. One seed: differences of a point come from chance as well."
    )


def test_of_several_seeds_it_does_not_speak_of_one() -> None:
    rows = [{**row, "seeds": [0, 1], "spread": 0.01} for row in values(PLAIN, SMALL)]
    said = reading(rows, "perplexity", "lower")
    assert "perplexity is 0.875, plain's 0.900." in said
    assert "seed" not in said


@pytest.mark.parametrize("rows", [[PLAIN], [SMALL, LESS], [PLAIN, FAILED], []], ids=len)
def test_with_nothing_to_compare_it_says_nothing(rows: list[Row]) -> None:
    assert reading(values(*rows), "top1", "higher") == ""
