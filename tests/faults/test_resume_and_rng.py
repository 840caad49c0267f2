"""A resumed run goes on bit for bit; the user's random streams are never read or moved."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch
from nets import convnet, loss_of
from torch import Tensor

import actzip
from training import assert_equal, gradients


def _steps(model: torch.nn.Module, session: actzip.Session, first: int, last: int) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    history: list[dict[str, Tensor]] = []
    states = []
    for step in range(first, last):
        states.append((copy.deepcopy(model.state_dict()), session.state_dict()))
        history.append(gradients(model, loss_of(step), seed=step))
        optimizer.step()
    return history, states


def test_twenty_steps_resumed_at_each_point_are_bit_equal() -> None:
    method = actzip.Fixed()
    model = convnet()
    with actzip.compress(model, method=method, seed=3) as session:
        history, states = _steps(model, session, 0, 20)
    for point in range(20):
        weights, state = states[point]
        resumed = convnet()
        resumed.load_state_dict(weights)
        with actzip.compress(resumed, method=method, seed=99) as session:
            session.load_state_dict(state)
            again, _ = _steps(resumed, session, point, min(point + 2, 20))
        for mine, theirs in zip(again, history[point:], strict=False):
            assert_equal(mine, theirs)


def test_the_random_streams_of_the_user_are_untouched() -> None:
    def streams() -> tuple[bytes, Any, Any]:
        return torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1]

    model = convnet(dropout=0.0)
    with actzip.compress(model, method=actzip.Fixed()):
        before = streams()
        loss_of()(model).backward()
        after = streams()
    assert before[:2] == after[:2]
    assert np.array_equal(before[2], after[2])
