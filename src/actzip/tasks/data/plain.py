"""A user's text for lm: one plain file in UTF-8, read by characters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from actzip.tasks.data import characters
from actzip.tasks.data.contract import Data, DataError, Request


def read(request: Request) -> Data:
    """The whole file; its last tenth is tested with."""
    path = Path(request.name)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise DataError(f"{path} {what}; data for lm are one plain text file in UTF-8")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}") from error
    made = characters.data(request, *characters.tokens(text))
    return replace(made, layout="one plain text, its last tenth to test with")
