"""Choosing a backend, and what happens when the library is not there or is another."""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from actzip import kernels
from actzip.codecs import Group
from actzip.kernels.errors import DamagedError
from actzip.kernels.native import library

#: The functions of each form, which every backend has.
FORMS = {
    "bounded": {"decode", "encode"},
    "bounded_entropy": {"decode", "encode"},
    "dithered": {"decode", "encode"},
    "dual": {"decode", "encode", "nonzero", "store_raw"},
    "entropy": {"count", "decode", "encode"},
    "fixedpoint": {"decode", "encode", "largest"},
    "group": {"decode", "encode", "nonzero", "store_raw"},
    "index": {"decode", "encode", "extremes"},
    "mask": {"decode", "encode"},
    "planes": {"pack", "unpack"},
    "window": {"decode", "encode"},
}


@pytest.fixture
def _forget_library() -> Iterator[None]:
    library._load.cache_clear()
    yield
    library._load.cache_clear()


def functions(backend: str, form: str) -> dict[str, inspect.Signature]:
    module = importlib.import_module(f"actzip.kernels.{backend}.{form}")
    return {
        name: inspect.signature(found)
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__ and name[0] != "_"
    }


def test_every_form_of_the_library_is_compared() -> None:
    found = {path.stem for path in Path(library.__file__).parent.glob("[!_]*.py")}
    assert found - {"library"} == FORMS.keys()


@pytest.mark.parametrize("form", FORMS)
def test_backends_have_the_same_functions(form: str) -> None:
    ours, theirs = functions("native", form), functions("reference", form)
    assert ours.keys() & theirs.keys() == FORMS[form]
    for name in FORMS[form]:
        assert ours[name] == theirs[name], name


def test_the_twin_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(1)
    assert kernels.of(x, "group").__name__.endswith("native.group")
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    assert kernels.backend_name() == "reference"
    assert kernels.of(x, "group").__name__.endswith("reference.group")


@pytest.mark.parametrize("name", ["native", "reference"])
def test_the_environment_chooses_the_backend(name: str) -> None:
    ask = "from actzip import kernels; print(kernels.backend_name())"
    said = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "ACTZIP_KERNELS": name},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == name


def test_other_devices_get_the_twin() -> None:
    x = torch.zeros(1, device="meta")
    assert kernels.of(x, "group").__name__.endswith("reference.group")


@pytest.mark.usefixtures("_forget_library")
def test_a_missing_library_warns_once_with_the_way_to_build_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "_find", lambda: None)
    with pytest.warns(RuntimeWarning, match="make setup"):
        assert kernels.backend_name() == "reference"
    assert kernels.backend_name() == "reference"  # a second warning would be an error here
    codec, x = Group(bits=8), torch.randn(100)
    assert float((codec.decode(codec.encode(x)) - x).abs().max()) < 0.02


@pytest.mark.usefixtures("_forget_library")
def test_a_file_that_is_no_library_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "libactzip.so"
    path.write_text("no library")
    monkeypatch.setattr(library, "_find", lambda: path)
    with pytest.warns(RuntimeWarning, match=r"libactzip\.so does not load"):
        assert not library.available()


@pytest.mark.usefixtures("_forget_library")
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "INTERFACE", -1)
    with pytest.warns(RuntimeWarning, match="built from other sources"):
        assert not library.available()


def test_a_status_becomes_an_error() -> None:
    data, out = torch.zeros(1, dtype=torch.uint8), torch.zeros(100)
    with pytest.raises(DamagedError, match="damaged"):
        library.call("mask_decode", data, out, 0, 100, 0, 1)
    with pytest.raises(ValueError, match="bad arguments"):
        library.call("mask_encode", out, 99, 100, 1, 0, data, 1)


def _encode_in_child(queue: multiprocessing.queues.Queue[int]) -> None:
    torch.set_num_threads(1)
    queue.put(Group().encode(torch.randn(100_000)).nbytes)


def test_a_forked_worker_does_not_hang() -> None:
    Group().encode(torch.randn(100_000))  # the parent's pool of threads is running
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_encode_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=20) > 25_000
    child.join(timeout=20)
    assert child.exitcode == 0
