"""Multiple shooting on a chaotic double pendulum, where single shooting fails."""

import numpy as np
import pytest

import jaxmech as jm
from jaxmech import FixedSteps
from jaxmech.identify import Fit, Recording, Shooting, fit
from jaxmech.identify.segments import segments

MODEL = jm.models.double_pendulum_angles()
TIMES = np.arange(401) / 100
NOISE = 1e-3
FREE = ("l1", "m2")
BEGIN = {**MODEL.params, "l1": 1.1, "m2": 0.8}
LENGTH = 0.5


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Four seconds through several turns; a guess at every sample from the samples alone."""
    q0, v0 = MODEL.initial()
    sol = jm.simulate(MODEL.system, q0, v0, TIMES, MODEL.params, steps=jm.FixedSteps(1))
    noise = np.random.default_rng(0).normal(0.0, NOISE, sol.q.shape)
    observed = np.asarray(sol.q) + noise
    guess = np.gradient(observed, TIMES, axis=0)
    return Recording(TIMES, observed, observed, guess, weights=1 / NOISE)


def shot(recording: Recording, horizon: Shooting | None) -> Fit:
    return fit(
        MODEL.system,
        recording,
        BEGIN,
        free=FREE,
        initial_states=horizon or "free",
        steps=FixedSteps(1),
    )


def test_one_poor_start_is_enough_where_coordinates_are_measured() -> None:
    """The nodes begin at the samples, one of which is missing."""
    ts, rng = np.arange(201) / 50, np.random.default_rng(0)
    sol = jm.simulate(MODEL.system, [1.5, 3.0], [2.0, 5.0], ts, MODEL.params, steps=FixedSteps(8))
    angles = np.asarray(sol.q) + rng.normal(0.0, NOISE, sol.q.shape)
    angles[60, 1] = np.nan
    one = Recording(ts, angles, [1.2, 3.4], [0.0, 0.0], 1 / NOISE)
    begin = {**BEGIN, "l1": 0.8}
    found = fit(
        MODEL.system, one, begin, free=FREE, initial_states=Shooting(0.4), steps=FixedSteps(4)
    )
    assert found.converged
    assert np.all(np.abs(found.values - 1.0) < 4 * found.uncertainty.standard_errors)
    assert found.noise.size == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(found.initial_states[0][0], [1.5, 3.0], atol=0.01)


@pytest.mark.slow
def test_the_segments_give_one_motion(recording: Recording) -> None:
    found = shot(recording, Shooting(LENGTH))
    assert found.converged
    assert np.all(np.abs(found.values - 1.0) < 4 * found.uncertainty.standard_errors)
    assert np.max(found.uncertainty.standard_errors) < 1e-2
    np.testing.assert_allclose(found.errors, NOISE, rtol=0.2)
    whole = jm.simulate(
        MODEL.system, *found.initial_states[0], TIMES, found.params, steps=jm.FixedSteps(1)
    )
    np.testing.assert_allclose(whole.q, found.train.values[0], atol=1e-5)


def test_segments_cover_every_sample_once() -> None:
    rng = np.random.default_rng(1)
    given = [
        Recording(ts, rng.normal(size=(len(ts), 1)), np.zeros((len(ts), 1)), np.zeros((len(ts), 1)))
        for ts in (np.arange(11) / 10, np.cumsum(rng.uniform(0.05, 0.3, 20)))
    ]
    cut, origin = segments(given, horizon=Shooting(0.35), step=0.04)
    assert [int(k) for k in origin.recording] == sorted(origin.recording)
    for one, whole in zip(given, origin.gathered(cut.observed), strict=True):
        np.testing.assert_array_equal(whole, one.observed)
    assert int((np.asarray(cut.weights) > 0).sum()) == sum(one.count for one in given)
    gaps = np.diff(np.asarray(cut.ts), axis=1)
    assert np.all(gaps > 0)
    assert np.max(gaps) <= 0.04 + 1e-9
    ends = np.take_along_axis(np.asarray(cut.ts), np.asarray(cut.last)[:, None], 1)[:, 0]
    follows = np.asarray(cut.following) != np.arange(len(ends))
    begins = np.asarray(cut.ts)[np.asarray(cut.following), 0]
    np.testing.assert_allclose(ends[follows], begins[follows], rtol=1e-12)
