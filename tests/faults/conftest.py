"""The faults once more with `derive=True`, where a test does not say what it derives."""

import functools
from typing import Any

import pytest

from actzip.session import Session

#: those in which tensors are stored; the others' processes and threads take minutes
AGAIN = {
    "test_backward_twice",
    "test_called_otherwise",
    "test_checkpoint_and_modes",
    "test_copies",
    "test_copies_of_the_model",
    "test_default_device",
    "test_edits_without_a_version",
    "test_errors_of_ours",
    "test_inplace",
    "test_interrupts",
    "test_leaks",
    "test_memory_used_again",
    "test_nested_sessions",
    "test_other_tensors",
    "test_parameters",
    "test_resume_and_rng",
    "test_shapes_and_layouts",
    "test_sharing",
    "test_special_values",
    "test_threads_and_sessions",
    "test_transforms",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__ in AGAIN:
        metafunc.parametrize("derives", [None, True], ids=["usual", "derive"], indirect=True)


@pytest.fixture(autouse=True)
def derives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions derive from codes, too, unless they were told whether to."""
    if getattr(request, "param", None) is None:
        return
    begin = Session.__init__

    @functools.wraps(begin)
    def started(self: Session, *args: Any) -> None:
        *given, derive = args
        begin(self, *given, True if derive is None else derive)

    monkeypatch.setattr(Session, "__init__", started)
