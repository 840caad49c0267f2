"""apply_to_instance: the model inside whatever is around it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

import actzip
from actzip.instance import plain_optimizer, unwrapped
from actzip.integrations.noise_probe import is_whole
from processes import in_two_processes


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))


def test_a_wrapped_model_is_compressed_inside() -> None:
    model = _model()
    session = actzip.apply_to_instance(DataParallel(model), method="actnn", bits=3)
    assert session is actzip.session_of(model)
    again = actzip.apply_to_instance(model)  # no error: the first is replaced
    assert actzip.session_of(model) is again
    assert again.method == actzip.Auto()


def test_a_compiled_model_is_unwrapped() -> None:
    model = _model()
    compiled: Any = torch.compile(model, backend="eager")
    assert compiled is not model
    assert unwrapped(compiled) is model
    assert unwrapped(DataParallel(compiled)) is model


def test_a_users_own_module_attribute_is_no_wrapper() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = _model()

    model = Own()
    assert unwrapped(model) is model


def test_the_optimizer_inside_a_wrapper_is_found() -> None:
    class Wrapper:
        def __init__(self, optimizer: Any):
            self.optimizer = optimizer

    sgd = torch.optim.SGD(_model().parameters(), lr=0.1)
    assert plain_optimizer(sgd) is sgd
    assert plain_optimizer(Wrapper(sgd)) is sgd
    assert plain_optimizer(object()) is None
    assert plain_optimizer(None) is None


def _in_a_group(rank: int) -> None:
    model = _model()
    wrapped = DistributedDataParallel(model)
    session = actzip.apply_to_instance(wrapped)
    for _ in range(2):
        wrapped(torch.randn(64, 64)).sum().backward()
    assert session is actzip.session_of(model)
    assert session.step == 2
    assert session.totals().ratio > 4


def test_data_parallel_processes_compress_the_model_inside(tmp_path: Path) -> None:
    in_two_processes(tmp_path, _in_a_group)


def _sharded(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    session = actzip.apply_to_instance(model)
    for _ in range(2):
        model(torch.randn(64, 64)).sum().backward()
    assert session is actzip.session_of(model)
    assert session.totals().ratio > 4
    assert not is_whole(model)  # no process could measure its noise alone


def test_a_sharded_model_is_compressed_as_it_is(tmp_path: Path) -> None:
    in_two_processes(tmp_path, _sharded)


def test_importing_actzip_imports_no_integration() -> None:
    code = (
        "import sys, actzip; "
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('transformers', 'lightning', 'accelerate', 'peft', 'pydantic') "
        "or m.startswith('actzip.integrations')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"needs an nn\.Module"):
        actzip.apply_to_instance("model")  # type: ignore[arg-type]
