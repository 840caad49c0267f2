"""Average precision: cases worked out by hand, and equal to pycocotools."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
import torch

from actzip.tasks.coco_map import Detections, mean_average_precision
from actzip.tasks.data import Boxes

A, B = (0.0, 0.0, 10.0, 10.0), (20.0, 20.0, 30.0, 30.0)


def truth(*rows: tuple[float, ...], labels: tuple[int, ...] | None = None) -> Boxes:
    kinds = labels or (0,) * len(rows)
    return Boxes(torch.tensor(rows).view(-1, 4), torch.tensor(kinds, dtype=torch.int64))


def found(
    *rows: tuple[float, ...], scores: tuple[float, ...], labels: tuple[int, ...] | None = None
) -> Detections:
    boxes = truth(*rows, labels=labels)
    return Detections(boxes.corners, boxes.labels, torch.tensor(scores))


def test_all_found_exactly_is_one() -> None:
    scores = mean_average_precision([found(A, B, scores=(0.9, 0.8))], [truth(A, B)], 1)
    assert scores == {"map50": 1.0, "map": 1.0}


def test_nothing_found_is_zero() -> None:
    scores = mean_average_precision([found(scores=())], [truth(A)], 1)
    assert scores == {"map50": 0.0, "map": 0.0}


def test_half_of_the_objects_gives_the_recalls_up_to_one_half() -> None:
    scores = mean_average_precision([found(A, scores=(0.9,))], [truth(A, B)], 1)
    assert scores["map50"] == pytest.approx(51 / 101)


def test_a_better_wrong_box_halves_the_precision_of_the_right_one() -> None:
    scores = mean_average_precision([found(B, A, scores=(0.9, 0.8))], [truth(A)], 1)
    assert scores["map50"] == pytest.approx(0.5)


def test_an_object_is_claimed_once() -> None:
    scores = mean_average_precision([found(A, A, B, scores=(0.9, 0.8, 0.7))], [truth(A, B)], 1)
    assert scores["map50"] == pytest.approx((51 + 50 * 2 / 3) / 101)


def test_an_overlap_of_three_quarters_counts_up_to_that_threshold() -> None:
    narrow = (0.0, 0.0, 7.6, 10.0)
    scores = mean_average_precision([found(narrow, scores=(0.9,))], [truth(A)], 1)
    assert scores == pytest.approx({"map50": 1.0, "map": 0.6})


def test_classes_that_do_not_occur_take_no_part() -> None:
    seen = found(A, B, scores=(0.9, 0.8), labels=(0, 2))
    scores = mean_average_precision([seen], [truth(A, labels=(0,))], 3)
    assert scores["map50"] == 1.0


def test_a_test_set_without_objects_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one object"):
        mean_average_precision([found(scores=())], [truth()], 1)


def noisy(seed: int, pictures: int = 12) -> tuple[list[Detections], list[Boxes]]:
    """Objects, and detections that are shifted, doubled, mislabelled or invented."""
    rng = np.random.default_rng(seed)
    seen, there = [], []
    for _ in range(pictures):
        count = int(rng.integers(0, 6))
        corner = rng.uniform(0, 60, (count, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(8, 40, (count, 2))], 1)
        labels = rng.integers(0, 3, count)
        copies = np.repeat(np.arange(count), rng.integers(0, 3, count))
        moved = boxes[copies] + rng.normal(0, 2.5, (len(copies), 4))
        kinds = np.where(rng.random(len(copies)) < 0.2, rng.integers(0, 3), labels[copies])
        stray = rng.uniform(0, 60, (3, 2))
        moved = np.concatenate([moved, np.concatenate([stray, stray + 15], 1)])
        kinds = np.concatenate([kinds, rng.integers(0, 3, 3)])
        # few different scores: ties must be broken alike
        scores = rng.integers(1, 20, len(kinds)) / 20
        there.append(Boxes(torch.tensor(boxes).view(-1, 4), torch.tensor(labels)))
        seen.append(Detections(torch.tensor(moved), torch.tensor(kinds), torch.tensor(scores)))
    return seen, there


def coco(seen: list[Detections], there: list[Boxes]) -> dict[str, float]:
    """The same by pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def rows(corners: torch.Tensor, labels: torch.Tensor, picture: int) -> list[dict[str, object]]:
        size = corners[:, 2:] - corners[:, :2]
        boxes = torch.cat([corners[:, :2], size], 1).tolist()
        return [
            {"image_id": picture, "category_id": label + 1, "bbox": box, "iscrowd": 0}
            for box, label in zip(boxes, labels.tolist(), strict=True)
        ]

    real: list[dict[str, object]] = []
    said: list[dict[str, object]] = []
    for picture, (each, boxes) in enumerate(zip(seen, there, strict=True), start=1):
        real += rows(boxes.corners, boxes.labels, picture)
        scores = each.scores.tolist()
        made = rows(each.corners, each.labels, picture)
        said += [{**row, "score": score} for row, score in zip(made, scores, strict=True)]
    for number, row in enumerate(real, start=1):
        width, height = row["bbox"][2:]  # type: ignore[index]
        row.update(id=number, area=width * height)
    with contextlib.redirect_stdout(io.StringIO()):
        reference = COCO()
        reference.dataset = {
            "images": [{"id": number} for number in range(1, len(there) + 1)],
            "categories": [{"id": number} for number in (1, 2, 3)],
            "annotations": real,
            "info": {},
        }
        reference.createIndex()
        judged = COCOeval(reference, reference.loadRes(said), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return {"map": float(judged.stats[0]), "map50": float(judged.stats[1])}


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_pycocotools_counts(seed: int) -> None:
    pytest.importorskip("pycocotools")
    seen, there = noisy(seed)
    assert mean_average_precision(seen, there, 3) == pytest.approx(coco(seen, there), abs=1e-9)
