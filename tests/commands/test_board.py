"""The table of a comparison, live and at the end."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from actzip.commands.board import Board, cells, metric, short, table
from actzip.tasks.catalogue import TASKS
from actzip.tasks.comparison import Run, plan
from actzip.tasks.config import make
from actzip.tasks.result import Progress, Result
from actzip.tasks.step_memory import Cost
from actzip.tasks.summary import Row

CLASSIFY, LM = TASKS["classify"], TASKS["lm"]


def runs(seeds: tuple[int, ...] = (0, 1)) -> list[Run]:
    return plan([make(), make(method="comet")], seeds, Path("x"))


def result(run: Run, top1: float = 0.975) -> Result:
    stored = 8 << 20 if run.config.method == "plain" else 2 << 20
    cost = Cost(8 << 20, stored, stored, 9 << 20)
    return Result(run.config, {"top1": top1}, [], [0.125], 0.1, 60.0, cost, 10 << 20)


def screen(terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=160, force_terminal=terminal, color_system=None)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_has_all_figures_and_dashes_for_unknown_ones() -> None:
    row = Row("comet", [0], 0.9, None, 8 << 20, 2 << 20, 4.0, 9 << 20, None, 0.125, 1.25)
    assert cells(row, CLASSIFY) == [
        "comet", "90.00%", "2.00 MiB", "4.00×", "9.00 MiB", "–", "125 ms", "1.25×",
    ]  # fmt: skip
    assert cells(Row("acgc", []), CLASSIFY) == ["acgc"] + ["–"] * 7


def test_metrics_have_their_spread_and_their_unit() -> None:
    assert metric(0.975, None, CLASSIFY) == "97.50%"
    assert metric(0.975, 0.0025, CLASSIFY) == "97.50 ± 0.25 %"
    assert metric(7.125, 0.5, LM) == "7.125 ± 0.500"


def test_the_table_names_what_failed() -> None:
    console = screen(False)
    console.print(table([Row("acgc", [], error="out of memory")], CLASSIFY))
    assert "out of memory" in said(console)
    console = screen(False)
    console.print(table([Row("acgc", [])], CLASSIFY))
    assert "failed" not in said(console)


def test_elsewhere_than_on_a_terminal_every_run_is_a_line() -> None:
    console, (plain, comet, *_) = screen(False), runs()
    with Board(console, runs()) as board:
        board.start(plain)
        board.show(plain, Progress(1, 9, 1, 0.5, {}, 0.25, None, None))
        board.done(plain, result(plain))
        board.done(comet, result(comet), known=True)
    assert said(console).splitlines() == [
        "plain, seed 0: 97.50%, 1.00×, 100 ms a step, 60 s",
        "comet, seed 0: 97.50%, 4.00×, 100 ms a step, was there already",
    ]


def test_on_a_terminal_one_table_changes_in_place() -> None:
    console, (plain, comet, again, _) = screen(True), runs()
    with Board(console, runs()) as board:
        board.done(plain, result(plain))
        board.start(comet)
        board.show(comet, Progress(3, 9, 1, 0.5, {}, 0.25, None, None))
        board._live.refresh()
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said(console))
        assert re.search(r"plain +97.50% .* 1/2", text)
        assert re.search(r"comet +– .* 3/9 · loss 0.500 · 250 ms", text)
        board.done(again, result(again, 0.925))
    assert board.rows()[0].seeds == [0, 1]


def test_a_failed_run_stands_in_its_row_and_the_others_stay() -> None:
    console, (plain, comet, *_) = screen(False), runs()
    with Board(console, runs()) as board:
        board.fail(plain, "Traceback\n  File x\nMemoryError: 4 GiB\n")
        board.done(comet, result(comet))
    first, second = board.rows()
    assert (first.label, first.seeds, first.error) == (
        "plain",
        [],
        "failed: MemoryError: 4 GiB",
    )
    assert (second.label, second.ratio, second.slower) == ("comet", 4.0, None)
    assert "plain, seed 0 failed: MemoryError: 4 GiB" in said(console)


def test_rows_keep_the_order_of_the_methods() -> None:
    board = Board(screen(False), runs())
    plain, comet, *_ = runs()
    board.done(comet, result(comet))
    board.done(plain, replace(result(plain)))
    assert [row.label for row in board.rows()] == ["plain", "comet"]


def test_the_last_line_of_an_error_says_it() -> None:
    assert short("a\n b \n\n") == "b"
    assert short("") == "no reason given"
