"""deepcopy, pickle, state_dict: the copy trains its own weights; keys are unchanged."""

import copy
import io
import pickle

import torch
from nets import convnet, loss_of

import actzip
from training import assert_equal, gradients


def test_a_deepcopy_trains_its_own_weights_and_is_not_attached() -> None:
    model = convnet()
    with actzip.compress(model) as session:
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for p in twin.parameters():
                p.mul_(0.5)
        expected = gradients(copy.deepcopy(twin), loss_of())
        before = session.step
        assert_equal(gradients(twin, loss_of()), expected)
        assert session.step == before
        other = actzip.compress(twin)
        assert_equal(gradients(twin, loss_of()), expected)
        assert other.step == 1
        other.remove()


def test_an_attached_model_pickles_and_the_copy_runs() -> None:
    model = convnet()
    expected = gradients(copy.deepcopy(model), loss_of())
    with actzip.compress(model):
        twin = pickle.loads(pickle.dumps(model))
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
    assert_equal(gradients(twin, loss_of()), expected)
    assert_equal(gradients(loaded, loss_of()), expected)


def test_state_dict_keys_are_unchanged() -> None:
    model = convnet()
    keys = list(model.state_dict())
    with actzip.compress(model):
        gradients(model, loss_of())
        assert list(model.state_dict()) == keys
