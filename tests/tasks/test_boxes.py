"""Overlap of boxes and which to keep, against cases worked out by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actzip.tasks.boxes import area, giou, iou, suppress


def boxes(*rows: tuple[float, float, float, float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def test_area_of_boxes_and_of_an_inverted_one() -> None:
    assert area(boxes((0, 0, 2, 3), (5, 5, 4, 9))).tolist() == [6, 0]


def test_iou_of_all_pairs() -> None:
    a = boxes((0, 0, 2, 2), (0, 0, 4, 4))
    b = boxes((0, 0, 2, 2), (1, 1, 3, 3), (8, 8, 9, 9))
    expected = torch.tensor([[1, 1 / 7, 0], [4 / 16, 4 / 16, 0]])
    torch.testing.assert_close(iou(a, b), expected)


def test_giou_of_apart_boxes_falls_with_their_distance() -> None:
    a, near, far = boxes((0, 0, 1, 1)), boxes((2, 0, 3, 1)), boxes((9, 0, 10, 1))
    assert giou(a, near).item() == pytest.approx(0 - (3 - 2) / 3)
    assert giou(a, far).item() == pytest.approx(0 - (10 - 2) / 10)
    assert giou(a, a).item() == 1


@given(st.lists(st.tuples(*[st.integers(0, 20)] * 4), min_size=1, max_size=12))
def test_what_is_kept_is_apart_and_what_is_dropped_overlaps_a_better_one(
    rows: list[tuple[int, int, int, int]],
) -> None:
    made = boxes(*((x, y, x + w + 1, y + h + 1) for x, y, w, h in rows))
    scores = torch.linspace(1, 0.1, len(rows))
    labels = torch.arange(len(rows)) % 2
    kept = suppress(made, scores, labels, 0.5).tolist()
    overlaps = iou(made, made)
    assert kept == sorted(kept)  # scores fall with the index
    for index in range(len(rows)):
        rivals = [k for k in kept if k < index and labels[k] == labels[index]]
        assert (index in kept) == all(overlaps[index, k] <= 0.5 for k in rivals)


def test_no_box_at_all_keeps_none() -> None:
    none = torch.zeros(0)
    assert suppress(none.view(0, 4), none, none.long(), 0.5).tolist() == []
