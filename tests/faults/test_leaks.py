"""Payload bytes return to zero after backward and after a dropped graph, over 1000 steps."""

import gc

import torch
from nets import batch
from torch import nn

import actzip


def _model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.LeakyReLU(), nn.Dropout(0.5)
    )


def test_a_thousand_steps_leave_nothing_behind() -> None:
    model, (x, _) = _model(), batch()
    gc.disable()  # nothing may depend on the cycle collector
    try:
        with actzip.compress(model) as session:
            for step in range(1000):
                y = model(x)
                assert session.live_bytes > 0
                if step % 2:
                    y.sum().backward()
                del y
                assert session.live_bytes == 0, f"step {step}"
    finally:
        gc.enable()


def test_tensors_die_with_the_step_without_the_cycle_collector() -> None:
    model, (x, _) = _model(), batch()

    def live() -> int:
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    with actzip.compress(model):
        model(x).sum().backward()
        model.zero_grad()
        gc.collect()
        gc.disable()
        try:
            before = live()
            for _ in range(20):
                model(x).sum().backward()
                model.zero_grad()
            assert live() <= before
        finally:
            gc.enable()


def test_a_model_with_a_session_dies_when_dropped() -> None:
    import weakref

    model = _model()
    session = actzip.compress(model)
    model(batch()[0]).sum().backward()
    ref = weakref.ref(model)
    session.remove()
    del model
    assert ref() is None
    assert "removed" in repr(session) or "NoneType" in repr(session)


def test_a_training_loop_inside_one_context_does_not_grow() -> None:
    model, (x, _) = _model(), batch()
    with actzip.compress() as session:
        for _ in range(30):
            model(x).sum().backward()
            assert session.live_bytes == 0
            assert len(session.stats().sites) < 20
        assert session.step >= 30
