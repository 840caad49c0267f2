"""Bring a package's file with the client that people use for it: apt-get, npm or pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

_COMMANDS = {
    "apt": ("apt-get", "download"),
    "npm": ("npm", "pack"),
    "pip": ("pip", "download", "--no-deps"),
}


class FetchError(RuntimeError):
    """A client that is not there, or that ended without the file; says why."""


@dataclass(frozen=True)
class Package:
    """One file of a package registry, known by its size and its hash."""

    client: str  #: apt, npm or pip
    name: str  #: as the client wants it, with the version
    file: str
    size: int
    sha256: str

    @property
    def command(self) -> str:
        """What a person types to get the file."""
        return " ".join((*_COMMANDS[self.client], self.name))


def fetch(package: Package, scratch: Path) -> Path:
    """Run the client in the empty folder `scratch`, with a progress bar; the file it brought."""
    arguments = _arguments(package, scratch)
    program = arguments[0]
    if shutil.which(program) is None:
        raise FetchError(f"there is no {program} on this machine")
    log = scratch / "log"
    # pip downloads into TMPDIR: there the bytes that have arrived can be counted
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with (
        log.open("wb") as out,
        _bar(package) as bar,
        subprocess.Popen(
            arguments,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        ) as client,
    ):
        _watch(client, scratch, package, bar)
    # by its ending: another version has another name, and the check of the hash then says so
    found = sorted(scratch.glob(f"*{Path(package.file).suffix}"))
    if client.returncode or not found:
        raise FetchError(_reason(log) or f"{program} ended with {client.returncode}")
    return found[0]


def _arguments(package: Package, scratch: Path) -> list[str]:
    if package.client == "npm":
        # a cache of its own: the bytes can be counted, and are not kept twice
        return [*_COMMANDS["npm"], package.name, "--cache=npm", "--fetch-retries=1"]
    if package.client == "pip":
        # pip runs a source package's own code to learn its name: not before the hash is right
        request = scratch / "request"
        request.write_text(f"{package.name} --hash=sha256:{package.sha256}\n")
        patience = ("--retries=1", "--timeout=30", "--disable-pip-version-check")
        return [sys.executable, "-m", *_COMMANDS["pip"], *patience, "-r", str(request)]
    return [*_COMMANDS["apt"], package.name]


def _watch(client: subprocess.Popen[bytes], scratch: Path, package: Package, bar: Progress) -> None:
    task = bar.task_ids[0]
    try:
        while client.poll() is None:
            bar.update(task, completed=min(_arrived(scratch), package.size))
            time.sleep(0.1)
    except BaseException:
        client.kill()  # Ctrl-C: nothing goes on in the background
        client.wait()
        raise
    if client.returncode == 0:
        bar.update(task, completed=package.size)


def _bar(package: Package) -> Progress:
    columns = (TextColumn("fetching {task.description}"), BarColumn(), DownloadColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    bar.add_task(package.name, total=package.size)
    return bar


def _arrived(scratch: Path) -> int:
    total = 0
    for folder, _, files in os.walk(scratch):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # clients rename their temporary files
                continue
    return total


def _reason(log: Path) -> str:
    """The first line in which the client speaks of an error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = (line for line in lines if "error" in line.lower() or line.startswith("E:"))
    return next(errors, lines[-1] if lines else "")
