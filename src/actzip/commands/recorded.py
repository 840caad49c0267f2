"""The options of every command, recorded in a file: to show them, PyTorch need not be imported.

What they say is made from the names of tasks, models and methods. `python tools/record_options.py`
writes the file; a test compares it with the commands.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import typer

FILE = Path(__file__).with_name("options.json")
_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "Path": Path,
    "list": list[str],
}


def described(function: Callable[..., Any]) -> dict[str, Any]:
    """A command as JSON-ready values: what it says of itself and of each option."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    shown = [_option(each) for each in parameters if each.annotation is not typer.Context]
    return {"help": inspect.getdoc(function), "options": shown}


def _option(parameter: inspect.Parameter) -> dict[str, Any]:
    kind, info = get_args(parameter.annotation)
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    names = [name for name, each in _TYPES.items() if each == kind]
    found: dict[str, Any] = {"name": parameter.name, "type": names[0], "help": info.help}
    if isinstance(info, typer.models.ArgumentInfo):
        found["argument"] = True
    if parameter.default is inspect.Parameter.empty:
        found["required"] = True
    elif parameter.default is not None:
        path = isinstance(parameter.default, Path)
        found["default"] = str(parameter.default) if path else parameter.default
    first = [info.default] if isinstance(info.default, str) else []  # typer keeps it there
    more = {"flags": [*first, *(info.param_decls or ())], "min": info.min, "max": info.max}
    return {**found, **{key: value for key, value in more.items() if value not in (None, [])}}


def stand_in(recorded: dict[str, Any]) -> Callable[..., None]:
    """A function with these options, that does nothing."""

    def command(**given: Any) -> None: ...

    parameters = [_parameter(each) for each in recorded["options"]]
    command.__doc__ = recorded["help"]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameter(recorded: dict[str, Any]) -> inspect.Parameter:
    make = typer.Argument if recorded.get("argument") else typer.Option
    info = make(
        *recorded.get("flags", ()),
        help=recorded["help"],
        min=recorded.get("min"),
        max=recorded.get("max"),
    )
    kind = _TYPES[recorded["type"]]
    default = recorded.get("default")
    if recorded.get("required"):
        default = inspect.Parameter.empty
    elif default is None:
        kind = kind | None
    annotation: Any = Annotated[kind, info]
    return inspect.Parameter(
        recorded["name"], inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def read() -> dict[str, dict[str, Any]]:
    """What is recorded, by the commands' functions."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return found
