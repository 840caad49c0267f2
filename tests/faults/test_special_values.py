"""NaN and infinities in activations reach the gradients as in plain PyTorch."""

import copy

import pytest
import torch
from nets import batch, convnet
from torch import nn

import actzip
from training import gradients


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e-42, 3e38])
def test_a_special_value_in_the_input_gives_plain_gradients(value: float) -> None:
    x, y = batch()
    x[0, 0, 3, 3] = value
    model = convnet()
    plain = gradients(copy.deepcopy(model), lambda m: nn.functional.cross_entropy(m(x), y))
    with actzip.compress(model):
        ours = gradients(model, lambda m: nn.functional.cross_entropy(m(x), y))
    for name in plain:
        assert torch.equal(ours[name].nan_to_num(7.0), plain[name].nan_to_num(7.0))
        assert torch.equal(ours[name].isnan(), plain[name].isnan())


def test_a_grad_scaler_still_sees_an_overflow() -> None:
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = {n: p.clone() for n, p in model.named_parameters()}
    x, y = batch()
    x[0, 0, 0, 0] = float("inf")
    with actzip.compress(model):
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512.0
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), "the step had to be skipped"
