"""What a built wheel must do where it was just installed: run its own kernels, and train with them.

python tools/check_wheel.py
"""

from __future__ import annotations

import torch
from torch import nn

import actzip
from actzip import kernels


def main() -> None:
    found = kernels.backend_name("cpu")
    if found != "native":
        raise SystemExit(f"the wheel runs {found!r} kernels: its C++ library is missing or broken")
    x = torch.randn(1 << 16)
    code = actzip.codecs.Bounded(error=0.01)
    worst = float((code.decode(code.encode(x, seed=1)) - x).abs().max())
    if worst > 0.01:
        raise SystemExit(f"Bounded(error=0.01) is off by {worst}")
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    session = actzip.compress(model, "fixed")
    model(torch.randn(512, 64)).square().mean().backward()
    if session.stats().ratio < 2:
        raise SystemExit(f"nothing was compressed:\n{session.report()}")
    print(f"actzip {actzip.__version__}, torch {torch.__version__}: {session.stats().ratio:.1f}x")


if __name__ == "__main__":
    main()
