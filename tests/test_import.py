"""`import actzip` is light: what it names is imported when it is asked for."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import actzip
from actzip import cli
from actzip.commands import recorded

SOURCE = ast.parse(Path(actzip.__file__).read_text())


def modules_after(code: str) -> set[str]:
    """What a fresh process has imported after this code."""
    script = f"import sys\ntry:\n    {code}\nfinally:\n    print('\\n' + ' '.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(ran.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", ["", "train", "max-batch"])
def test_neither_the_import_nor_the_help_waits_for_torch(command: str) -> None:
    assert "torch" not in modules_after("import actzip")
    asked = f"import actzip.cli as c; sys.argv = ['actzip', *{command.split()}, '--help']; c.main()"
    found = modules_after(asked)
    assert "typer" in found
    assert not {"torch", "numpy", "actzip.api"} & found


def test_the_first_name_brings_torch() -> None:
    assert {"torch", "actzip.api"} <= modules_after("import actzip; actzip.compress")


def test_the_table_of_names_says_what_type_checkers_read() -> None:
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    read = {
        alias.asname or alias.name: (each.module, alias.name)
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    packages = {name: place for name, place in read.items() if place[0] == "actzip"}
    assert packages.keys() == {"codecs", "memory"}
    assert {name: read[name] for name in read.keys() - packages.keys()} == actzip._PLACES
    assert sorted(read) == sorted(actzip.__all__)


@pytest.mark.parametrize("name", actzip.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert name in dir(actzip)
    assert getattr(actzip, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'actzip' has no attribute 'decompress'"):
        actzip.decompress  # noqa: B018


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_recorded_help_is_that_of_the_command(name: str) -> None:
    function = getattr(importlib.import_module(f"actzip.commands.{name}"), name)
    again = "python tools/record_options.py"
    assert recorded.read()[name] == json.loads(json.dumps(recorded.described(function))), again
    said = []
    for each in (function, recorded.stand_in(recorded.read()[name])):
        alone = typer.Typer(add_completion=False)
        alone.command(name)(each)
        done = CliRunner().invoke(alone, ["--help"], env={"COLUMNS": "100"})
        assert done.exit_code == 0
        said.append(done.output)
    assert said[0] == said[1]
    assert "--json" in said[0]
