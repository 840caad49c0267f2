"""The solver: no other steps take fewer bytes for the noise, and layers' limits are kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from actzip.control.budget import Problem, least_bytes, least_noise
from actzip.control.rate_curves import GRID


def _curve(scale: float = 1.0, steep: float = 1.0) -> np.ndarray:
    """Bits of a convex, falling curve: about -u for fine steps, vanishing for coarse ones."""
    found: np.ndarray = scale * np.log2(1 + 2.0 ** (-steep * GRID))
    return found


def _problem(seed: int = 0, sites: int = 4, layers: int = 3) -> Problem:
    rng = np.random.default_rng(seed)
    noise = rng.lognormal(-8, 1.5, (layers, sites)) * (rng.random((layers, sites)) < 0.7)
    noise[0] += 1e-5
    return Problem(
        elements=rng.integers(1000, 100_000, sites).astype(float),
        bits=np.stack([_curve(1 + 0.3 * i, 1 + 0.1 * i) for i in range(sites)]),
        unit=rng.lognormal(0, 1, sites),
        coarsest=np.full(sites, 3.0),
        noise=noise,
        variance=np.full(layers, np.inf),
        total=1.0,
    )


def _brute(problem: Problem, allowed: float, every: int) -> float:
    """Fewest bytes over all choices from a part of the grid, by trying them all."""
    grid = GRID[(GRID >= -8) & (GRID <= 3)][::every]
    best = np.inf
    for u in itertools.product(grid, repeat=len(problem.elements)):
        at = np.array(u)
        if problem.share(at) <= allowed:
            best = min(best, float(problem.bytes_at(at).sum()))
    return best


@pytest.mark.parametrize("seed", range(4))
def test_no_choice_of_steps_takes_fewer_bytes_for_the_noise(seed: int) -> None:
    problem = _problem(seed, sites=3)
    allowed = 1e-3
    plan = least_bytes(problem, allowed)
    assert plan.noise <= allowed * (1 + 1e-6)
    assert plan.bytes <= _brute(problem, allowed, every=4) * 1.0001


@pytest.mark.parametrize("noise", [1e-6, 1e-4, 1e-2])
def test_all_of_the_noise_is_used(noise: float) -> None:
    plan = least_bytes(_problem(1, sites=20), noise)
    assert plan.reached
    assert plan.noise == pytest.approx(noise, rel=1e-3)


def test_the_least_noise_for_bytes_is_the_other_side_of_the_same_curve() -> None:
    problem = _problem(2, sites=12)
    by_noise = least_bytes(problem, 1e-3)
    by_bytes = least_noise(problem, by_noise.bytes)
    assert by_bytes.reached
    assert by_bytes.bytes == pytest.approx(by_noise.bytes, rel=1e-3)
    assert by_bytes.noise == pytest.approx(by_noise.noise, rel=1e-2)


def test_a_layer_has_at_most_a_few_times_its_share() -> None:
    free = _problem(3, sites=12, layers=6)
    loose = least_bytes(free, 1e-3)
    own = np.array([0.01, 1.0, 1.0, 0.02, 1.0, 1.0])
    tight = Problem(**{**vars(free), "variance": own / own.sum()})
    plan = least_bytes(tight, 1e-3, looser=2.0)
    over = tight.layers_at(plan.u) / (2.0 * 1e-3 * tight.variance)
    before = tight.layers_at(loose.u) / (2.0 * 1e-3 * tight.variance)
    assert before.max() > 2, "without limits some layer had too much: the limit has something to do"
    assert over.max() <= 1.02
    assert plan.bytes >= loose.bytes
    # no more is given up than the limit asks for: the tightest layers are at it
    assert over.max() >= 0.9


def test_what_no_code_can_reach_is_said() -> None:
    problem = _problem(0)
    plan = least_noise(problem, nbytes=1.0)
    assert not plan.reached
    assert plan.u.tolist() == [3.0] * 4
    assert least_noise(problem, float(problem.bytes_at(np.full(4, 2.0)).sum())).reached


def test_a_curve_that_is_flat_gets_no_noise_for_nothing() -> None:
    """A site whose bits do not fall with its step is stored with the finest that costs the same."""
    problem = _problem(0, sites=3)
    bits = problem.bits.copy()
    bits[1] = 0.5
    plan = least_bytes(Problem(**{**vars(problem), "bits": bits}), 1e-3)
    assert plan.u[1] <= GRID[0] + 0.25
