"""Which place answers for which object."""

from __future__ import annotations

import torch

from actzip.tasks.data import Boxes
from actzip.tasks.fcos_targets import assign, central, corners, sides
from actzip.tasks.models.detector import places


def objects(*rows: tuple[float, float, float, float]) -> Boxes:
    return Boxes(torch.tensor(rows).view(-1, 4), torch.arange(len(rows)))


def test_a_picture_without_objects_asks_no_place() -> None:
    answers = assign(places(32, 32), objects())
    assert (answers.labels == -1).all()
    assert answers.corners.shape == (8 * 8 + 4 * 4 + 2 * 2, 4)


def test_small_objects_belong_to_fine_levels_and_large_ones_to_coarse_levels() -> None:
    where = places(128, 128)
    for side, stride in ((16, 4), (60, 8), (110, 16)):
        answers = assign(where, objects((10, 10, 10 + side, 10 + side)))
        asked = where.strides[answers.labels == 0]
        assert len(asked) > 0
        assert set(asked.tolist()) == {stride}


def test_only_places_inside_and_near_the_middle_answer() -> None:
    where = places(32, 32)
    answers = assign(where, objects((4, 4, 20, 20)))
    points = where.points[answers.labels == 0]
    assert ((points - 12).abs() < 1.5 * 4).all()
    assert len(points) == 4


def test_of_two_objects_the_smaller_one_is_answered_for() -> None:
    where = places(32, 32)
    answers = assign(where, objects((0, 0, 24, 24), (8, 8, 16, 16)))
    at = (where.points == 10).all(1) & (where.strides == 4)
    assert answers.labels[at].tolist() == [1]
    assert answers.corners[at].tolist() == [[8, 8, 16, 16]]


def test_distances_and_corners_undo_each_other() -> None:
    points = torch.rand(20, 2) * 30
    boxes = torch.cat([points - 3, points + torch.rand(20, 2)], dim=1)
    torch.testing.assert_close(corners(points, sides(points, boxes)), boxes)


def test_centerness_is_one_in_the_middle_and_zero_outside() -> None:
    values = central(torch.tensor([[2.0, 2, 2, 2], [1, 2, 4, 2], [-1, 2, 3, 2]]))
    torch.testing.assert_close(values, torch.tensor([1.0, 0.5, 0.0]))
