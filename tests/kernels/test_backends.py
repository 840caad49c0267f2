"""Choosing a backend, and what happens when the library is not there or is another."""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from actzip import kernels
from actzip.codecs import Group
from actzip.kernels import forms
from actzip.kernels.errors import DamagedError
from actzip.kernels.native import library
from actzip.kernels.native.prototypes import PROTOTYPES


@pytest.fixture
def _forget_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernels, "_MODULES", {})
    library._load.cache_clear()
    yield
    library._load.cache_clear()


@pytest.mark.parametrize("form", kernels.FORMS)
@pytest.mark.parametrize("backend", ["native", "reference", "triton"])
def test_a_backend_has_the_functions_of_its_forms(backend: str, form: str) -> None:
    """Types are mypy's business (kernels/contract.py); this is for a machine without it."""
    if backend != "reference" and form not in importlib.import_module(_module(backend)).FORMS:
        return
    if backend == "triton":
        pytest.importorskip("triton")
    module = importlib.import_module(f"{_module(backend)}.{form}")
    contract = next(c for n, c in vars(forms).items() if n.lower() == _protocol(form))
    wanted = {n: f for n, f in vars(contract).items() if inspect.isfunction(f) and n[0] != "_"}
    assert wanted
    for name, function in wanted.items():
        _, *parameters = inspect.signature(function).parameters
        assert list(inspect.signature(getattr(module, name)).parameters) == parameters, name


def test_every_contract_is_a_form() -> None:
    contracts = {name.lower() for name in vars(forms) if name.endswith("Form")}
    assert {_protocol(form) for form in kernels.FORMS} == contracts


def _module(backend: str) -> str:
    return f"actzip.kernels.{backend}"


def _protocol(form: str) -> str:
    return form.replace("_", "") + "form"


def test_a_form_that_a_backend_lacks_comes_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MODULES", {})
    x = torch.zeros(1)
    assert kernels.of(x, "cast").__name__.endswith("reference.cast")  # the C++ library has none
    monkeypatch.setattr(kernels, "BACKENDS", {"meta": ("native", "reference")})
    assert kernels.backend_name("meta") == "native"
    assert kernels.of(x.to("meta"), "group").__name__.endswith("native.group")
    assert kernels.of(x, "group").__name__.endswith("reference.group")


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


@pytest.mark.usefixtures("_forget_library")
@pytest.mark.parametrize(
    ("name", "letters", "said"),
    [
        ("mask_encode", "riiiwi", "its mask_encode takes riiiuwi and not riiiwi"),
        ("no", "", "no no"),
    ],
)
def test_a_library_with_other_parameters_is_not_used(
    monkeypatch: pytest.MonkeyPatch, name: str, letters: str, said: str
) -> None:
    monkeypatch.setitem(PROTOTYPES, name, letters)
    with pytest.warns(RuntimeWarning, match=f"built from other sources: .*{said}"):
        assert not library.available()


def test_every_entry_is_declared() -> None:
    sources = Path(library.__file__).parents[1].glob("csrc/*/*.cpp")
    entries = {n for f in sources for n in re.findall(r"ACTZIP_ENTRY\((\w+)\)", f.read_text())}
    assert entries == PROTOTYPES.keys()


def test_a_call_with_other_parameters_than_declared_is_an_error() -> None:
    data, out = torch.zeros(1, dtype=torch.uint8), torch.zeros(100)
    with pytest.raises(TypeError, match=r"mask_decode\(rwiiui\) takes a tensor where int"):
        library.call("mask_decode", data, 0, out, 100, 0, 1)
    with pytest.raises(TypeError, match="takes a number where Tensor was given"):
        library.call("mask_decode", data, out, 0, out, 0, 1)
    with pytest.raises(TypeError, match=r"mask_decode\(rwiiui\) takes 6 parameters, got 2"):
        library.call("mask_decode", data, out)


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
