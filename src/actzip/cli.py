"""The command line; each command is a file in ``commands``, imported when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import actzip
from actzip.commands.recorded import read, stand_in

#: The commands by the names of their functions in `actzip.commands`, in the order of their listing.
COMMANDS = ("train", "compare", "profile", "plan", "max_batch", "doctor", "data")


class Later(TyperCommand):
    """A command of which only what it says of itself is known until it is used.

    Its options name tasks and methods, which takes the import of PyTorch; help need not wait.
    """

    recorded: dict[str, Any]

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        made = self.shown() if "--help" in args else self.real()
        return made.make_context(info_name, args, *more, **extra)

    def shown(self) -> Any:
        """What has the same help."""
        return _command(stand_in(self.recorded))

    def real(self) -> Any:
        """The command itself."""
        name = (self.name or "").replace("-", "_")
        return _command(getattr(importlib.import_module(f"actzip.commands.{name}"), name))


def _command(function: Callable[..., Any]) -> Any:
    alone = typer.Typer(add_completion=False)
    alone.command()(function)
    return typer.main.get_command(alone)


class Commands(TyperGroup):
    """All commands, none of them imported."""

    def __init__(self, **settings: Any) -> None:
        commands: dict[str, Any] = {}
        for function, recorded in read().items():
            name = function.replace("_", "-")
            commands[name] = Later(name, help=" ".join(recorded["help"].split("\n\n")[0].split()))
            commands[name].recorded = recorded
        super().__init__(**{**settings, "commands": commands})


app = typer.Typer(
    cls=Commands,
    help="Train PyTorch models with the tensors that autograd saves held in compressed form.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def main() -> None:
    """The entry point of the ``actzip`` command."""
    app()


def _print_version(asked: bool) -> None:
    if not asked:
        return
    typer.echo(f"actzip {actzip.__version__}")
    raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Options that come before a command."""
