"""Looks: what successive passes say together."""

from __future__ import annotations

import pytest

from actzip.control.looks import Looks


def test_a_batch_without_a_gradient_does_not_outweigh_the_others() -> None:
    """V of 1 in each, ‖g‖² of 2, 2, 2 and 2e-4: of the mean ‖g‖² V is two thirds."""
    looks = Looks(4)
    for step, size in enumerate((2.0, 2.0, 2.0, 2e-4)):
        looks.add(step, size, {0: min(1.0, size)}, added=0.0)
    assert looks.variances()[0] == pytest.approx((3 * 0.5 + 2e-4 / 1.5) / 4, rel=1e-3)
    assert looks.scales()[3] == pytest.approx(1.5, rel=1e-3)
    assert looks.scales()[0] == 2.0


def test_a_loss_scale_tells_no_looks_apart() -> None:
    """After a rise of the scale by 2^16 only the new looks count, and they count in full."""
    looks = Looks(2)
    for step, scale in enumerate((1.0, 65536.0**2, 65536.0**2)):
        looks.add(step, 2 * scale, {0: scale}, added=0.0)
    assert looks.variances()[0] == pytest.approx(0.5)
    assert looks.scales() == {1: 2 * 65536.0**2, 2: 2 * 65536.0**2}


def test_what_codes_added_is_taken_off_and_old_looks_go() -> None:
    looks = Looks(2)
    for step in range(4):
        looks.add(step, 1.0, {0: 0.6}, added=0.2)
    assert looks.variances() == pytest.approx({0: 0.5})
    assert list(looks.sizes) == [2, 3]
    again = Looks(2)
    again.load_state_dict(looks.state_dict())
    assert again == looks
