"""Methods and options as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from actzip.tasks.method_spec import label, pairs, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", ("plain", {})),
        ("actnn:bits=2", ("actnn", {"bits": 2})),
        ("actnn:bits=1.5,rounding=dither", ("actnn", {"bits": 1.5, "rounding": "dither"})),
        ("acgc:skip_zeros=False,codec=None", ("acgc", {"skip_zeros": False, "codec": None})),
    ],
)
def test_a_method_is_read_with_its_options_and_written_back(
    text: str, expected: tuple[str, dict[str, Any]]
) -> None:
    assert parse(text) == expected
    assert label(*expected) == text


@pytest.mark.parametrize("text", ["bits", "=2", ""])
def test_an_option_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"written name=value, got '{text}'"):
        pairs([text])
