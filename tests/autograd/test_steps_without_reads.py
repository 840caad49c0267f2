"""On a device that is not the CPU, a training step does not make the host wait.

The reference kernels run on CPU tensors here, and stepping.py says that reading is not free: what
they do is then what they would do on a GPU. Passes that look at gradients may read.
"""

from __future__ import annotations

import gc
from collections import Counter

import pytest
import torch
from torch import nn

import actzip
from actzip.autograd.derivation import Derivation, Given
from actzip.autograd.slots.noise import Scales
from actzip.codecs import Group, unsettled
from actzip.kernels import transfers
from stepping import MODELS, like_a_gpu, reads


@pytest.fixture(autouse=True)
def _like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    like_a_gpu(monkeypatch)


#: The first pass is one that looks: it asks whether a factor is a dropout's.
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize(
    ("method", "passes"),
    [("fixed", 3), ("division", 3), ("lossless", 3), ("actnn", 7), ("comet", 9), ("acgc", 17)],
)
def test_no_read_in_an_ordinary_step(model: str, method: str, passes: int) -> None:
    found = reads(model, method, passes)
    # a CPU tensor without a producer may be an array's: its values are compared
    found.pop("autograd/stored.py: holds", None)
    # element after element, if there are differences in maps at all; Triton's kernels do not ask
    found.pop("kernels/reference/bounded_symbols.py: _add_up_in_maps", None)
    assert found == Counter()


#: `auto`: origins of sign-exact codes are options of a codec. What the reference kernels of entropy
#: codes read besides, Triton's do not (kernels/triton/check_steps.py).
_AUTO = {
    "autograd/sign_exact.py",
    "autograd/stored.py",
    "kernels/dithered_layout.py",
    "kernels/dithered_tables.py",
    "kernels/reference/dithered.py",
    "kernels/reference/raw_blocks.py",
}


@pytest.mark.parametrize("model", list(MODELS))
def test_auto_reads_origins_and_in_the_reference_of_entropy_codes_only(model: str) -> None:
    found = reads(model, "auto", 9)
    assert found
    assert {place.partition(":")[0] for place in found} <= _AUTO


def test_statistics_count_what_payloads_take_and_not_the_worst_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stored() -> list[int]:
        torch.manual_seed(0)
        net, x, _y = MODELS["resnet"]()
        with actzip.compress(net, "comet", min_bytes=256) as session:
            for _ in range(2):
                net(x).square().sum().backward()
            rows = session.stats().sites
        return [row.stored_bytes for row in rows if row.codec.startswith("Bounded")]

    late = stored()
    assert late
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: True)
    assert late == stored()


def test_values_are_those_of_a_cpu_whenever_a_word_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net, x, _y = MODELS["resnet"]()
        with actzip.compress(net, "fixed", min_bytes=256):
            x[1] = -float("inf")  # more raw groups than there is room for
            net[0](x).logsumexp((2, 3)).nan_to_num(0.0).sum().backward()
            return [p.grad.clone() for p in net[0].parameters() if p.grad is not None]

    late = gradients()
    monkeypatch.setattr(transfers.Transfer, "arrived", lambda self: True)
    early = gradients()
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: True)
    for a, b, c in zip(late, early, gradients(), strict=True):
        assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
        assert torch.equal(a.nan_to_num(7.0), c.nan_to_num(7.0))


def test_a_bad_payload_gives_its_tensor_before_its_word_has_come() -> None:
    x = torch.randn(8, 1024)
    x[2:5] = float("inf")
    for codec in (Group(2), Group(4, zero=True)):
        payload = codec.encode(x)
        assert torch.equal(codec.decode(payload), x)
        assert payload.doubt is not None
        if codec.zero:
            assert torch.equal(codec.mask(payload), (x != 0).float())


def test_tensors_that_wait_are_let_go_when_their_words_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(1 << 14)
    monkeypatch.setattr(unsettled, "HELD", 4 * x.nbytes)
    payloads = [Group(2).encode(x + i) for i in range(20)]
    waiting = sum(payload.doubt is not None for payload in payloads)
    assert 1 <= waiting <= 5
    del payloads
    gc.collect()
    unsettled.settle()
    assert unsettled._held == 0


def test_a_dropout_is_looked_at_once_in_many_passes() -> None:
    scales, drop = Scales(), (torch.rand(4, 64) > 0.5).float() * 2
    assert scales.of("site", drop) == 2.0
    assert scales.of("site", torch.randn(4, 64)) == 2.0  # as it was when it was looked at
    assert scales.of("other", torch.randn(4, 64)) is None


def test_a_factor_that_is_no_dropout_any_more_is_kept_exactly() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * factor

    net, x = Scaled(), torch.randn(32, 64)
    drop, other = (torch.rand(32, 64) > 0.5).float() * 2, torch.randn(32, 64)
    with actzip.compress(net, "fixed", min_bytes=256):
        net(x, drop).sum().backward()
        net.zero_grad()
        net(x, other).sum().backward()
    assert net.linear.bias.grad is not None
    assert torch.allclose(net.linear.bias.grad, other.sum(0), atol=1e-5)


def test_what_cannot_be_made_again_is_kept_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient(method: str | None) -> torch.Tensor:
        torch.manual_seed(0)
        first, second = nn.Linear(64, 64), nn.Linear(64, 64)
        net, x = nn.Sequential(first, nn.GELU(), second), torch.randn(32, 64)
        if method is None:
            net(x).square().sum().backward()
        else:
            with actzip.compress(net, method, min_bytes=256) as session:
                net(x).square().sum().backward()
                assert session.stats().stored_bytes
        assert second.weight.grad is not None
        return second.weight.grad

    calls = []
    make = Derivation._make

    def wrong(self: Derivation, given: Given | None) -> torch.Tensor:
        calls.append(1)
        return make(self, given) + 1.0

    expected = gradient(None)
    monkeypatch.setattr(Derivation, "_make", wrong)
    assert torch.equal(gradient("lossless"), expected)
    assert calls


def test_a_tensor_that_did_not_fit_and_was_edited_fails_as_it_does_without_us() -> None:
    """Never a gradient of other values: PyTorch refuses such a graph, and so do we."""

    def step(edited: bool) -> None:
        torch.manual_seed(0)
        net, x = nn.Linear(64, 64), torch.randn(32, 64)
        x[4:20] = float("inf")  # more raw groups than there is room for
        with actzip.compress(net, "fixed", min_bytes=256) as session:
            loss = net(x).nan_to_num(0.0).sum()
            if edited:
                x.zero_()
            else:
                assert session.stats().compressed  # asks the device
            loss.backward()

    step(edited=False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(edited=True)


def test_what_is_kept_instead_of_a_derivation_is_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = Derivation._make
    monkeypatch.setattr(Derivation, "_make", lambda self, given: make(self, given) + 1.0)

    def gradient(edits: bool) -> torch.Tensor:
        torch.manual_seed(0)
        first, second = nn.Linear(64, 64), nn.Linear(64, 64)
        x = torch.randn(32, 64)
        with actzip.compress(method="lossless", min_bytes=256):
            y = torch.nn.functional.gelu(first(x))
            loss = second(y).square().sum()
            unsettled.settle()
            if edits:
                with torch.no_grad():
                    y.zero_()
        loss.backward()
        assert second.weight.grad is not None
        return second.weight.grad

    assert torch.equal(gradient(True), gradient(False))
