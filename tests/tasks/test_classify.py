"""The classification run: learns, repeats itself, and lossless changes no bit of it."""

from __future__ import annotations

import pytest

from actzip.tasks.classify import Config, Progress, Result, run

TINY = {"model": "resnet8", "epochs": 2, "batch": 128, "side": 8, "threads": 1}


def tiny(method: str) -> Result:
    return run(Config(method=method, **TINY))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain() -> Result:
    return tiny("plain")


def test_two_epochs_learn_more_than_chance(plain: Result) -> None:
    assert plain.accuracy > 0.3
    assert plain.loss < 2.3


def test_lossless_trains_bit_for_bit_like_plain(plain: Result) -> None:
    lossless = tiny("lossless")
    assert (lossless.loss, lossless.accuracy) == (plain.loss, plain.accuracy)


def test_plain_stores_all_that_it_keeps(plain: Result) -> None:
    assert plain.cost.raw_bytes == plain.cost.stored_bytes > 0
    assert plain.cost.ratio == 1.0


def test_lossless_counts_the_same_bytes_and_stores_fewer(plain: Result) -> None:
    cost = tiny("lossless").cost
    assert cost.raw_bytes == plain.cost.raw_bytes
    assert cost.stored_bytes < cost.raw_bytes
    assert cost.ratio == pytest.approx(cost.raw_bytes / cost.stored_bytes)


def test_live_peak_covers_what_is_saved_beside_the_input(plain: Result) -> None:
    batch = 128 * 8 * 8 * 4  # the images are saved too, but were there before the step
    assert plain.cost.live_peak > plain.cost.raw_bytes - batch - 128 * 8


def test_every_step_is_reported() -> None:
    heard: list[Progress] = []
    run(Config(**TINY), notify=heard.append)  # type: ignore[arg-type]
    assert [at.step for at in heard] == list(range(1, 23))
    assert {at.steps for at in heard} == {22}
    assert [at.accuracy is None for at in heard] == [True] * 11 + [False] * 11


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "zip"}, "unknown method 'zip'; allowed are plain, lossless"),
        ({"model": "resnet9"}, "unknown model 'resnet9'; allowed are resnet8"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": 5000}, "5000 is more than the 1437"),
    ],
)
def test_a_wrong_config_is_refused_when_made(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**wrong)  # type: ignore[arg-type]
