"""Failures of motions: between steps, by events, under noise, and of what cannot be computed."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxmech as jm
from jaxmech.ensemble import Failure, Fixed, Normal, Observed, Study, Times, failure_probability
from jaxmech.ensemble.study import StudyEvent
from jaxmech.integrate import FixedSteps
from tests.ensemble.failure.problems import (
    OMEGA,
    first_passage,
    noisy_study,
)


def spring(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - 0.5 * OMEGA**2 * q @ q


SPRING = jm.System(spring, coordinates=("x",))


def swings(**settings: Any) -> Study:
    """An oscillator that is released at x ~ N(1, 0.1), of which few steps see the extreme."""
    return Study(
        model=SPRING, size=256, block=256, times=Times(end=2.2, saves=9),
        steps=FixedSteps(per_save=2), coordinates={"x": Normal(mean=1.0, sd=0.1)}, **settings,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of", "limits"), [("x", {"below": -1.4}), ("far", {}), ("x2", {"above": 1.4**2})]
)
def test_extremes_between_steps_and_events(of: str, limits: dict[str, float]) -> None:
    # The smallest x is that of half a period later, -x(0), which no step meets.
    far = StudyEvent(of="x", level=-1.4, direction=-1, terminal=True)
    study = swings(
        events={"far": far}, observe={"x2": Observed(lambda q, v, t, p: q[0] ** 2)},
    )  # fmt: skip
    if of == "x2":  # but this one is largest at the start already
        study = replace(study, events={})
    result = failure_probability(study, failure=Failure(of=of, method="form", **limits))
    assert result.probability == pytest.approx(stats.norm.sf(4.0), rel=2e-3)


@pytest.mark.slow
def test_first_passage_of_an_oscillator_under_white_noise() -> None:
    exact, _ = first_passage(0.25, 20, 4.0)
    result = failure_probability(noisy_study(0.25, 20, 4.0, method="subset"))
    assert result.interval[0] < exact < result.interval[1]


@pytest.mark.slow
def test_first_passage_has_a_design_point_for_every_half_of_a_period() -> None:
    exact, _ = first_passage(0.25, 40, 4.5)
    result = failure_probability(noisy_study(0.25, 40, 4.5, coefficient_of_variation=0.1))
    assert abs(np.log(result.probability / exact)) < 3.5 * result.coefficient_of_variation
    assert len(result.design_points) >= 4  # for every half of a period a time and a side


@pytest.mark.slow
def test_what_cannot_be_computed_counts_by_the_rule() -> None:
    def explodes(q: Any, v: Any, t: Any, p: Any) -> Any:
        return jnp.where(p["a"] > 1.0, 1e9 * (1 + q**4), 0.0)

    system = jm.System(spring, force=explodes, coordinates=("x",))
    study = Study(
        model=system, size=512, block=512, times=Times(end=1.0, saves=5),
        steps=FixedSteps(per_save=5), coordinates={"x": Fixed(1.0)},
        parameters={"a": Normal(mean=0.0, sd=1.0)},
    )  # fmt: skip
    failure = Failure(of="x", below=-3.0, method="monte-carlo", coefficient_of_variation=0.1)
    result = failure_probability(study, failure=failure)
    assert abs(result.probability / stats.norm.sf(1.0) - 1) < 0.4
    assert result.lost > 0
    safe = replace(failure, unfinished="safe", most=1000)
    assert failure_probability(study, failure=safe).probability == 0
