"""mypy holds the modules of every backend against forms.py here; nothing of this is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actzip.kernels import forms
    from actzip.kernels.native import bounded as native_bounded
    from actzip.kernels.native import bounded_entropy as native_bounded_entropy
    from actzip.kernels.native import dithered as native_dithered
    from actzip.kernels.native import dual as native_dual
    from actzip.kernels.native import entropy as native_entropy
    from actzip.kernels.native import fixedpoint as native_fixedpoint
    from actzip.kernels.native import group as native_group
    from actzip.kernels.native import index as native_index
    from actzip.kernels.native import mask as native_mask
    from actzip.kernels.native import planes as native_planes
    from actzip.kernels.native import window as native_window
    from actzip.kernels.reference import bounded as reference_bounded
    from actzip.kernels.reference import bounded_entropy as reference_bounded_entropy
    from actzip.kernels.reference import cast as reference_cast
    from actzip.kernels.reference import dithered as reference_dithered
    from actzip.kernels.reference import dual as reference_dual
    from actzip.kernels.reference import entropy as reference_entropy
    from actzip.kernels.reference import fixedpoint as reference_fixedpoint
    from actzip.kernels.reference import group as reference_group
    from actzip.kernels.reference import index as reference_index
    from actzip.kernels.reference import mask as reference_mask
    from actzip.kernels.reference import planes as reference_planes
    from actzip.kernels.reference import window as reference_window
    from actzip.kernels.triton import bounded as triton_bounded
    from actzip.kernels.triton import cast as triton_cast
    from actzip.kernels.triton import dual as triton_dual
    from actzip.kernels.triton import entropy as triton_entropy
    from actzip.kernels.triton import fixedpoint as triton_fixedpoint
    from actzip.kernels.triton import group as triton_group
    from actzip.kernels.triton import index as triton_index
    from actzip.kernels.triton import mask as triton_mask
    from actzip.kernels.triton import planes as triton_planes
    from actzip.kernels.triton import window as triton_window

    group: list[forms.GroupForm] = [native_group, reference_group, triton_group]
    dual: list[forms.DualForm] = [native_dual, reference_dual, triton_dual]
    mask: list[forms.MaskForm] = [native_mask, reference_mask, triton_mask]
    index: list[forms.IndexForm] = [native_index, reference_index, triton_index]
    window: list[forms.WindowForm] = [native_window, reference_window, triton_window]
    cast: list[forms.CastForm] = [reference_cast, triton_cast]
    planes: list[forms.PlanesForm] = [native_planes, reference_planes, triton_planes]
    fixedpoint: list[forms.FixedPointForm] = [
        native_fixedpoint,
        reference_fixedpoint,
        triton_fixedpoint,
    ]
    bounded: list[forms.BoundedForm] = [native_bounded, reference_bounded, triton_bounded]
    bounded_entropy: list[forms.BoundedEntropyForm] = [
        native_bounded_entropy,
        reference_bounded_entropy,
    ]
    dithered: list[forms.DitheredForm] = [native_dithered, reference_dithered]
    entropy: list[forms.EntropyForm] = [native_entropy, reference_entropy, triton_entropy]
