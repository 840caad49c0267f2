"""Bindings to the C++ library, a module per form, with the functions of forms.py."""

from __future__ import annotations

#: The forms that have kernels here; `kernels.of` gives the next backend's for any other.
FORMS = frozenset(
    {
        "bounded",
        "bounded_entropy",
        "dithered",
        "dual",
        "entropy",
        "fixedpoint",
        "group",
        "index",
        "mask",
        "norm",
        "planes",
        "window",
    }
)
