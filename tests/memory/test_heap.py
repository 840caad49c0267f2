"""Tensors begin on huge pages; memory that malloc keeps is given back around a looked-at step."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import actzip
from actzip import session as session_module
from actzip.memory.fresh_process import call_fresh
from actzip.memory.heap import HUGE_PAGES, give_back
from actzip.memory.measure import resident

MIB = 1 << 20


def holes() -> tuple[int, int]:
    """Resident bytes with 64 MiB of holes between blocks in use, and after giving them back."""
    ctypes.CDLL(None).mallopt(-3, 64 * MIB)  # M_MMAP_THRESHOLD: all of these go to the heap
    blocks = [torch.ones(MIB // 8) for _ in range(256)]
    del blocks[::2]
    before = resident("VmRSS")
    give_back()
    after = resident("VmRSS")
    assert before is not None
    assert after is not None
    assert len(blocks) == 128
    return before, after


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_free_pages_between_blocks_in_use_go_back_to_the_system() -> None:
    before, after = call_fresh(holes)
    assert before - after > 48 * MIB


#: a script like the README's: torch and actzip first, tensors then
SCRIPT = """
import os, torch, actzip
x = torch.ones(16 << 20)
print(os.environ["THP_MEM_ALLOC_ENABLE"])
print(sum(int(l.split()[1]) for l in open("/proc/self/smaps_rollup") if "AnonHugePages" in l))
"""


def after_import(setting: str | None) -> tuple[str, int]:
    """The switch of PyTorch, which the user has set so, and the KiB on huge pages."""
    environment = {k: v for k, v in os.environ.items() if k != HUGE_PAGES}
    environment |= {} if setting is None else {HUGE_PAGES: setting}
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    switch, kibibytes = ran.stdout.split()
    return switch, int(kibibytes)


def test_the_import_asks_for_huge_pages_unless_the_user_has_decided() -> None:
    assert after_import(None)[0] == "1"
    assert after_import("0")[0] == "0"


def offered() -> bool:
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return mode.exists() and "[madvise]" in mode.read_text()


@pytest.mark.skipif(not offered(), reason="needs a system that gives huge pages to who asks")
def test_tensors_begin_on_huge_pages_unless_the_user_says_no() -> None:
    assert after_import(None)[1] > 48 << 10
    assert after_import("0")[1] == 0


def test_what_is_free_is_asked_for_whole_and_another_c_library_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[int] = []
    monkeypatch.setattr("actzip.memory.heap._trim", lambda: kept.append)
    give_back()
    assert kept == [0], "bytes that may stay"
    monkeypatch.setattr("actzip.memory.heap._trim", lambda: None)
    give_back()
    assert kept == [0]


def test_a_session_gives_memory_back_before_and_after_each_look_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[int] = []
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    with actzip.compress(model, "actnn", min_bytes=0, interval=8) as session:
        monkeypatch.setattr(session_module, "give_back", lambda: given.append(session.step - 1))
        for _ in range(12):
            model(torch.randn(16, 64)).sum().backward()
    assert given == [0, 1, 2, 3, 4, 5, 8, 9]  # looked at: 0, 1, 2, 4 and 8
