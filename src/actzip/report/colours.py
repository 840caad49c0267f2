"""One accent for each method, the same in every chart; safe for colour-blind eyes.

Hues are near Paul Tol's bright and vibrant schemes, lightened for dark pages. What trains without
a code of ours, plain PyTorch and its own ways to save memory, is drawn dashed as well.
"""

from __future__ import annotations

from collections.abc import Iterable

#: (on light, on dark)
_OWN = {
    "plain": ("#6b7280", "#9aa3b2"),
    "checkpoint": ("#a8901c", "#d8c14f"),
    "bf16": ("#2a9fc4", "#66ccee"),
    "lossless": ("#228833", "#56b96a"),
    "actnn": ("#3b6fae", "#78a9e6"),
    "division": ("#8a2f8f", "#c98be0"),
    "comet": ("#d6324a", "#ff7d86"),
    "acgc": ("#d9791e", "#ffb454"),
    "fixed": ("#00877a", "#35b8aa"),
}
#: for variants of a method whose accent is taken
_SPARE = (
    ("#5b4fb0", "#9d93ea"),
    ("#7a5c2e", "#c0a06a"),
    ("#1f6f5c", "#5fbfa6"),
    ("#8c3b2a", "#d98a78"),
    ("#4d5c1f", "#a9bd5f"),
)
DASHED = ("plain", "checkpoint", "bf16")


def accents(labels: Iterable[str]) -> list[dict[str, object]]:
    """For each label, such as actnn:bits=3: {"label", "colour", "dashed"}."""
    found: list[dict[str, object]] = []
    taken: set[tuple[str, str]] = set()
    for label in dict.fromkeys(labels):
        name = label.partition(":")[0]
        spare = [pair for pair in _SPARE if pair not in taken]
        own = _OWN.get(name)
        pair = own if own is not None and own not in taken else (spare or _SPARE)[0]
        taken.add(pair)
        colour = f"light-dark({pair[0]}, {pair[1]})"
        found.append({"label": label, "colour": colour, "dashed": name in DASHED})
    return found
