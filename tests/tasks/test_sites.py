"""What runs write down of the precision of each stored tensor."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_data import tiny

from actzip import codecs
from actzip.codecs.verified import Verified
from actzip.tasks.config import make
from actzip.tasks.engine import Loop
from actzip.tasks.run_folder import Journal
from actzip.tasks.sites import Sites, is_look, note


@pytest.mark.parametrize(
    ("codec", "said"),
    [
        (codecs.Group(bits=3), ("bits", 3.0)),
        (codecs.Group(bits=(2, 4, 2, 4)), ("bits", 3.0)),
        (codecs.Dual(block=8), ("bits", 2.0)),
        (codecs.FixedPoint(bits=(4, 6)), ("bits", 5.0)),
        (codecs.Bounded(error=0.125), ("error", 0.125)),
        (codecs.Bounded(error=(0.25, 0.75), entropy=True), ("error", 0.5)),
        (codecs.Split(codecs.Group(bits=4), parts=3), ("bits", 4.0)),
        (Verified(0.5, site="a:B.c"), ("error", 0.5)),
        (codecs.BitMask(), None),
        (codecs.Keep(), None),
    ],
)
def test_a_codec_tells_its_bits_or_its_bound(
    codec: codecs.Codec, said: tuple[str, float] | None
) -> None:
    assert codec.precision() == said


def test_looks_are_dense_at_first_and_about_a_hundred() -> None:
    looks = [step for step in range(1, 5001) if is_look(step, 5000)]
    assert looks[:20] == list(range(1, 21))
    assert looks[-1] == 5000
    assert 100 <= len(looks) <= 125


def run(**more: Any) -> Loop:
    made = make(model="resnet8", epochs=2, batch=8, threads=1, sizes={"width": 8}, **more)
    return Loop(made, tiny("classify"), Journal(None))


def test_a_run_tells_how_every_site_was_stored_over_time() -> None:
    loop = run(method="actnn")
    result = loop.run()
    assert loop.trainer.session is not None
    stored = {row.name for row in loop.trainer.session.stats().sites if row.codec and row.precision}
    assert set(result.sites) == stored
    assert len(stored) > 10
    changed = 0
    for site in result.sites.values():
        assert site["kind"] == "bits"
        assert len(site["steps"]) == len(site["values"])
        assert site["steps"] == sorted(set(site["steps"]))
        assert all(1 <= value <= 8 for value in site["values"])
        changed += len(site["values"]) > 1
    assert changed  # ActNN spreads its bits anew


def test_fixed_codes_are_told_once_and_plain_runs_tell_nothing() -> None:
    fixed = run(method="fixed").run()
    assert {tuple(site["steps"]) for site in fixed.sites.values()} == {(1,)}
    assert run(method="plain").run().sites == {}


def test_another_kind_of_figure_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    class Row:
        name, codec, precision = "a", "Group(bits=2)", ("bits", 2.0)

    class Session:
        def stats(self) -> Any:
            return type("Stats", (), {"sites": [Row]})

    sites: Sites = {}
    session: Any = Session()
    note(sites, 1, session)
    note(sites, 2, session)
    assert sites == {"a": {"kind": "bits", "steps": [1], "values": [2.0]}}
    monkeypatch.setattr(Row, "precision", ("error", 0.5))
    note(sites, 3, session)
    assert sites == {"a": {"kind": "error", "steps": [3], "values": [0.5]}}
