"""What is asked of devices beside the CPU, on one that is simulated."""

from __future__ import annotations

import pytest
import torch

import actzip
from actzip import accelerator
from actzip.memory.step_peak import StepPeak
from actzip.tasks import max_batch_search
from actzip.tasks.config import make
from simulated import simulate

CPU = torch.device("cpu")


def test_without_a_name_the_best_device_that_is_there_is_chosen() -> None:
    assert accelerator.choose(None) == torch.device("cpu")
    assert accelerator.choose("cpu") == torch.device("cpu")


@pytest.mark.parametrize("asked", ["tpu", "cuda:x", "cuda:-1", ""])
def test_an_unknown_device_is_refused(asked: str) -> None:
    with pytest.raises(ValueError, match="allowed are cpu, cuda, mps, xpu"):
        accelerator.choose(asked)


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch)
    assert accelerator.choose("cuda:0") == torch.device("cuda:0")
    assert accelerator.choose(None) == torch.device("cuda")
    with pytest.raises(ValueError, match=r"cuda:1 is not there: torch .* finds 1 of cuda"):
        accelerator.choose("cuda:1")


def test_of_the_cpu_nothing_is_known() -> None:
    assert accelerator.peak(CPU) is accelerator.allocated(CPU) is None
    assert accelerator.total_memory(CPU) is None
    assert not accelerator.limit(CPU, 1)
    assert not accelerator.has_streams(CPU)
    accelerator.synchronize(CPU)
    accelerator.release(CPU)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert accelerator.is_out_of_memory(error) == expected
    if isinstance(error, RuntimeError):
        assert max_batch_search.is_out_of_memory(str(error)) == expected


def test_a_measurement_of_a_device_is_its_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    device = simulate(monkeypatch)
    device.take(100)
    with actzip.measure("cuda") as whole:
        device.take(50)
        device.take(-50)
        with actzip.measure("cuda") as part:
            device.take(20)
        device.take(10)
    assert (part.live_peak, part.live_end) == (20, 20)
    assert (whole.live_peak, whole.live_end) == (50, 30)  # what was before the part is not lost


def test_the_peak_of_a_step_is_the_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    device = simulate(monkeypatch)
    net, meter = torch.nn.Linear(4, 4), StepPeak()
    meter.begin(net, None, 0)
    device.take(700)
    net(torch.randn(2, 4)).sum().backward()
    device.take(-700)
    assert meter.end() == 700


def test_max_batch_gives_the_limit_to_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    device = simulate(monkeypatch)
    monkeypatch.setattr(accelerator, "choose", lambda asked: CPU)
    small = {"model": "resnet8", "side": 8, "batch": 2, "limit": 8, "threads": 1}
    step = max_batch_search.Trainer.step

    def takes(self: max_batch_search.Trainer, parts: object) -> float:
        device.take(1000)
        device.take(-1000)
        return step(self, parts)  # type: ignore[arg-type]

    monkeypatch.setattr(max_batch_search.Trainer, "step", takes)
    peak, seconds = max_batch_search.steps(make(**small, device="cuda"), device.total // 4)
    assert device.fraction == 0.25
    assert peak == 1000
    assert seconds > 0
    assert device.calls["synchronize"] == max_batch_search.STEPS
    assert max_batch_search.available(CPU) == device.total


def test_a_try_that_fails_on_a_device_for_another_reason_is_no_lack_of_memory() -> None:
    said = "failed in its fresh process, exit code 0: Traceback\n{}\n"
    refused = said.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB.")
    assert "out of memory" in max_batch_search._why(refused)
    with pytest.raises(max_batch_search.StepError, match="illegal memory access"):
        max_batch_search._why(said.format("RuntimeError: CUDA error: an illegal memory access"))


def test_a_config_names_a_type_of_device() -> None:
    assert make().device == "cpu"
    with pytest.raises(ValueError, match="unknown device"):
        make(device="gpu")
