"""Live peaks are exact and repeatable; resident peaks come from a fresh process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from actzip.memory import measure as module
from actzip.memory.fresh_process import call_fresh
from actzip.memory.measure import live_peak, measure, resident_peak, size

MIB = 1 << 20


def block(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def known() -> None:
    a = block(3)
    b = block(5)  # 8
    del a  # 5
    c = block(2)  # 7
    del b, c


def test_live_peak_is_the_known_peak_twice() -> None:
    assert [live_peak(known), live_peak(known)] == [8 * MIB, 8 * MIB]


def test_live_peak_of_a_training_step_is_repeatable() -> None:
    layer = torch.nn.Linear(64, 64)
    x = torch.randn(512, 64)

    def step() -> None:
        layer.zero_grad()
        layer(x).relu().sum().backward()
        layer.zero_grad()

    first = live_peak(step)
    assert first >= 512 * 64 * 4
    assert live_peak(step) == first


def test_what_is_still_held_is_the_level_at_the_end() -> None:
    with measure() as found:
        held = block(4)
        del held
        held = block(1)
    assert held.numel() == MIB
    assert (found.live_peak, found.live_end) == (4 * MIB, 1 * MIB)


def test_memory_of_an_earlier_measurement_that_is_freed_counts_down() -> None:
    with measure():
        held = block(4)
    with measure() as found:
        del held
    assert (found.live_peak, found.live_end) == (0, -4 * MIB)


def test_timeline_has_every_level_in_order() -> None:
    with measure() as found:
        known()
    assert [level // MIB for _, level in found.timeline] == [3, 8, 5, 7, 2, 0]
    times = [when for when, _ in found.timeline]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= found.seconds


def test_nested_blocks_each_see_their_own_part() -> None:
    with measure() as outer:
        a = block(2)
        with measure() as inner:
            b = block(3)
            del b
        c = block(1)
        with measure() as second:
            del c
    del a
    assert (inner.live_peak, inner.live_end) == (3 * MIB, 0)
    assert (second.live_peak, second.live_end) == (0, -1 * MIB)
    assert (outer.live_peak, outer.live_end) == (5 * MIB, 2 * MIB)
    assert [level // MIB for _, level in outer.timeline] == [2, 5, 2, 3, 2]


def test_an_exception_passes_through_and_leaves_the_measurement() -> None:
    try:
        with measure() as found:
            known()
            raise KeyError("from the block")
    except KeyError as error:
        raised = error
    assert raised.args == ("from the block",)
    assert found.live_peak == 8 * MIB
    assert not torch._C._autograd._profiler_enabled()
    assert live_peak(known) == 8 * MIB


def test_an_exception_in_an_inner_block_leaves_the_outer_one_measuring() -> None:
    with measure() as outer:
        with pytest.raises(KeyError), measure():
            raise KeyError("from the block")
        known()
    assert outer.live_peak == 8 * MIB


def test_a_running_profiler_is_not_cut_off() -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as mine:
        with pytest.raises(RuntimeError, match="already running"), measure():
            pass
        torch.ones(3)
    assert any("ones" in event.key for event in mine.key_averages())


def test_a_second_thread_is_refused() -> None:
    errors: list[str] = []

    def other() -> None:
        try:
            live_peak(known)
        except RuntimeError as error:
            errors.append(str(error))

    with measure() as found:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        known()
    assert len(errors) == 1
    assert "another thread" in errors[0]
    assert found.live_peak == 8 * MIB


def test_print_tells_all_four_figures() -> None:
    with measure() as found:
        known()
    text = str(found)
    assert "live peak 8.00 MiB, at the end 0 B" in text
    assert "resident peak" in text
    assert text.endswith(" s")


def test_sizes_read_well() -> None:
    texts = [size(n) for n in (0, 1023, 1536, -3 * MIB, 5 << 30)]
    assert texts == ["0 B", "1023 B", "1.50 KiB", "-3.00 MiB", "5.00 GiB"]


def touch(mib: int) -> None:
    torch.ones(mib * MIB, dtype=torch.uint8)


linux = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's /proc"
)


@linux
@pytest.mark.parametrize("function", [touch, f"{__name__}:touch"], ids=["callable", "name"])
def test_resident_peak_of_touching_256_mib(function: str | Callable[..., object]) -> None:
    assert resident_peak(function, 256) == pytest.approx(256 * MIB, rel=0.05)


def _resident_peaks() -> tuple[int | None, int | None, int | None]:
    with measure():
        touch(1)  # the profiler comes up
    with measure() as found:
        touch(256)
    with measure() as outer:
        touch(256)
        with measure() as inner:
            pass
    return found.resident_peak, outer.resident_peak, inner.resident_peak


@linux
def test_measure_sees_resident_growth_that_is_gone_at_the_end() -> None:
    """In a process of its own: in one of the suite, others' freed memory may be used again. An
    inner block does not hide the peak of the outer one."""
    found, outer, inner = call_fresh(_resident_peaks)
    assert found == pytest.approx(256 * MIB, rel=0.1)
    assert outer == pytest.approx(256 * MIB, rel=0.1)
    assert inner < 32 * MIB


def test_without_proc_the_error_says_what_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_PROC", tmp_path)
    with pytest.raises(RuntimeError, match="live_peak works everywhere"):
        resident_peak(known)
    with measure() as found:
        known()
    assert found.live_peak == 8 * MIB
    assert found.resident_peak is None
    assert "not known here" in str(found)


def fail() -> None:
    raise LookupError("told by the child")


def die() -> None:
    os._exit(3)


def count(limit: int, *, notify: Callable[[int], None]) -> str:
    for i in range(limit):
        notify(i)
    return "done"


def test_a_fresh_process_returns_reports_and_fails_clearly() -> None:
    heard: list[int] = []
    assert call_fresh(count, 3, listen=heard.append) == "done"
    assert heard == [0, 1, 2]
    assert call_fresh(os.getpid) != os.getpid()
    with pytest.raises(RuntimeError, match="LookupError: told by the child"):
        call_fresh(fail)
    with pytest.raises(RuntimeError, match="exit code 3"):
        call_fresh(die)


def test_what_does_not_pickle_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match="module:function"):
        call_fresh(lambda: None)


def test_a_name_without_a_colon_is_refused() -> None:
    with pytest.raises(RuntimeError, match="module:function"):
        call_fresh("no_colon")
