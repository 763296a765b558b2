"""Multilevel Monte Carlo against means in closed form."""

from itertools import pairwise

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.ensemble import (
    MultilevelMean,
    Normal,
    Study,
    Times,
    multilevel_mean,
)
from jaxmech.integrate import RK4, FixedSteps


def lagrangian(q, v, t, p):
    return 0.5 * v @ v - 0.5 * p["w"] ** 2 * q @ q


SPRING = jm.System(lagrangian, coordinates=("x",))
OMEGA, SD, END = 2.0, 0.1, 2.0


def study_of(**settings) -> Study:
    return Study(
        model=SPRING, size=512, block=512, times=Times(end=END, saves=5), method=RK4(),
        steps=FixedSteps(per_save=1), coordinates={"x": Normal(mean=1.0, sd=0.2)},
        parameters={"w": Normal(mean=OMEGA, sd=SD)}, **settings,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result() -> MultilevelMean:
    return multilevel_mean(study_of(), "x", 0.002)


def test_the_mean_of_an_oscillator_with_a_random_frequency(result: MultilevelMean) -> None:
    # E cos(w T) = exp(-(sd T)^2 / 2) cos(mean T), independent of the initial position.
    exact = np.exp(-((SD * END) ** 2) / 2) * np.cos(OMEGA * END)
    square = (1 + 0.2**2) * (1 + np.exp(-2 * (SD * END) ** 2) * np.cos(2 * OMEGA * END)) / 2
    assert abs(result.mean - exact) < result.half_width <= 0.002
    assert result.variance == pytest.approx(square - exact**2, rel=0.05)
    # Coarse trajectories are many, and corrections fall as the square of the step or faster.
    assert result.levels[0].trajectories > 20 * result.levels[-1].trajectories
    variances = [level.variance for level in result.levels[2:]]
    assert all(fine < coarse / 8 for coarse, fine in pairwise(variances))
    assert result.steps < result.single_level_steps / 2


def test_the_bias_and_the_cost_of_a_gaussian_mean_are_those_in_closed_form(
    result: MultilevelMean,
) -> None:
    # A step of the midpoint rule multiplies x + i v / w by 1 - i w h - (w h)^2 / 2.
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    w, weights = OMEGA + SD * z, weights / weights.sum()
    means = []
    for level in result.levels:
        steps = 4 * level.per_save
        turn = w * END / steps
        means.append(float(weights @ ((1 - 1j * turn - turn**2 / 2) ** steps).real))
        pairs = 1.5 if level.per_save > 1 else 1.0
        assert level.cost == pairs * steps
    exact = float(weights @ np.cos(w * END))
    assert exact == pytest.approx(np.exp(-((SD * END) ** 2) / 2) * np.cos(OMEGA * END), abs=1e-12)
    for level, mean in zip(result.levels, np.diff(means, prepend=0.0), strict=True):
        assert abs(level.mean - mean) < 4 * np.sqrt(level.variance / level.trajectories)
    assert abs(means[-1] - exact) < result.bias < 0.3 * 0.002
    printed = str(result)
    assert f"bias of the finest steps about {result.bias:.2g}" in printed
    assert f"{result.steps:,} steps; {result.single_level_steps:,} with" in printed
    assert result.steps == sum(level.trajectories * level.cost for level in result.levels)


def test_the_interval_holds_the_mean_in_most_repeats() -> None:
    exact = np.exp(-((SD * END) ** 2) / 2) * np.cos(OMEGA * END)
    results = [multilevel_mean(study_of(seed=seed), "x", 0.02) for seed in range(3)]
    assert sum(abs(x.mean - exact) < x.half_width for x in results) >= 2
