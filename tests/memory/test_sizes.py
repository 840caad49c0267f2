"""Amounts of memory mean the same wherever they are written."""

from __future__ import annotations

import pytest

from actzip import growth
from actzip.commands import max_batch
from actzip.memory.sizes import read_bytes


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("4GiB", 4 << 30),
        ("4G", 4 << 30),
        ("4GB", 4_000_000_000),
        ("900MB", 900_000_000),
        ("512 mb", 512_000_000),
        ("1.5K", 1536),
        ("1.5kib", 1536),
        ("1000000", 1_000_000),
        ("7 B", 7),
        (77, 77),
    ],
)
def test_sizes_are_read_as_people_write_them(given: int | str, found: int) -> None:
    assert read_bytes(given) == found


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "4 iB", "1e9", "4GiB/s", True, 1.5])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a text like '4GiB'"):
        read_bytes(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [0, "0", "0.4", "0GiB"])
def test_nothing_is_no_limit(given: int | str) -> None:
    with pytest.raises(ValueError, match="at least a byte"):
        read_bytes(given)


def test_library_and_command_line_read_with_the_same_function() -> None:
    assert max_batch.read_bytes is growth.read_bytes is read_bytes
