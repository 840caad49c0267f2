"""What the self-test finds: a machine that is as it should be, and kernels that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from actzip import kernels
from actzip.codecs import Group, Keep
from actzip.doctor import codes, facts, timings
from actzip.doctor.finding import REPORT, Finding, examine
from actzip.kernels.native import group
from actzip.kernels.native import library as native

CPU = torch.device("cpu")
TINY = timings.Size(
    1 << 12, 1, pictures=2, side=32, texts=2, length=16, width=64, depth=1, words=64
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other take long on a machine that does other things."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_facts_name_device_kernels_and_versions() -> None:
    found = facts.facts(CPU)
    assert found["backend"] == kernels.backend_name("cpu")
    assert set(found["forms"]) == set(kernels.FORMS)
    assert found["forms"]["group"] == "native"
    assert found["instruction_set"] in native.ISA
    assert found["versions"]["torch"] == torch.__version__
    assert facts.installation(found) == []


def test_a_missing_library_is_named_with_the_way_to_build_it() -> None:
    found = {**facts.facts(CPU), "native_library": False}
    (wrong,) = facts.installation(found)
    assert not wrong.sound
    assert "make setup" in wrong.advice


def test_a_gpu_with_plain_kernels_is_told_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**facts.facts(CPU), "device": "cuda", "backend": "reference"}
    monkeypatch.setattr("actzip.kernels.triton.available", lambda: False)
    (note,) = facts.installation(found)
    assert note.sound  # it works, slowly
    assert "actzip[triton]" in note.advice
    monkeypatch.setattr("actzip.kernels.triton.available", lambda: True)
    assert "ACTZIP_KERNELS unset" in facts.installation(found)[0].advice


def test_kernels_that_were_tried_and_refused_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"mask": "their bytes are not those of the reference"}
    monkeypatch.setattr(kernels, "fault_of", lambda device, form: wrong.get(form))
    (finding,) = facts.installation(facts.facts(CPU))
    assert not finding.sound
    assert finding.what == "kernels of mask"
    assert "their bytes are not" in finding.detail


def test_a_kernel_that_does_not_load_is_named() -> None:
    found = {**facts.facts(CPU), "forms": {"group": "ImportError: no driver"}}
    (wrong,) = facts.installation(found)
    assert (wrong.what, wrong.sound) == ("kernels of group", False)


def test_a_failure_does_not_end_the_examination() -> None:
    def fails() -> None:
        raise ValueError("seven")

    found = examine("it", REPORT, fails)
    assert (found.what, found.sound, found.advice) == ("it", False, REPORT)
    assert "ValueError" in found.detail
    assert "seven" in found.detail
    assert examine("it", REPORT, lambda: None) == Finding(
        "it", True, seconds=pytest.approx(0, abs=9)
    )


def test_this_machine_writes_the_bytes_of_the_reference() -> None:
    found = list(codes.equal_bytes(CPU, 5000))
    assert len(found) > 50
    assert [each for each in found if not each.sound] == []


def test_a_wrong_byte_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = group.encode

    def wrong(x: Any, layout: Any, seed: Any, data: torch.Tensor) -> Any:
        raw = encode(x, layout, seed, data)
        data[-1] ^= 1
        return raw

    monkeypatch.setattr(group, "encode", wrong)
    bad = [each for each in codes.equal_bytes(CPU, 500) if not each.sound]
    assert bad
    assert all("Group" in each.what for each in bad)
    assert "the first that differs is" in bad[0].detail


def test_the_kit_runs_on_the_device() -> None:
    good, bad = codes.promises(CPU, ((Keep(), None), (Group(2), codes._mask)))
    assert good.sound
    assert not bad.sound
    assert "a bit is wrong" in bad.detail


@pytest.mark.parametrize("codec", timings.CODECS, ids=repr)
def test_codecs_are_timed_beside_copy(codec: Any) -> None:
    found = timings.codec_times(CPU, TINY, codec)
    assert min(found.copy_ms, found.encode_ms, found.decode_ms) > 0
    assert found.encode_ratio == found.copy_ms / found.encode_ms
    assert 0 < found.bits_per_element < 33


def test_steps_are_timed_beside_plain() -> None:
    found = {each.method: each for each in timings.step_times(CPU, TINY, "GPT")}
    assert list(found) == list(timings.METHODS)
    assert (found["plain"].times_plain, found["plain"].ratio) == (1.0, 1.0)
    assert found["actnn"].ratio > found["fixed"].ratio > 1.5
    assert all(each.peak_bytes > 0 and each.step_ms > 0 for each in found.values())


def test_the_models_are_a_resnet_50_and_a_gpt() -> None:
    net, x, y = timings.MODELS["ResNet-50"](TINY)
    assert sum(isinstance(each, torch.nn.Conv2d) for each in net.modules()) == 53
    assert net(x).shape == (len(y), 1000)
