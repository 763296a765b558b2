"""Losses with kinks: impacts and dry friction make minima of which a fit finds the right one."""

from typing import Any

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import MultiStart, TrustRegion

RUB = jm.DryFriction(lambda q, v, t, p: v[0], static=lambda p: p["dry"], name="rub")
SLIDE = jm.System(
    lambda q, v, t, p: 0.6 * v @ v - 0.5 * p["k"] * q @ q, [RUB],
    force=lambda q, v, t, p: -p["c"] * v, coordinates={"x": "m"},
)  # fmt: skip
TRUTH = {"k": 80.0, "c": 0.5, "dry": 0.6}
BOUNDS = dict.fromkeys(TRUTH, (0, None))


def slides(seed: int = 0) -> list[jm.Recording]:
    """Three runs until the slide sticks, with noise of 0.2 mm."""
    rng, ts, runs = np.random.default_rng(seed), np.arange(101) / 50, []
    for start in (0.1, 0.08, 0.06):
        x = np.asarray(jm.simulate(SLIDE, [start], [0.0], ts, TRUTH, steps=jm.FixedSteps(8)).q)
        runs.append(jm.Recording(ts, x + 2e-4 * rng.normal(size=x.shape), [start], [0.0]))
    return runs


def fitted(**options: Any) -> jm.identify.Fit:
    guess = {"k": 60.0, "c": 0.2, "dry": 0.3}
    return jm.fit(SLIDE, slides(), guess, bounds=BOUNDS, **options)


def test_dry_friction_is_found_across_the_ridges() -> None:
    found = fitted()
    assert found.converged
    assert found.notes == ()
    assert found.noise.size == pytest.approx(2e-4, rel=0.15)
    for name, (low, high) in zip(
        found.names, found.uncertainty.reliable_interval(0.999), strict=True
    ):
        assert low < TRUTH[name] < high, name
    # what it has cost is said
    assert "more starts across the kinks of contact" in found.optimization.reason
    assert found.optimization.evaluations > 20


@pytest.mark.slow
def test_a_local_minimum_is_named() -> None:
    """With one starting point there is no search: the fit ends where the message says so."""
    found = fitted(optimizer=TrustRegion(starts=MultiStart(count=1, refine=1)))
    assert abs(found.params["dry"] - TRUTH["dry"]) > 5 * found.uncertainty.standard_errors[1]
    (text,) = [note for note in found.notes if note.startswith("Misfit")]
    assert "Or this is a local minimum" in text
    assert "starts=MultiStart" in text
