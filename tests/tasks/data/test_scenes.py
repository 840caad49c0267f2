"""Composed scenes: always the same, boxes and labels where the objects are, splits apart."""

from __future__ import annotations

import pytest
import torch

from actzip.tasks.data import Boxes, Data, dense, load
from actzip.tasks.data.compose import Composed
from actzip.tasks.data.dense import Detection, Segmentation
from actzip.tasks.data.pictures import Scale


def squares(count: int = 40, **other: int) -> Composed:
    """Scenes of full squares; the object with label i has brightness 100 + 50 i."""
    objects = torch.full((3, 1, 8, 8), 0, dtype=torch.uint8)
    for label in range(3):
        objects[label] = 100 + 50 * label
    fields = {"side": 48, "seed": 0, "part": 0, "visible": 24, **other}
    return Composed(objects, torch.arange(3), count, **fields)


def test_a_scene_is_always_the_same_and_depends_on_seed_part_and_number() -> None:
    first, again = squares()[7], squares(count=8)[7]
    assert torch.equal(first.picture, again.picture)
    assert first.boxes is not None
    assert again.boxes is not None
    assert torch.equal(first.boxes.corners, again.boxes.corners)
    for other in (squares()[8], squares(seed=1)[7], squares(part=1)[7]):
        assert not torch.equal(first.picture, other.picture)


def test_boxes_and_labels_agree() -> None:
    seen = set()
    for index in range(40):
        scene = squares()[index]
        assert scene.boxes is not None
        assert scene.labels is not None
        assert scene.picture.shape == (3, 48, 48)
        assert scene.picture.dtype == torch.uint8
        covered = torch.zeros(48, 48, dtype=torch.bool)
        # the last object hides the others: its box is full of its label
        for corners, label in zip(scene.boxes.corners.long(), scene.boxes.labels, strict=True):
            left, top, right, bottom = corners.tolist()
            assert 0 <= left < right <= 48
            assert 0 <= top < bottom <= 48
            area = scene.labels[top:bottom, left:right]
            assert (area == label + 1).float().mean().item() > 0.2
            covered[top:bottom, left:right] = True
            seen.add(int(label))
        assert bool((area == label + 1).all())
        assert torch.equal(scene.labels > 0, covered)
        assert len(scene.boxes.labels) >= 1
    assert seen == {0, 1, 2}


def test_two_boxes_share_at_most_a_quarter_of_the_smaller() -> None:
    for index in range(40):
        boxes = squares()[index].boxes
        assert boxes is not None
        corners = boxes.corners
        area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
        for i in range(len(corners)):
            for j in range(i):
                common = (
                    torch.minimum(corners[i, 2:], corners[j, 2:])
                    - torch.maximum(corners[i, :2], corners[j, :2])
                ).clamp(min=0)
                assert (common.prod() / torch.minimum(area[i], area[j])).item() <= 0.25


def test_a_number_beyond_the_last_scene_is_an_error() -> None:
    with pytest.raises(IndexError, match="scene 40 of 40"):
        squares()[40]


@pytest.fixture(scope="module")
def detect() -> Data:
    return load("digit-scenes", "detect", limit=12)


@pytest.fixture(scope="module")
def segment() -> Data:
    return load("digit-scenes", "segment", limit=12)


def test_digit_scenes_need_no_network_and_serve_both_tasks(detect: Data, segment: Data) -> None:
    at = torch.tensor([3, 0, 11])
    x, boxes = detect.train.batch(at)
    same, labels = segment.train.batch(at)
    assert x.shape == (3, 3, 96, 96)
    assert x.dtype == torch.float32
    assert torch.equal(x, same)
    assert labels.shape == (3, 96, 96)
    assert labels.dtype == torch.int64
    assert detect.classes == tuple("0123456789")
    assert segment.classes == ("background", *"0123456789")
    assert isinstance(boxes[0], Boxes)
    assert boxes[0].corners.dtype == torch.float32
    assert boxes[0].labels.dtype == torch.int64
    for found, pixels in zip(boxes, labels, strict=True):
        assert set(pixels.unique().tolist()) <= {0, *(found.labels + 1).tolist()}
    assert (len(detect.train), len(detect.test)) == (12, 12)


def test_test_scenes_are_made_of_test_pictures(detect: Data) -> None:
    assert isinstance(detect.train, Detection)
    assert isinstance(detect.test, Detection)
    train, test = detect.train.scenes, detect.test.scenes
    assert isinstance(train, Composed)
    assert isinstance(test, Composed)
    assert (len(train.objects), len(test.objects)) == (1437, 360)
    assert (train.part, test.part) == (0, 1)


def test_scenes_follow_the_side() -> None:
    data = load("digit-scenes", "segment", side=64, limit=2)
    assert data.side == 64
    assert data.test.batch(torch.tensor([1]))[1].shape == (1, 64, 64)


def test_mirrored_scenes_take_their_boxes_and_labels_along() -> None:
    scenes = squares()
    scale = dense.measure(scenes, 8)
    at = torch.arange(32)
    x, boxes = Detection(scenes, scale, True).batch(at)
    turned, turned_boxes = Detection(scenes, scale, True).batch(
        at, torch.Generator().manual_seed(0)
    )
    _, labels = Segmentation(scenes, scale, True).batch(at)
    same, turned_labels = Segmentation(scenes, scale, True).batch(
        at, torch.Generator().manual_seed(0)
    )
    assert torch.equal(turned, same)
    mirrored = 0
    for i in range(32):
        if torch.equal(turned[i], x[i]):
            assert torch.equal(turned_boxes[i].corners, boxes[i].corners)
            assert torch.equal(turned_labels[i], labels[i])
            continue
        mirrored += 1
        assert torch.equal(turned[i], x[i].flip(-1))
        assert torch.equal(turned_labels[i], labels[i].flip(-1))
        left, top, right, bottom = boxes[i].corners.unbind(1)
        expected = torch.stack([48 - right, top, 48 - left, bottom], 1)
        assert torch.equal(turned_boxes[i].corners, expected)
        assert torch.equal(turned_boxes[i].labels, boxes[i].labels)
    assert 0 < mirrored < 32


def test_the_scale_is_of_the_training_scenes(detect: Data) -> None:
    assert isinstance(detect.train, Detection)
    pictures = torch.stack([detect.train.scenes[i].picture for i in range(12)])
    assert torch.equal(detect.train.scale.mean, Scale.of(pictures).mean)


def test_an_object_too_dark_to_see_is_left_out() -> None:
    dark = torch.full((1, 1, 8, 8), 20, dtype=torch.uint8)
    scene = Composed(dark, torch.zeros(1, dtype=torch.int64), 1, 48, 0, 0, visible=24)[0]
    assert scene.boxes is not None
    assert scene.labels is not None
    assert scene.boxes.corners.shape == (0, 4)
    assert int(scene.labels.max()) == 0
