"""Runs a function in a child process, so that a crash of it is a result like any other."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any

_LONG = 300  #: seconds after which it hangs


class Crash(Exception):
    """The child process ended by a signal, or took too long."""


def in_child(function: Callable[[], Any]) -> Any:
    """The function's result. The caller has to be a process that never ran a backward pass:
    autograd's own threads do not survive the fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.alarm(_LONG)
        code = 1
        try:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(function(), pipe)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Crash(signal.Signals(os.WTERMSIG(status)).name)
    if status:
        raise Crash("the fuzzer itself failed; its error is printed above")
    return pickle.loads(data)
