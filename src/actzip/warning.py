"""Warnings that name the user's line, not ours."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

_INSIDE = tuple(f"{Path(file).parent.as_posix()}/" for file in (__file__, torch.__file__))


class ActzipWarning(UserWarning):
    """Something a user of actzip would want to know, once."""


def warn(message: str) -> None:
    """An `ActzipWarning` at the innermost line that is neither actzip's nor torch's."""
    level, frame = 1, sys._getframe()  # skip_file_prefixes would do it, from Python 3.12 on
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, ActzipWarning, stacklevel=level)


def _is_inside(file: str) -> bool:
    return file.replace("\\", "/").startswith(_INSIDE)
