"""The command line; each command is a file in ``commands``."""

from __future__ import annotations

from typing import Annotated

import typer

import actzip
from actzip.commands.compare import compare
from actzip.commands.data import data
from actzip.commands.max_batch import max_batch
from actzip.commands.profile import profile
from actzip.commands.train import train

app = typer.Typer(
    help="Train PyTorch models with the tensors that autograd saves held in compressed form.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
for command in (train, compare, profile, max_batch, data):
    app.command()(command)


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
