"""Calls a function in a new Python process, whose memory is its own."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import pickle
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_GLANCE = 0.1  #: seconds between two looks at whether a child is to end


def call_fresh(
    function: str | Callable[..., Any],
    *args: Any,
    listen: Callable[[Any], None] | None = None,
    until: threading.Event | None = None,
) -> Any:
    """Call ``function(*args)`` in a new Python process and return what it returns.

    With `listen`, the function also gets a keyword ``notify``: what the child gives to
    ``notify`` arrives at `listen` while the child still runs. When `until` is set the child is
    ended, whatever it is doing.
    """
    name = getattr(function, "__qualname__", repr(function))
    try:
        pickle.dumps((function, args))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise TypeError(
            f"a fresh process can only be given what pickles, {name} does not ({error}); "
            'use a function at the top of a module, or name it "module:function"'
        ) from error
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, function, args, listen is not None))
    child.start()
    theirs.close()
    try:
        while (message := _heard(ours, until))[0] == "event":
            if listen is not None:
                listen(message[1])
    except EOFError:
        message = ("error", "it ended before it could answer (out of memory?)")
    finally:
        ours.close()
        child.join(timeout=0 if until is not None and until.is_set() else 5)
        child.terminate()  # only matters when an exception here left the child working
        child.join(timeout=5)
        child.kill()  # one that does not listen
        child.join()
    if message[0] == "interrupted":
        raise KeyboardInterrupt
    if message[0] == "error":
        code = child.exitcode
        raise RuntimeError(f"{name} failed in its fresh process, exit code {code}: {message[1]}")
    return message[1]


def _heard(connection: Connection, until: threading.Event | None) -> Any:
    """The next message; EOFError when the child has ended, or is to end."""
    while until is not None and not connection.poll(_GLANCE):
        if until.is_set():
            raise EOFError
    return connection.recv()


def _serve(
    connection: Connection, function: str | Callable[..., Any], args: tuple[Any, ...], talks: bool
) -> None:
    """What the fresh process does."""
    try:
        called = resolve(function)
        talk = {"notify": lambda value: connection.send(("event", value))} if talks else {}
        connection.send(("result", called(*args, **talk)))
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # Ctrl-C reaches both; the parent may be gone by now
            connection.send(("interrupted", None))
    except Exception:
        connection.send(("error", traceback.format_exc()))


def resolve(function: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or the one that a text names: ``"module:function"``."""
    if not isinstance(function, str):
        return function
    module, colon, name = function.partition(":")
    if not (module and colon and name):
        raise ValueError(f'a function is named "module:function", got {function!r}')
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
