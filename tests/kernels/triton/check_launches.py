"""How many kernels an encode and a decode launch: Triton's, and those of PyTorch's ops beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from agreement import QUIET
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from actzip.codecs import BitMask, Bounded, Cast, Codec, Dual, FixedPoint, Group, Window, unsettled
from actzip.kernels import transfers
from actzip.kernels.triton import launch

pytestmark = QUIET

#: Ops that give another view, or memory with nothing in it: no kernel runs.
_VIEWS = {"alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand"} | {
    *("new_empty", "permute", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view"),
    *("split", "unbind", "_reshape_alias", "_unsafe_view", "lift_fresh", "unfold"),
}


class _Ops(TorchDispatchMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in _VIEWS:
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Kernels by their names; Triton's with a star."""
    found: Counter[str] = Counter()
    run: Callable[..., None] = launch.run

    def counting(kernel: Any, programs: int, *args: object, **options: object) -> None:
        found[f"*{kernel.fn.__name__}"] += programs > 0
        with _disable_current_modes():
            run(kernel, programs, *args, **options)

    with monkeypatch.context() as patched:
        for name in ("bounded", "cast", "dual", "fixedpoint", "group", "index", "mask", "window"):
            module = __import__(f"actzip.kernels.triton.{name}", fromlist=[name])
            if hasattr(module, "run"):
                patched.setattr(module, "run", counting)
        patched.setattr(launch, "run", counting)
        with _Ops(found):
            yield found
