"""Codecs and methods from outside: registered, or found by the entry points of a package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip import entry_points
from actzip.codecs import registry
from actzip.codecs.serial import from_bytes, to_bytes


@dataclass(frozen=True)
class Halved(actzip.codecs.Keep):
    """Every value comes back as its half; for this test only."""

    exact = False

    def _decode(self, payload: Any, out: Tensor) -> None:
        super()._decode(payload, out)
        out.mul_(0.5)


@dataclass(frozen=True)
class Halves(actzip.Method):
    """Stores linear tensors with Halved."""

    also: bool = False

    def start(self, optimizer: torch.optim.Optimizer | None) -> actzip.Policy:
        return _Policy()


class _Policy(actzip.Policy):
    def codec(self, site: actzip.Site, tensor: Tensor) -> actzip.codecs.Codec | None:
        return Halved() if site.role is actzip.Role.LINEAR else None


@pytest.fixture(autouse=True)
def _registries_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    monkeypatch.setattr("actzip.methods.METHODS", dict(actzip.methods.METHODS))


def _gradient(method: str, **options: object) -> Tensor:
    torch.manual_seed(0)
    model, x = nn.Linear(64, 64, bias=False), torch.randn(64, 64)
    with actzip.compress(model, method, **options):
        model(x).sum().backward()
    assert model.weight.grad is not None
    return model.weight.grad


def test_a_registered_method_is_known_by_its_name_and_its_options() -> None:
    actzip.register_codec(Halved)
    actzip.register_method("halves", Halves)
    assert torch.equal(_gradient("halves", also=True), _gradient("lossless") / 2)
    with pytest.raises(ValueError, match="'halves' has no option bits; it takes also"):
        actzip.compress(nn.Linear(2, 2), "halves", bits=2)


def test_a_registered_codec_is_found_by_the_name_in_its_bytes() -> None:
    actzip.register_codec(Halved)
    x = torch.randn(100)
    payload = from_bytes(to_bytes(Halved().encode(x)))
    assert torch.equal(payload.codec.decode(payload), x / 2)


def test_packages_are_asked_for_names_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(group: str, name: str) -> list[EntryPoint]:
        offered = {("actzip.methods", "halves"): "Halves", ("actzip.codecs", "Halved"): "Halved"}
        found = offered.get((group, name))
        return [] if found is None else [EntryPoint(name, f"{__name__}:{found}", group)]

    data = bytes(to_bytes(actzip.register_codec(Halved)().encode(torch.ones(4))))
    registry._REGISTERED.pop("Halved")
    monkeypatch.setattr(entry_points, "entry_points", points)
    assert torch.equal(_gradient("halves"), _gradient("lossless") / 2)
    payload = from_bytes(data)
    assert type(payload.codec) is Halved


@pytest.mark.parametrize(
    ("name", "method", "error", "says"),
    [
        ("two words", Halves, ValueError, "one word"),
        ("actnn", Halves, ValueError, "'actnn' is ActNN, a method of actzip"),
        ("mine", Halved, TypeError, "inherits from actzip.Method"),
    ],
)
def test_a_wrong_method_is_refused_with_what_to_do(
    name: str, method: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        actzip.register_method(name, method)


def test_a_wrong_codec_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="takes a subclass of"):
        actzip.register_codec(Halves)  # type: ignore[type-var]
    other = dataclass(frozen=True)(type("Keep", (actzip.codecs.Keep,), {"__module__": "other"}))
    with pytest.raises(ValueError, match="a codec Keep is there already"):
        actzip.register_codec(other)


def test_every_public_name_is_documented() -> None:
    for name in actzip.__all__:
        assert (getattr(actzip, name).__doc__ or "").strip(), f"actzip.{name} has no docstring"
