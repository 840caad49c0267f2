"""`make results`: what was finished stays, what another commit measured is measured again."""

from pathlib import Path
from typing import Any

from scripts import BENCHMARKS, load

rerun = load("rerun")


def _progress(path: Path, at: str, same: bool = True) -> Any:
    return rerun.Progress(path / "state.json", at, lambda old, new: same)


def test_a_run_that_was_stopped_goes_on_with_what_it_had(tmp_path: Path) -> None:
    first, second = rerun.JOBS[:2]
    (file,) = first.files
    (tmp_path / file).write_text("of an older commit")
    progress = _progress(tmp_path, "aaa")
    progress.begin(first, tmp_path)
    assert not (tmp_path / file).exists(), "no file mixes two commits"
    progress.end(first)
    progress.begin(second, tmp_path)
    (tmp_path / second.files[0]).write_text("half of it")  # and here it is stopped

    again = _progress(tmp_path, "bbb")  # src/ is the same
    assert again.done == [first.name]
    again.begin(second, tmp_path)
    assert (tmp_path / second.files[0]).read_text() == "half of it"


def test_other_source_begins_anew(tmp_path: Path) -> None:
    progress = _progress(tmp_path, "aaa")
    progress.begin(rerun.JOBS[0], tmp_path)
    progress.end(rerun.JOBS[0])
    anew = _progress(tmp_path, "bbb", same=False)
    assert (anew.commit, anew.begun, anew.done) == ("bbb", [], [])


def test_every_table_has_a_job_that_makes_its_results() -> None:
    loaded: set[str] = set()
    tables = load("tables")
    for name in tables.TABLES:
        tables.made(name)
        loaded |= set(tables.LOADED)
    made = {file.removesuffix(".json") for job in rerun.JOBS for file in job.files}
    assert loaded
    assert loaded <= made, loaded - made
    assert len({job.name for job in rerun.JOBS}) == len(rerun.JOBS)
    for job in rerun.JOBS:
        assert (BENCHMARKS / job.command[0]).exists()
