"""Losses and metrics of the tasks, against cases worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from actzip.tasks.catalogue import TASKS
from actzip.tasks.data import Boxes
from actzip.tasks.data.contract import IGNORE
from actzip.tasks.detect import decode, detection_loss, focal
from actzip.tasks.models.detector import Prediction, places
from actzip.tasks.segment import count, scores


class Says(nn.Module):
    """A model that answers the same, whatever it is asked."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.answer


@pytest.mark.parametrize("task", ["classify", "text"])
def test_top1_counts_all_batches_by_their_size(task: str) -> None:
    class Echo(nn.Module):
        def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
            return torch.eye(3)[x[:, 0]]

    batches = [
        (torch.tensor([[0], [1], [2], [0]]), torch.tensor([0, 1, 2, 1])),
        (torch.tensor([[2]]), torch.tensor([0])),
    ]
    assert TASKS[task].evaluate(Echo(), batches, 3) == {"top1": 3 / 5}


def test_text_masks_padding() -> None:
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
            seen.append(keep)
            return torch.zeros(len(ids), 2)

    TASKS["text"].loss(Spy(), torch.tensor([[5, 3, 0, 0]]), torch.tensor([1]))
    assert seen[0].tolist() == [[True, True, False, False]]


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity() -> None:
    batches = [(torch.zeros(2, 5).long(), torch.randint(7, (2, 5)))]
    found = TASKS["lm"].evaluate(Says(torch.zeros(2, 5, 7)), batches, 0)
    assert found["perplexity"] == pytest.approx(7)
    assert found["bits"] == pytest.approx(math.log2(7))


def test_miou_of_a_confusion_worked_out_by_hand() -> None:
    truth = torch.tensor([[0, 0, 1, 1], [1, 1, IGNORE, 0]])
    said = torch.tensor([[0, 1, 1, 1], [1, 0, 2, 0]])
    confusion = count(said, truth, 3)
    assert confusion.tolist() == [[2, 1, 0], [1, 3, 0], [0, 0, 0]]
    found = scores(confusion)
    assert found["miou"] == pytest.approx((2 / 4 + 3 / 5) / 2)  # class 2 is nowhere
    assert found["pixels"] == pytest.approx(5 / 7)


def test_segment_evaluates_logits_and_ignores_unlabelled_pixels() -> None:
    logits = torch.zeros(1, 2, 2, 2)
    logits[0, 1] = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    truth = torch.tensor([[[1, 0], [1, IGNORE]]])
    assert TASKS["segment"].evaluate(Says(logits), [(logits, truth)], 2)["miou"] == 1.0
    with pytest.raises(ValueError, match="at least one labelled pixel"):
        TASKS["segment"].evaluate(Says(logits), [(logits, truth * 0 + IGNORE)], 2)


SCENE = [Boxes(torch.tensor([[4.0, 4.0, 20.0, 20.0]]), torch.tensor([1]))]


def perfect(sure: float) -> Prediction:
    """What a detector that knows SCENE would say about 32×32 pixels."""
    where = places(32, 32)
    near = ((where.points - 12).abs().amax(1) < 6) & (where.strides == 4)
    logits = torch.full((1, len(near), 2), -sure)
    logits[0, near, 1] = sure
    distances = torch.full((1, len(near), 4), 8.0)
    shift = where.points[near] - 12
    distances[0, near] = torch.cat([8 + shift, 8 - shift], 1)
    centerness = torch.full((1, len(near)), -sure)
    centerness[0, near] = sure
    return Prediction(logits, distances, centerness)


def test_a_perfect_prediction_is_decoded_to_the_object_and_costs_little() -> None:
    (found,) = decode(perfect(10.0), places(32, 32))
    assert found.labels.tolist() == [1]
    torch.testing.assert_close(found.corners, SCENE[0].corners)
    assert found.scores[0] > 0.99
    right = detection_loss(perfect(10.0), places(32, 32), SCENE)
    wrong = detection_loss(perfect(-10.0), places(32, 32), SCENE)
    assert 0 < right < 10 < wrong  # the target of centerness is below one beside the middle


def test_a_picture_without_objects_costs_only_what_is_said_wrongly() -> None:
    none = [Boxes(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))]
    quiet = Prediction(torch.full((1, 84, 2), -20.0), torch.ones(1, 84, 4), torch.zeros(1, 84))
    assert detection_loss(quiet, places(32, 32), none).item() == pytest.approx(0, abs=1e-6)
    assert detection_loss(perfect(10.0), places(32, 32), none) > 10


def test_focal_loss_is_the_published_formula() -> None:
    logits, wanted = torch.tensor([0.3, -1.2]), torch.tensor([1.0, 0.0])
    p, q = torch.sigmoid(logits).tolist()
    expected = -0.25 * (1 - p) ** 2 * math.log(p) - 0.75 * q**2 * math.log(1 - q)
    assert focal(logits, wanted).item() == pytest.approx(expected, rel=1e-5)


def test_a_unet_for_pictures_of_an_odd_side_is_refused_when_built() -> None:
    from tiny_data import tiny

    with pytest.raises(ValueError, match="multiple of 64, tiny has 32"):
        TASKS["segment"].build("unet", tiny("segment"), {"levels": 6})
