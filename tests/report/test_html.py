"""The report in a real browser: no error, no request, charts that tell their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest

from actzip.report import html

ABOUT: dict[str, Any] = {
    "task": "classify",
    "model": "resnet8",
    "data": "digits </script><b>",
    "batch": 64,
    "epochs": 2,
    "optimizer": "sgd",
    "seeds": [0],
    "threads": 1,
    "torch": "2.13",
    "metric": "top1",
    "better": "higher",
}
LABELS = ("plain", "actnn:bits=3", "comet")
MIB = 1 << 20


def run(label: str, scale: float) -> dict[str, Any]:
    peak = int(64 * MIB * scale)
    curve = {
        "points": [[0.0, 0], [0.1, peak // 2], [0.2, peak], [0.3, peak // 4], [0.4, 0]],
        "phases": [["forward", 0.2], ["backward", 0.39], ["update", 0.4]],
    }
    modules = [
        {"name": f"stages.{i}.conv", "raw_bytes": (40 - i) * MIB, "stored_bytes": MIB // 2}
        for i in range(40)
    ]
    sites = {
        f"stages.{i}.conv:ConvolutionBackward0.input": {
            "kind": "error" if label == "comet" and i % 2 else "bits",
            "steps": [1, 5, 30],
            "values": [4.0, 2.5, 2.0 + i / 10],
        }
        for i in range(12)
    }
    return {
        "label": label,
        "losses": [3.0 / (step + 1) for step in range(60)] + [float("nan")],
        "tests": [{"epoch": 1, "top1": 0.5}, {"epoch": 2, "top1": 0.9}],
        "cost": {"curve": curve, "modules": modules},
        "sites": {} if label == "plain" else sites,
    }


def row(label: str, scale: float) -> dict[str, Any]:
    return {
        "label": label,
        "seeds": [0],
        "metric": 0.9,
        "spread": None,
        "raw_bytes": 100 * MIB,
        "stored_bytes": int(100 * MIB * scale),
        "ratio": 1 / scale,
        "live_peak": int(64 * MIB * scale),
        "resident_peak": None,
        "step_seconds": 0.1,
        "slower": 1.25,
        "error": "",
    }


def failed(label: str) -> dict[str, Any]:
    nothing = dict.fromkeys(row(label, 1.0))
    return {**nothing, "label": label, "seeds": [], "error": "failed: <b>out of memory</b>"}


def report(labels: tuple[str, ...] = LABELS) -> str:
    scales = {label: 1 / (4**i) for i, label in enumerate(labels)}
    runs = [run(label, scale) for label, scale in scales.items()]
    rows = [row(label, scale) for label, scale in scales.items()]
    return html.page(ABOUT, runs, [*rows, failed("acgc")] if len(labels) > 1 else rows)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    program = browser.path()
    if program is None:
        pytest.skip(
            "no browser to look at the report with; install Debian's chromium, or name one in "
            "$CHROMIUM"
        )
    with browser.browser(program) as opened:
        yield opened


@pytest.fixture
def shown(page: browser.Page, tmp_path: Path) -> browser.Page:
    (tmp_path / "report.html").write_text(report())
    page.prefer("light")
    page.open(tmp_path / "report.html")
    return page


def tip(page: browser.Page) -> str | None:
    """The text of the tip; None while it is hidden."""
    script = (
        "(t => t.classList.contains('on') ? t.innerText : null)(document.querySelector('#tip'))"
    )
    found = page.run(script)
    return None if found is None else re.sub(r"\s+", " ", found)


def place(page: browser.Page, selector: str, across: float = 0.5, down: float = 0.5) -> Any:
    """A point of an element in the window, after scrolling to it."""
    element = f"document.querySelector({json.dumps(selector)})"
    page.run(f"{element}.scrollIntoView({{block: 'center'}}), {browser.DRAWN}")
    return page.run(
        f"(e => [e.left + {across} * e.width, e.top + {down} * e.height])"
        f"({element}.getBoundingClientRect())"
    )


def test_it_loads_without_an_error_and_asks_the_network_for_nothing(shown: browser.Page) -> None:
    assert shown.errors == []
    assert [address.partition(":")[0] for address in shown.asked] == ["file"]


def test_every_chart_is_there(shown: browser.Page) -> None:
    for chart, curves in (("memory", 3), ("loss", 3), ("metric", 3)):
        assert shown.run(f"document.querySelectorAll('#{chart} path.curve').length") == curves
    assert shown.run("document.querySelectorAll('.card').length") == 4
    assert shown.run("document.querySelectorAll('#modules .bar').length") == 25
    assert shown.run("document.querySelector('#modules .bar:last-child').innerText").startswith(
        "16"
    )
    assert shown.run("document.querySelectorAll('#sites rect.cell').length") >= 36
    assert "NaN" not in shown.run("document.querySelector('main').innerHTML")


def test_text_from_outside_stays_text(shown: browser.Page) -> None:
    assert shown.run("document.querySelector('h1').textContent") == "resnet8 on digits </script><b>"
    assert "failed: <b>out of memory</b>" in shown.run("document.querySelector('#table').innerText")


def test_the_table_has_a_line_for_each_method_and_marks_the_best(shown: browser.Page) -> None:
    lines = shown.run("[...document.querySelectorAll('#table tr')].map(line => line.innerText)")
    words = [re.sub(r"\s+", " ", line) for line in lines]
    assert words[1] == "plain 90.00 % 100.00 MiB 1.00× 64.00 MiB – 100 ms 1.25×"
    assert words[2].startswith("actnn:bits=3 90.00 % 25.00 MiB 4.00× 16.00 MiB")
    best = shown.run("[...document.querySelectorAll('#table td.best')].map(cell => cell.innerText)")
    best = [re.sub(r"\s+", " ", cell) for cell in best]
    assert "6.25 MiB" in best
    assert "16.00×" in best
    assert "100.00 MiB" not in best


def test_hovering_over_a_curve_shows_every_methods_value(shown: browser.Page) -> None:
    assert tip(shown) is None
    left, right = place(shown, "#memory svg", 0.0), place(shown, "#memory svg", 1.0)
    middle = left[0] + 62 + (right[0] - left[0] - 72) * 1.075 / 2.7  # a twentieth of backward
    shown.hover(middle, left[1])
    text = tip(shown)
    assert text is not None
    assert text == "backward, 5 % done plain 64.00 MiB actnn:bits=3 16.00 MiB comet 4.00 MiB"
    shown.hover(2, 2)
    assert tip(shown) is None


def test_arrow_keys_move_along_a_curve(shown: browser.Page) -> None:
    shown.press("Tab")  # focus by keyboard, not by script, makes it visible
    shown.run("document.querySelector('#loss svg').focus()")
    assert "step 1 " in (tip(shown) or "")
    shown.press("End")
    assert "step 60" in (tip(shown) or "")
    shown.press("Escape")
    assert tip(shown) is None


def test_hovering_and_focus_show_the_bytes_of_a_module(shown: browser.Page) -> None:
    shown.hover(*place(shown, "#modules .bar:nth-child(2)"))
    said = "stages.1.conv plain 39.00 MiB actnn:bits=3 512.00 KiB ratio 78.00×"
    assert tip(shown) == said
    shown.hover(2, 2)
    assert tip(shown) is None
    shown.press("Tab")
    shown.run("document.querySelector('#modules .bar:nth-child(2)').focus()")
    assert tip(shown) == said


def test_hovering_over_a_site_shows_its_precision(shown: browser.Page) -> None:
    shown.hover(*place(shown, "#sites svg", 0.97, 0.5 / 14))
    text = tip(shown) or ""
    assert text.startswith("stages.0.conv · Convolution.input step ")
    assert text.endswith("2.00 bits")


def test_a_finger_shows_values_too(shown: browser.Page) -> None:
    shown.touch(*place(shown, "#memory svg", 0.5))
    assert "MiB" in (tip(shown) or "")


def test_another_method_can_be_chosen(shown: browser.Page) -> None:
    choose = (
        "(s => (s.value = 'comet', s.dispatchEvent(new Event('change'))))"
        "(document.querySelector('{} select'))"
    )
    shown.run(choose.format("#sites"))
    notes = shown.run("[...document.querySelectorAll('#sites .note')].map(note => note.innerText)")
    assert notes[1:] == ["bits per element", "largest error of an element"]
    shown.run(choose.format("#modules"))
    shown.hover(*place(shown, "#modules .bar:nth-child(1)"))
    assert "comet" in (tip(shown) or "")


def test_the_legend_hides_a_method_in_all_charts(shown: browser.Page) -> None:
    shown.run("document.querySelectorAll('.legend button')[1].click()")
    for chart in ("memory", "loss", "metric"):
        found = shown.run(
            f"[...document.querySelectorAll('#{chart} path.curve')].map(p => p.dataset.label)"
        )
        assert found == ["plain", "comet"]
    assert shown.errors == []


def test_light_and_dark_follow_the_system_and_the_switch(shown: browser.Page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = shown.run(colour)
    shown.prefer("dark")
    dark = shown.run(colour)
    assert light != dark
    switch = "document.querySelector('#theme').click(), document.querySelector('#theme').innerText"
    assert "light" in shown.run(switch)
    assert shown.run(colour) == light
    assert "dark" in shown.run(switch)
    shown.prefer("light")
    assert shown.run(colour) == dark
    assert "auto" in shown.run(switch)
    assert shown.run(colour) == light


def test_nothing_is_wider_than_a_phone(page: browser.Page, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(report())
    page.open(tmp_path / "report.html", width=375, height=700)
    assert page.run("document.documentElement.scrollWidth") == 375
    assert page.run("document.querySelectorAll('#memory path.curve').length") == 3
    assert page.errors == []


def test_one_run_alone_has_its_cards_and_no_choice(page: browser.Page, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(report(("plain",)))
    page.open(tmp_path / "report.html")
    assert page.errors == []
    assert page.run("document.querySelectorAll('.legend').length") == 0
    assert page.run("document.querySelector('.card .value').innerText") == "90.00\u00a0%"
    assert page.run("!!document.querySelector('#sites')") is False


def test_the_embedded_json_cannot_end_its_block_and_reads_back() -> None:
    text = html.embedded({"a": "</script><!--", "b": [float("nan"), 1.5, (float("inf"),)]})
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><!--", "b": [None, 1.5, [None]]}
