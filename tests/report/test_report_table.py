"""The report of a session: 80 columns, equal layers once, means instead of a number per sample."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.report import codes
from actzip.report.folding import fold, prefix, unnumbered


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up_projection_with_a_long_name = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.up_projection_with_a_long_name(self.norm(x)))
        out: Tensor = x + self.down(h)
        return out


class Wrapped(nn.Module):
    """A model below some wrappers, as adapters make them."""

    def __init__(self, layers: int = 12):
        super().__init__()
        inner = nn.Module()
        inner.layers = nn.ModuleList([Layer(32) for _ in range(layers)])
        self.base_model = nn.Module()
        self.base_model.model = inner

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.base_model.model.layers:  # type: ignore[union-attr]
            x = layer(x)
        return x


def asked(method: str = "fixed", rows: int = 64, **options: int) -> str:
    model = Wrapped()
    with actzip.compress(model, method) as session:
        model(torch.randn(rows, 32)).sum().backward()
        text = session.report(**options)
        head = text.split("\n\n")[0]
        assert f"{session.stats().ratio:.2f}x" in head
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_equal_layers_are_one_line_below_the_common_path() -> None:
    text = asked()
    assert "paths are below base_model.model\n" in text
    names = re.findall(r"^(\S+) +[\d.]+ \w+ +[\d.]+ \w+ +[\d.]+x$", text, re.MULTILINE)
    assert "layers.{0-11}.up_projection_with_a_long_name" in names
    assert "layers.{0-11}.norm" in names
    assert not any(name.startswith("layers.0") for name in names)
    said = " ".join(text.split())
    assert "NativeLayerNorm.input: nonlinear, Group(bits=4), " in said
    assert "Addmm.mat1: linear, shared with layers.*:Tanh.result (12×)" in said


def test_the_lines_add_up_with_depth_and_top_too() -> None:
    def plain(text: str) -> float:
        units = {"B": 1, "KiB": 1024, "MiB": 1024**2}
        found = re.findall(r" ([\d.]+) (\w+) +[\d.]+ \w+ +(?:[\d.]+x|-)$", text, re.MULTILINE)
        return sum(float(number) * units[unit] for number, unit in found)

    whole, top, deep = asked(), asked(top=1), asked(depth=2)
    assert "more)" in top
    assert len(top.splitlines()) < len(whole.splitlines())
    assert plain(whole) == pytest.approx(plain(top), rel=0.01)
    assert plain(whole) == pytest.approx(plain(deep), rel=0.01)
    assert [line.split()[0] for line in deep.splitlines() if line.startswith("layers")] == [
        "layers.{0-11}"
    ]


def test_bits_of_each_sample_are_shown_by_their_mean() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh())
    bits = actzip.codecs.Group(bits=tuple([2] * 230 + [3] * 26))
    with actzip.compress(model, actzip.Fixed(linear=bits, nonlinear=bits)) as session:
        model(torch.randn(256, 64)).sum().backward()
        text = session.report()
    assert "Addmm.mat1: linear, Group(bits=2.1), " in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 20


def test_several_passes_of_a_step_are_told() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh())
    with actzip.compress(model, "fixed") as session:
        out = model(torch.randn(64, 64)) + model(torch.randn(64, 64))
        text = " ".join(session.report().split())
        assert "64.00 KiB saved as " in text
        assert "2 forward passes of a step" in text
        out.sum().backward()


@pytest.mark.parametrize("options", [{"depth": 0}, {"top": 0}, {"top": True}])
def test_questions_that_make_no_sense(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="whole number from 1 on"):
        asked(**options)


def test_prefix_is_what_all_paths_share_less_their_own_name() -> None:
    assert prefix(["a.b.x", "a.b.y.z", ""]) == "a.b"
    assert prefix(["a.b.0.x", "a.b.1.x", ""]) == prefix(["a.b.0.1.x", "a.b.0.2"]) == "a"
    assert prefix(["a.b", "a.b.c"]) == "a"
    assert prefix(["a", "b"]) == prefix(["a.b"]) == prefix([]) == ""


def test_fold_joins_numbers_of_one_kind_only() -> None:
    items = [(f"s.{i}.{j}.conv", i) for i, count in ((0, 3), (1, 4), (2, 3)) for j in range(count)]
    assert list(fold(items, lambda _: 0)) == ["s.{0,2}.{0-2}.conv", "s.1.{0-3}.conv"]
    assert list(fold(items, lambda i: i)) == [
        "s.0.{0-2}.conv",
        "s.1.{0-3}.conv",
        "s.2.{0-2}.conv",
    ]
    assert fold([("0", "a"), ("1", "b"), ("x", "a")], lambda _: 0) == {
        "{0-1}": ["a", "b"],
        "x": ["a"],
    }
    assert unnumbered("layers.10.mlp2:MulBackward0.self") == "layers.*.mlp2:MulBackward0.self"


def test_codes_of_one_kind_are_put_together() -> None:
    assert codes.short("Group(bits=(1, 2, 3), zero=True)") == "Group(bits=2, zero=True)"
    assert codes.short("Bounded(error=(1e-3, 3e-3))") == "Bounded(error=0.002)"
    assert codes.together(["Group(bits=2)", "Group(bits=(2, 3))"]) == "Group(bits=2-2.5)"
    assert codes.kind("Group(bits=2)") == codes.kind("Group(bits=(2, 3))") != codes.kind("Dual()")
    assert codes.together(["BitMask()", "BitMask()"]) == "BitMask()"


def test_a_notebook_shows_the_report_as_html() -> None:
    model = Wrapped(layers=2)
    session = actzip.compress(model, "fixed")
    assert "<table" not in session._repr_html_()  # nothing to show yet, and no error
    model(torch.randn(64, 32)).sum().backward()
    page = ElementTree.fromstring(f"<body>{session._repr_html_()}</body>")
    rows = [list(row) for row in page.iter("tr")][1:]
    text = session.report()
    assert len(rows) == len(re.findall(r"^\S.* +[\d.]+ \w+ +[\d.]+ \w+ +\S+$", text, re.MULTILINE))
    names = [row[0].findtext("details/summary") for row in rows]
    assert "layers.{0-1}.up_projection_with_a_long_name" in names
    kept = "".join(page.find(".//details").itertext())  # type: ignore[union-attr]
    assert "Group(bits=" in kept
    assert text.split("\n\n")[0].replace("\n", " ") == page.findtext(".//p")
