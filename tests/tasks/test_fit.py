"""The largest batch is one that was tried, and the limit is kept by real processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actzip.tasks import fit
from actzip.tasks.config import make
from actzip.tasks.fit import Largest, Try, attempt, read_size, search


@given(st.integers(0, 5000), st.integers(1, 6000), st.integers(1, 4096))
def test_the_search_ends_at_the_largest_that_fits(largest: int, start: int, most: int) -> None:
    tried: list[int] = []

    def fits(batch: int) -> bool:
        tried.append(batch)
        return batch <= largest

    found = search(fits, start, most, within=0.0)
    assert found == min(largest, most)
    assert found == 0 or found in tried
    assert len(tried) == len(set(tried)) <= 28
    assert max(tried, default=0) <= most


@given(st.integers(100, 5000), st.integers(1, 200))
def test_a_coarser_search_is_off_by_no_more_than_asked(largest: int, start: int) -> None:
    found = search(lambda batch: batch <= largest, start, 65536, within=0.1)
    assert largest / 1.1 - 1 <= found <= largest


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4GiB", 4 << 30),
        ("512 MB", 512_000_000),
        ("1.5kib", 1536),
        ("1000000", 1_000_000),
        ("7 B", 7),
        ("2g", 2_000_000_000),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, nbytes: int) -> None:
    assert read_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "4 iB", "1e9", "4GiB/s"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="written like 4GiB"):
        read_size(text)


def test_real_steps_fit_under_a_wide_limit_and_not_under_a_narrow_one() -> None:
    config = make(
        model="resnet8", batch=100, side=8, threads=1, sizes={"width": 8}, method="lossless"
    )
    found = attempt(config, 4 << 30)
    assert found.fits, found
    assert found.resident_peak is not None
    assert 50 << 20 < found.resident_peak < 4 << 30
    assert found.seconds is not None
    assert found.seconds > 0
    assert attempt(config, 20 << 20) == Try(100, False, why="above the limit")


def test_a_step_that_raises_does_not_fit_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("steps failed, exit code 1: Traceback\n  x\nMemoryError: no room\n")

    monkeypatch.setattr(fit, "call_fresh", broken)
    assert attempt(make(batch=3), 1 << 30) == Try(3, False, why="MemoryError: no room")


def test_a_process_that_ended_above_the_limit_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "call_fresh", lambda *args: (101, 0.5))
    assert attempt(make(batch=3), 100) == Try(3, False, 101, 0.5, "above the limit")
    assert attempt(make(batch=3), 101) == Try(3, True, 101, 0.5)


def test_the_reason_is_that_of_the_smallest_batch_that_failed() -> None:
    tries = [Try(8, False, why="b"), Try(4, False, why="a"), Try(2, True, 10, 0.5)]
    found = Largest("plain", 2, tries)
    assert found.best == tries[2]
    assert found.why == "a"
    assert Largest("plain", 0, tries[:2]).best is None
