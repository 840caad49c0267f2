"""An exception or Ctrl-C at any moment: the next step equals a fresh run, nothing stays behind."""

from __future__ import annotations

import copy

import pytest
import torch
from nets import convnet, loss_of
from torch import Tensor, nn

import actzip
from actzip.codecs import BitMask, Index, Window
from actzip.codecs.base import Codec
from training import assert_equal, gradients


class Bomb:
    """Makes the n-th call of the codecs' encode or decode raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, error: type[BaseException]):
        self.calls = 0
        self.at = -1
        for kind in (BitMask, Index, Window):
            original = getattr(kind, method)

            def wrapped(  # type: ignore[no-untyped-def]
                codec: Codec, *args, original=original, **kwargs
            ):
                self.calls += 1
                if self.calls == self.at:
                    raise error("boom")
                return original(codec, *args, **kwargs)

            monkeypatch.setattr(kind, method, wrapped)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("method", ["encode", "decode"])
def test_after_an_error_at_any_pack_or_unpack_the_next_step_is_a_fresh_one(
    monkeypatch: pytest.MonkeyPatch, method: str, error: type[BaseException]
) -> None:
    model = convnet()
    loss = loss_of()
    expected = gradients(copy.deepcopy(model), loss)
    bomb = Bomb(monkeypatch, method, error)
    session = actzip.compress(model)
    state = copy.deepcopy(model.state_dict())
    gradients(model, loss)
    total = bomb.calls
    assert total >= 4
    for n in range(1, total + 1):
        model.load_state_dict(state)
        bomb.calls, bomb.at = 0, n
        with pytest.raises(error):
            gradients(model, loss)
        bomb.at = -1
        model.load_state_dict(state)
        assert_equal(gradients(model, loss), expected)
        assert session.live_bytes == 0
    session.remove()


class Interrupted(nn.Module):
    """Raises in the middle of forward, between two ops, when told to."""

    def __init__(self, error: type[BaseException]):
        super().__init__()
        self.body = convnet()
        self.error = error
        self.armed = False

    def forward(self, x: Tensor) -> Tensor:
        h = self.body[:5](x)
        if self.armed:
            raise self.error
        out: Tensor = self.body[5:](h)
        return out


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_an_interrupt_in_forward_leaves_no_trace(error: type[BaseException]) -> None:
    model = Interrupted(error)
    loss = loss_of()
    expected = gradients(copy.deepcopy(model), loss)
    state = copy.deepcopy(model.state_dict())
    session = actzip.compress(model)
    model.armed = True
    with pytest.raises(error):
        gradients(model, loss)
    model.armed = False
    # code outside the model is not touched, whatever the interrupt left on the mode stack
    w = torch.randn(64, 64, requires_grad=True)
    y = torch.relu(w)
    assert y.grad_fn is not None
    assert y.grad_fn._raw_saved_result.unpack_hook is None  # type: ignore[attr-defined]
    model.load_state_dict(state)
    assert_equal(gradients(model, loss), expected)
    assert session.live_bytes == 0
    session.remove()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_removing_after_an_interrupt_clears_the_mode_stack() -> None:
    model = Interrupted(KeyboardInterrupt)
    session = actzip.compress(model)
    model.armed = True
    with pytest.raises(KeyboardInterrupt):
        gradients(model, loss_of())
    session.remove()
    assert torch.overrides._get_current_function_mode() is None
