"""Residuals that are not the stated noise, and recordings that are not measurements."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, System
from jaxmech.identify import Fit, PhysicalInertia, Recording, fit
from jaxmech.identify.fit_warnings import similarity
from jaxmech.identify.problem.parameters import parameters
from tests.identify.swings import BEGIN, FREE, NOISE, SWING, TRUTH, noisy, swings


def fitted(recordings: Any, **options: Any) -> Fit:
    return fit(SWING, recordings, BEGIN, **{"free": FREE, "steps": FixedSteps(1), **options})


@pytest.fixture(scope="module")
def given() -> list[Recording]:
    rng = np.random.default_rng(4)
    return [noisy(one, rng) for one in swings()]


def warnings_of(found: Fit) -> str:
    return " ".join(found.notes)


@pytest.mark.slow
def test_noise_as_stated_is_no_misfit(given: list[Recording]) -> None:
    assert fitted(given).notes == ()
    assert fitted([replace(one, weights=None) for one in given]).notes == ()
    assert fitted([replace(one, weights=1 / (1.05 * NOISE)) for one in given]).notes == ()


@pytest.mark.parametrize("factor", [1.4, 134.0, 1e9])
def test_more_noise_than_is_stated(given: list[Recording], factor: float) -> None:
    found = fitted([replace(one, weights=factor / NOISE) for one in given])
    times = float(warnings_of(found).partition(" times the stated noise")[0].rpartition(" ")[2])
    np.testing.assert_allclose(times, factor, rtol=0.2)
    assert "Misfit: the residuals are" in warnings_of(found)
    assert "They look like noise" in warnings_of(found)
    assert repr(found).splitlines()[1].startswith("  WARNING: Misfit")


def test_less_noise_than_is_stated(given: list[Recording]) -> None:
    found = fitted([replace(one, weights=0.02 / NOISE) for one in given])
    before = "The stated noise is too large: the residuals are "
    assert warnings_of(found).startswith(before)
    np.testing.assert_allclose(
        float(warnings_of(found).removeprefix(before).split()[0]), 0.02, rtol=0.2
    )


def test_a_prior_that_the_recordings_contradict(given: list[Recording]) -> None:
    found = fitted(given, prior={"l": (0.6, 1e-6)})
    assert "Misfit" in warnings_of(found)
    assert fitted(given, prior={"l": (0.5, 1e-2)}).notes == ()


@pytest.mark.slow
def test_a_model_that_lacks_something(given: list[Recording]) -> None:
    """Friction that is not fitted, with stated noise and without."""
    for weights in (1 / NOISE, None):
        recordings = [replace(one, weights=weights) for one in given]
        found = fit(SWING, recordings, {**TRUTH, "c": 0.0}, free=["l"], steps=FixedSteps(1))
        assert "neighbours in time are correlated" in warnings_of(found).lower()
        assert "the times, a unit or a column are wrong" in warnings_of(found)


@pytest.mark.slow
def test_times_in_milliseconds(given: list[Recording]) -> None:
    late = [replace(one, ts=1e3 * one.ts, v0=1e-3 * one.v0) for one in given]
    begin = {**BEGIN, "c": 1e-3}  # friction of which a motion of 1,200 s is left
    for weights in (1 / NOISE, None):
        recordings = [replace(one, weights=weights) for one in late]
        found = fit(SWING, recordings, begin, free=FREE, steps=FixedSteps(1, max_step=2.0))
        assert "Misfit" in warnings_of(found), weights


@pytest.mark.slow
def test_a_column_taken_twice() -> None:
    """The angle where the rate should be."""
    (motion,) = swings((0.8,), weights=None)
    rng = np.random.default_rng(5)
    angle = noisy(motion, rng).observed[:, 0]

    def shown(q: Any, v: Any, t: Any, p: Any) -> Any:
        return jnp.concatenate([q, v])

    twice = replace(motion, observed=np.stack([angle, angle], axis=1))
    assert "Misfit" in warnings_of(fitted(twice, observe=shown))


def test_the_same_recording_twice(given: list[Recording]) -> None:
    message = "must hold every recording once, but again has the same samples as recording 1"
    with pytest.raises(ValueError, match=message):
        fitted([given[0], replace(given[0], name="again", ts=given[0].ts + 5.0)])
    still = Recording(given[0].ts, np.zeros(61), [0.0], [0.0], 1 / NOISE, name="at rest")
    more = replace(still, name="at rest, too")
    assert fitted([*given, still, more]).converged  # nothing that could be the same noise


def test_samples_without_weight_do_not_count(given: list[Recording]) -> None:
    one = given[0]
    weights = np.full((61, 1), 1 / NOISE)
    weights[10:] = 0.0
    light = replace(one, weights=weights)
    assert light.count == 10
    assert fitted([light, given[1]]).count == 71
    with pytest.raises(ValueError, match=r"as many measurements as .* 3 for 4"):
        fitted(replace(one, weights=np.where(np.arange(61)[:, None] < 3, 1 / NOISE, 0.0)))
    nothing = np.where(np.arange(61)[:, None] == 0, np.nan, one.observed)
    with pytest.raises(ValueError, match="`weights` must have a positive number where something"):
        replace(one, observed=nothing, weights=np.where(np.arange(61)[:, None] < 1, 1.0, 0.0))


def test_a_prior_outside_the_bounds() -> None:
    message = r"`prior` must have its mean inside the bounds, but m must be more than 0, and its"
    with pytest.raises(ValueError, match=message):
        parameters({"m": 1.0}, bounds={"m": (0, None)}, prior={"m": (-1.0, 0.1)})
    flat = np.diag([1.0, 1.0, 3.0])
    with pytest.raises(ValueError, match="inside the bounds, but J must be the inertia of a body"):
        parameters({"J": np.eye(3)}, bounds={"J": PhysicalInertia()}, prior={"J": (flat, 0.1)})
    assert parameters({"m": 1.0}, bounds={"m": (0, 2)}, prior={"m": (1.9, 0.1)}).prior_mean == 1.9


def test_similarity_is_that_of_neighbours() -> None:
    rng, ts = np.random.default_rng(0), np.arange(400.0)
    white = rng.normal(size=400)
    slow = np.zeros(400)
    for k in range(1, 400):
        slow[k] = 0.6 * slow[k - 1] + white[k]
    one = Recording(ts, np.zeros(400), [0.0], [0.0])
    np.testing.assert_allclose(similarity([slow[:, None]], [one]), 0.6, atol=0.1)
    assert similarity([white[:, None]], [one]) == 0.0
    assert similarity([slow[:20, None]], [Recording(ts[:20], np.zeros(20), [0.0], [0.0])]) == 0.0


def _falling(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2 - 9.81 * (q[1] + q[3])


def _rod(q: Any, t: Any, p: Any) -> Any:
    return (q[:2] @ q[:2] - p["l"] ** 2) / 2


def _other_rod(q: Any, t: Any, p: Any) -> Any:
    return (q[2:] @ q[2:] - 1.0) / 2


@pytest.mark.slow
def test_stated_noise_with_two_free_directions_of_four() -> None:
    """Two masses at rest on rods, whose initial states have a prior along the constraints."""
    rods = [Holonomic(_rod), Holonomic(_other_rod)]
    system = System(_falling, rods, coordinates=("x", "y", "u", "w"))
    q0, rng = np.array([0.0, -1.0, 0.0, -1.0]), np.random.default_rng(0)
    observed = q0 + rng.normal(0.0, NOISE, (11, 4))
    ts = np.linspace(0.0, 0.1, 11)
    one = Recording(ts, observed, q0, np.zeros(4), 1 / NOISE, start_sd=(1e-3, 1e-3))
    found = fit(system, one, {"l": 1.0}, steps=FixedSteps(1))
    assert found.unknowns == 5
    assert found.notes == ()
