"""Amounts of memory as people write them: one meaning in the library and on the command line."""

from __future__ import annotations

import re

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_WRITTEN = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(?:([KMGT])(iB|B)?|B)?\s*", re.IGNORECASE)


def read_bytes(given: int | str) -> int:
    """Bytes of a number or of a text: "4GiB" and "4G" are powers of 1024, "4GB" of 1000."""
    found = _WRITTEN.fullmatch(str(given))
    if isinstance(given, bool) or not isinstance(given, (int, str)) or found is None:
        raise ValueError(
            "a memory limit is a number of bytes or a text like '4GiB', '4G' (the same) or "
            f"'4GB' (powers of 1000), got {given!r}"
        )
    number, unit, kind = found.groups()
    base = 1000 if (kind or "").upper() == "B" else 1024
    result = int(float(number) * base ** _POWERS[(unit or "").upper()])
    if result < 1:
        raise ValueError(f"a memory limit is at least a byte, got {given!r}")
    return result
