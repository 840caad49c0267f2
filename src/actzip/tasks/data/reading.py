"""Pictures from files, all at one size; a broken one is left out and named."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from actzip.tasks.data.contract import DataError
from actzip.tasks.data.problems import Problems
from actzip.tasks.first_process import is_first_here

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")

ENDINGS = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
_MOST = 8 << 30  #: bytes of decoded pictures: they are all held in memory


def listed(folder: Path) -> list[Path]:
    """The pictures of a folder in the order of their names; hidden files are not looked at."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()
    )


def pictures(paths: Sequence[Path], side: int, problems: Problems) -> list[Tensor | None]:
    """Colour pictures as uint8 (3, side, side), stretched to the square; None for a broken one."""
    needed = len(paths) * 3 * side * side
    if needed > _MOST:
        raise DataError(
            f"{len(paths)} pictures of side {side} take {needed / 2**30:.0f} GiB of memory, "
            f"the most is {_MOST >> 30}; use a smaller side or a limit"
        )

    def read(image: Image) -> Tensor:
        resized = image.convert("RGB").resize((side, side), resample=2)  # 2: bilinear
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1)

    return each(read, paths, problems)


def masks(paths: Sequence[Path], side: int, problems: Problems) -> list[Tensor | None]:
    """Pictures of labels as uint8 (side, side); the nearest label, none is made up."""

    def read(image: Image) -> Tensor:
        labels = np.array(image)
        if labels.ndim == 3 and (labels[..., :3] == labels[..., :1]).all():
            labels = labels[..., 0]  # grey that was saved as colour
        if labels.ndim != 2:
            raise DataError(
                f"it is a colour picture ({image.mode}), but a mask holds one class number per "
                "pixel; save it in grey or with a palette"
            )
        if labels.max(initial=0) > 255 or labels.min(initial=0) < 0:
            raise DataError(
                f"labels from {labels.min()} to {labels.max()} are out of range; a mask holds 0 "
                "to 255"
            )
        rows = (np.arange(side) * labels.shape[0]) // side
        columns = (np.arange(side) * labels.shape[1]) // side
        return torch.from_numpy(labels[rows[:, None], columns].astype(np.uint8))

    return each(read, paths, problems)


def sizes(paths: Sequence[Path], problems: Problems) -> list[tuple[int, int] | None]:
    """Width and height of each picture, from its header; None for a broken one."""
    return each(lambda image: (image.size[0], image.size[1]), paths, problems)


def require() -> None:
    """Raise an ImportError that names the command, when pictures cannot be read."""
    if importlib.util.find_spec("PIL") is None:
        raise ImportError(
            "pictures are read with Pillow, which is not installed; "
            "pip install 'actzip[bench]' brings it"
        )


def each(read: Callable[[Image], T], paths: Sequence[Path], problems: Problems) -> list[T | None]:
    """In the order of the paths; Pillow decodes without holding Python's lock."""
    require()
    if not paths:
        return []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reading = pool.map(lambda path: _opened(path, read), paths)
        what, console = f"reading {paths[0].parent.name}", Console(stderr=True)
        quiet = not (console.is_terminal and is_first_here())
        bar = track(reading, what, len(paths), console=console, transient=True, disable=quiet)
        found = list(bar)
    for path, (_, error) in zip(paths, found, strict=True):
        if error:
            problems.note(f"{path}: {error}")
    return [value for value, _ in found]


def _opened(path: Path, use: Callable[[Image], T]) -> tuple[T | None, str]:
    """What `use` makes of the picture, or what is wrong with it."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return use(image), ""
    except DataError as error:
        return None, str(error)
    # what Pillow raises for damaged files: besides OSError, whatever a decoder stumbles upon
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        return None, f"the picture is broken: {error}"
