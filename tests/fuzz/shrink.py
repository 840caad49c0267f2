"""Makes a failing program small: lines are left out while it fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz.program import Line, Program

_LIST = re.compile(r"(?<=total\()[^()]*(?=\))|(?<=\[)[a-z]\d+(?:, [a-z]\d+)+(?=\])")


def shrink(program: Program, fails: Callable[[Program], bool], tries: int = 2000) -> Program:
    """A program that `fails` too, and none of whose lines can be left out."""
    while True:
        for smaller in _smaller(program):
            tries -= 1
            if tries < 0:
                return program
            if fails(smaller):
                program = smaller
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    if program.steps > 1:
        yield replace(program, steps=1)
    if program.form != "around":
        yield replace(program, form="around")
    lines = program.lines
    for size in (len(lines) // 2, len(lines) // 4, 3, 2):
        if size > 1:
            for k in range(len(lines) - size, -1, -size):
                yield replace(program, lines=_whole((*lines[:k], *lines[k + size :])))
    for k in range(len(lines) - 1, -1, -1):
        yield replace(program, lines=_whole((*lines[:k], *lines[k + 1 :])))
    for k in range(len(lines) - 1, -1, -1):
        yield from (replace(program, lines=each) for each in _aliased(lines, k))
    for k in range(len(lines) - 1, -1, -1):
        for text in _shorter(lines[k].text):
            line = Line(lines[k].stage, text)
            yield replace(program, lines=_whole((*lines[:k], line, *lines[k + 1 :])))


def _whole(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Without the lines that read a name that nobody writes any more."""
    known: set[str] = set()
    kept = []
    for line in lines:
        needs = {n for n in line.reads if re.fullmatch(r"[a-z]\d+", n)}
        if needs <= known | line.writes:
            known |= line.writes
            kept.append(line)
    return tuple(kept)


def _aliased(lines: tuple[Line, ...], k: int) -> Iterator[tuple[Line, ...]]:
    """Without a line that makes one tensor: what it was made from stands in for it."""
    line = lines[k]
    if len(line.writes) != 1 or line.stage != "body":
        return
    (name,) = line.writes
    for source in sorted(n for n in line.reads if re.fullmatch(r"[vx]\d+", n)):
        rest = [
            Line(other.stage, re.sub(rf"\b{name}\b", source, other.text))
            for other in lines[k + 1 :]
        ]
        yield _whole((*lines[:k], *rest))


def _shorter(text: str) -> Iterator[str]:
    """With one name less in `total(…)` or in a list."""
    for match in _LIST.finditer(text):
        names = match.group().split(", ")
        if len(names) > 1:
            for k in range(len(names)):
                fewer = ", ".join(names[:k] + names[k + 1 :])
                yield text[: match.start()] + fewer + text[match.end() :]
