"""The command line; each command is a file in ``commands``, imported when it runs."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import actzip

#: The commands by their functions in `actzip.commands`, with the first line of their docstrings.
COMMANDS = {
    "train": "Train a model; with several methods, once per method, and compare the costs.",
    "compare": "Train with several methods and seeds, one run at a time, and compare them.",
    "profile": "Show where activation bytes are, per module and per op, before and after methods.",
    "plan": "Predict what a training step takes, and the largest batch, without training or "
    "allocating.",
    "max_batch": "Find the largest batch of each method by real steps in fresh processes.",
    "doctor": "Examine this machine: device, kernels, versions; promises, bytes; times of codecs "
    "and steps.",
    "data": "Show what would be read: layout, counts, classes, and every example that is left out.",
}


class Later(TyperCommand):
    """A command of which only the name and one line are known until it is used.

    Its options name tasks and methods, which takes the import of PyTorch; help need not wait.
    """

    def make_context(self, *args: Any, **more: Any) -> Any:
        return self.real().make_context(*args, **more)

    def real(self) -> Any:
        """The command itself."""
        name = (self.name or "").replace("-", "_")
        alone = typer.Typer(add_completion=False)
        alone.command()(getattr(importlib.import_module(f"actzip.commands.{name}"), name))
        return typer.main.get_command(alone)


class Commands(TyperGroup):
    """All commands, none of them imported."""

    def __init__(self, **settings: Any) -> None:
        names = {name.replace("_", "-"): line for name, line in COMMANDS.items()}
        settings["commands"] = {name: Later(name, help=line) for name, line in names.items()}
        super().__init__(**settings)


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
