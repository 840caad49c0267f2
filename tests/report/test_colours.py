"""Every method has an accent of its own."""

from __future__ import annotations

from actzip.report.colours import accents

ALL = ["plain", "checkpoint", "bf16", "lossless", "actnn", "division", "comet", "acgc", "fixed"]


def test_no_two_methods_look_alike() -> None:
    found = accents([*ALL, "actnn:bits=3", "actnn:bits=4", "comet:sigma=0.1"])
    assert len({each["colour"] for each in found}) == len(found) == 12


def test_an_accent_does_not_depend_on_the_company() -> None:
    (alone,) = accents(["comet"])
    assert alone in accents(ALL)
    assert accents(["actnn:bits=3"])[0]["colour"] == accents(["actnn"])[0]["colour"]


def test_what_is_not_ours_is_dashed() -> None:
    dashed = {each["label"] for each in accents(ALL) if each["dashed"]}
    assert dashed == {"plain", "checkpoint", "bf16"}
