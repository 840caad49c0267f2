"""An error of ours in a user's step: that tensor stays as it is, one warning, the step goes on."""

from __future__ import annotations

import copy

import pytest
import torch
from nets import convnet, loss_of
from torch import Tensor

import actzip
from actzip.autograd import decide, forward_pass, tensor_store
from actzip.autograd.observe import Observer
from actzip.codecs import BitMask
from actzip.methods import ActNN
from training import assert_equal, gradients


@pytest.fixture(autouse=True)
def _as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTZIP_DEBUG")


def _fail(*_: object, **__: object) -> object:
    raise KeyError("a defect")


PLACES = {
    "a node is visited": (forward_pass.ForwardPass, "_look"),
    "a tensor is decided on": (decide.Decide, "__call__"),
    "a tensor is kept": (tensor_store.TensorStore, "keep"),
    "bytes are counted": (tensor_store.TensorStore, "count"),
    "bits are made": (BitMask, "encode"),
    "a ReLU's bits are due": (tensor_store.TensorStore, "settle"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_step_goes_on_with_plain_gradients_and_one_warning(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, loss = convnet(), loss_of()
    expected = gradients(copy.deepcopy(model), loss)
    owner, name = PLACES[place]
    monkeypatch.setattr(owner, name, _fail)
    with actzip.compress(model) as session:
        state = copy.deepcopy(model.state_dict())
        with pytest.warns(actzip.ActzipWarning) as said:
            ours = gradients(model, loss)
        assert sum(str(w.message).startswith("actzip failed") for w in said) == 1
        assert_equal(ours, expected)
        model.load_state_dict(state)
        assert_equal(gradients(model, loss), expected)  # a second warning would fail the test
        stats = session.stats()
    if place == "a tensor is kept":
        assert all("a defect" in row.reason for row in stats.sites)
        assert stats.stored_bytes == stats.raw_bytes


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize(
    ("owner", "name"), [(ActNN, "start"), (Observer, "watch"), (Observer, "_add")]
)
def test_a_method_that_fails_does_not_end_the_run(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, loss = convnet(), loss_of()
    if name == "start":
        policy = type(ActNN(bits=2).start(None))
        monkeypatch.setattr(policy, "begin", _fail)
        monkeypatch.setattr(policy, "codec", _fail)
    else:
        monkeypatch.setattr(owner, name, _fail)
    with actzip.compress(model, "actnn", bits=8):
        for _ in range(2):
            found = gradients(model, loss)
    assert all(torch.isfinite(g).all() for g in found.values())


def test_with_the_switch_errors_are_raised_where_they_happen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACTZIP_DEBUG", "1")
    monkeypatch.setattr(tensor_store.TensorStore, "keep", _fail)
    model, loss = convnet(), loss_of()
    with actzip.compress(model), pytest.raises(KeyError, match="a defect"):
        gradients(model, loss)


class Odd(Tensor):
    """A tensor of the user's whose questions raise."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_subclass_of_the_users_goes_through() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    with actzip.compress(min_bytes=0):
        y = x.as_subclass(Odd).clone().exp().sum()
    y.backward()
    assert x.grad is not None
    assert torch.equal(x.grad, x.detach().exp())
