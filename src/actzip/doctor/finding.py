"""What an examination finds: one result of each check, and what to do where one is bad."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

#: Where nothing else is known to help.
REPORT = "attach the file to a bug report; ACTZIP_KERNELS=reference avoids these kernels meanwhile"


@dataclass(frozen=True)
class Finding:
    """One thing that was tried."""

    what: str
    sound: bool
    detail: str = ""  #: what is wrong, with the numbers
    advice: str = ""  #: what to do about it
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def examine(what: str, advice: str, check: Callable[[], object]) -> Finding:
    """Run a check; whatever it raises is what was found, and the next check goes on."""
    began = time.perf_counter()
    try:
        check()
    except AssertionError as error:
        return Finding(what, False, str(error) or "failed", advice, time.perf_counter() - began)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/actzip/')[2]}:{last.lineno}"
        detail = f"{type(error).__name__} at {where}: {error}"
        return Finding(what, False, detail, advice, time.perf_counter() - began)
    return Finding(what, True, seconds=time.perf_counter() - began)
