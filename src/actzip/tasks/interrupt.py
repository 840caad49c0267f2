"""Ctrl-C waits for the step to end, so that the saved state is of a whole step."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """While active, the first Ctrl-C only sets `asked`; the second one acts at once.

    In threads other than the main one, which gets no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was asked for."""
        if self.asked:
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
