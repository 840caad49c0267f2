"""Noise that travels: what an error of a gradient on its way does to the layers below."""

from __future__ import annotations

from collections.abc import Mapping

from actzip.control.reading import Reading


def absorbed(r: Reading) -> float:
    """E‖Δg‖² of a site's parameters when the gradient that comes to its op has relative noise 1.

    Noise of relative power ρ in a gradient acts as noise of relative power ρ in the op's input
    would: it adds ρ·Σ w·mean(x²). A model, exact for noise that is spread like the gradient and
    independent from element to element.
    """
    dense = float(r.parameter.sum()) / max(1 - float(r.zeros), 1e-6)
    return dense * float(r.power)


def travels(readings: Mapping[str, Reading]) -> dict[str, float]:
    """What a travelling error of ‖Δg‖² = 1 at each site adds to the parameters' gradients below.

    That is `absorbed` of all sites that forward met before (a branch beside the path is counted
    as well), and once itself: a bias or a position embedding below sums the gradient as it is.
    """
    below, found = 0.0, {}
    for name, r in readings.items():
        signal = float(r.input_signal)
        found[name] = 1 + below / signal if signal > 0 else 0.0
        below += absorbed(r)
    return found
