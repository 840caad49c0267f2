"""Payloads that wait for backward in host memory, while a GPU needs its own for other things."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from actzip.codecs.base import Payload, ours


@dataclass(frozen=True, eq=False)
class Offloaded(Payload):
    """A payload whose bytes are in host memory; its tensor belongs to the device `home`."""

    home: torch.device = field(kw_only=True)


def send(payload: Payload) -> Payload:
    """Its bytes to the host; a payload that is there already stays as it is."""
    home = payload.data.device
    if home.type == "cpu":
        return payload
    offloaded = Offloaded(**{**payload.__getstate__(), "data": payload.data.cpu()}, home=home)
    return ours(offloaded) if payload.made_here else offloaded


def bring(payload: Payload) -> Payload:
    """The same on its own device, to be decoded there."""
    if not isinstance(payload, Offloaded):
        return payload
    kept = {name: value for name, value in payload.__getstate__().items() if name != "home"}
    back = Payload(**{**kept, "data": payload.data.to(payload.home)})
    return ours(back) if payload.made_here else back
