"""What a comparison runs, what it finds, and what it refuses to mix."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_data import tiny

from actzip.tasks import comparison as plans
from actzip.tasks.comparison import Run, plan
from actzip.tasks.config import Config, make
from actzip.tasks.engine import Loop
from actzip.tasks.result import Result
from actzip.tasks.run_folder import Journal


def config(**more: object) -> Config:
    given = {"model": "resnet8", "epochs": 1, "batch": 8, "threads": 1, "sizes": {"width": 8}}
    return make(**{**given, **more})


def trained(run: Run) -> Result:
    return Loop(run.config, tiny("classify"), Journal(run.folder)).run()


def test_all_methods_of_a_seed_come_before_the_next_seed(tmp_path: Path) -> None:
    configs = [config(), config(method="actnn", options={"bits": 3, "rounding": "dither"})]
    runs = plan(configs, [4, 1], tmp_path)
    assert [run.name for run in runs] == [
        "plain, seed 4",
        "actnn:bits=3,rounding=dither, seed 4",
        "plain, seed 1",
        "actnn:bits=3,rounding=dither, seed 1",
    ]
    assert runs[1].folder == tmp_path / "actnn-bits=3-rounding=dither-seed4"
    assert len({run.folder for run in runs}) == 4


def test_a_finished_run_is_found_as_it_ended(tmp_path: Path) -> None:
    (run,) = plan([config(method="actnn")], [0], tmp_path)
    assert run.found() is None
    result = trained(run)
    found = run.found()
    assert found == result
    assert found is not None
    assert found.cost.modules == result.cost.modules != []
    # the curve is that of the last step; the first one, which is looked at, needs more
    assert max(nbytes for _, nbytes in found.cost.curve.points) < found.cost.live_peak


def test_the_live_peak_of_a_run_without_a_look_is_that_of_its_curve(tmp_path: Path) -> None:
    for method in ("plain", "lossless"):
        (run,) = plan([config(method=method)], [0], tmp_path / method)
        cost = trained(run).cost
        assert max(nbytes for _, nbytes in cost.curve.points) == cost.live_peak


def test_a_run_with_other_settings_is_refused(tmp_path: Path) -> None:
    (run,) = plan([config()], [0], tmp_path)
    trained(run)
    other = Run(replace(run.config, epochs=3), run.folder)
    with pytest.raises(ValueError, match="has epochs=1, asked was 3; name another --out"):
        other.found()
    (run.folder / "result.json").unlink()  # stopped: only the saved state is there
    assert run.found() is None
    with pytest.raises(ValueError, match="has epochs=1, asked was 3; name another --out"):
        other.found()


@pytest.mark.parametrize("text", ["nonsense", "[1]", '{"losses": []}'])
def test_what_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    (run,) = plan([config()], [0], tmp_path)
    run.folder.mkdir()
    (run.folder / "result.json").write_text(text)
    with pytest.raises(ValueError, match=r"plain-seed0.*remove that folder"):
        run.found()


def test_a_stopped_run_goes_on_from_its_saved_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(plans, "call_fresh", lambda *args, listen: asked.append(args[1:]))
    (run,) = plan([config()], [0], tmp_path)
    run.go(lambda at: None)
    trained(run)
    run.go(lambda at: None)
    assert asked == [
        (run.config, run.folder, None, None),
        (run.config, run.folder, None, run.folder),
    ]


def test_a_result_survives_json(tmp_path: Path) -> None:
    (run,) = plan([config(method="comet")], [0], tmp_path)
    result = trained(run)
    assert Result.read(json.loads(json.dumps(result.plain()))) == result
