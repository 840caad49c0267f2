"""Bytes of real activations under one error bound: our codec's forms, and pysz where it is."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import torch
from torch import Tensor

from actzip.codecs import Bounded

FORMS = {
    "blocks": {},
    "blocks, lorenzo": {"predict": "lorenzo"},
    "entropy": {"entropy": True},
    "entropy, lorenzo": {"entropy": True, "predict": "lorenzo"},
    "entropy, nearest": {"entropy": True, "rounding": "nearest"},
    "entropy, nearest, lorenzo": {"entropy": True, "rounding": "nearest", "predict": "lorenzo"},
}


def ratios(tensors: Mapping[str, tuple[Tensor, float]]) -> dict[str, float]:
    """Raw over stored bytes, over all (tensor, bound) together, for each form."""
    raw = sum(x.numel() * x.element_size() for x, _ in tensors.values())
    found = {}
    for name, options in FORMS.items():
        codecs = {n: Bounded(error, **options) for n, (_, error) in tensors.items()}  # type: ignore[arg-type]
        found[name] = raw / sum(codecs[n].encode(x).nbytes for n, (x, _) in tensors.items())
    if importlib.util.find_spec("pysz") is not None:
        found["pysz"] = raw / sum(_pysz(x, error) for x, error in tensors.values())
    return found


def _pysz(x: Tensor, error: float) -> int:
    """SZ3 with its own choice of predictor."""
    from pysz import sz, szConfig, szErrorBoundMode

    config = szConfig()
    config.errorBoundMode = szErrorBoundMode.ABS
    config.absErrorBound = error
    array = x.detach().to(torch.float32).contiguous().numpy()
    data, _ = sz.compress(array, config)
    return int(data.nbytes)
