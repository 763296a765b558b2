"""Residuals that are not the stated noise, and recordings that are not measurements."""

import importlib
import re
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, System, simulate
from jaxmech.identify import Fit, PhysicalInertia, Recording, TrustRegion, fit
from jaxmech.identify.inference.information import correlation
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


@pytest.mark.slow
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
        found = fit(SWING, recordings, begin, free=FREE, steps=FixedSteps(1, max_step=0.1))
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


def _autoregressive(rng: np.random.Generator, rho: float, count: int) -> np.ndarray:
    """Noise of unit size, correlated by rho with its neighbour."""
    noise = rng.normal(size=count)
    for k in range(1, count):
        noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * noise[k]
    return noise


def test_correlation_is_found_at_all_lengths_and_seldom_in_noise() -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for count in (30, 60, 400):
        one = Recording(np.arange(float(count)), np.zeros(count), [0.0], [0.0])
        slow = correlation([_autoregressive(rng, 0.9, count)[:, None]], [one])
        assert slow is not None
        assert 0.3 < slow.neighbours < 1.0
        assert slow.chance < 1e-3
        alarms += sum(
            correlation([rng.normal(size=(count, 1))], [one]) is not None for _ in range(300)
        )
    assert alarms <= 6  # 0.9 are expected


def test_sensors_are_compared_with_themselves() -> None:
    """One that is correlated, beside one with a thousand times the noise."""
    rng, ts = np.random.default_rng(1), np.arange(100.0)
    both = np.stack([_autoregressive(rng, 0.8, 100), 1e3 * rng.normal(size=100)], axis=1)
    one = Recording(ts, np.zeros((100, 2)), [0.0], [0.0])
    assert correlation([both], [one]) is not None
    both[::7, 0] = np.nan
    assert correlation([both], [one]) is not None


def test_samples_of_a_slow_sensor_are_compared_with_each_other() -> None:
    """In a table of a fast one, in which they are 20 times apart."""
    rng, samples = np.random.default_rng(3), np.full((2000, 2), np.nan)
    samples[:, 0] = rng.normal(size=2000)
    samples[::20, 1] = rng.normal(size=100)
    one = Recording(np.arange(2000.0), np.zeros((2000, 2)), [0.0], [0.0])
    assert correlation([samples], [one]) is None
    samples[::20, 1] = slow = _autoregressive(rng, 0.8, 100)
    beside = correlation([samples], [one])
    alone = correlation([slow[:, None]], [replace(one.every(20), observed=np.zeros((100, 1)))])
    assert beside is not None
    assert alone is not None
    np.testing.assert_allclose(beside.neighbours, alone.neighbours)


def test_dry_friction_in_40_samples() -> None:
    """A viscous model is refuted by a short recording, too."""
    dry = System(
        lambda q, v, t, p: 0.5 * v @ v + p["w2"] * jnp.cos(q[0]),
        force=lambda q, v, t, p: -p["c"] * v - p["d"] * jnp.tanh(v / 0.02),
        coordinates=("theta",),
    )
    ts = np.linspace(0.0, 6.0, 40)
    truth = {"w2": 12.0, "c": 0.1, "d": 0.25}
    clean = np.asarray(simulate(dry, [1.2], [0.0], ts, truth, steps=FixedSteps(40)).q)
    observed = clean + np.random.default_rng(0).normal(0.0, 1e-3, clean.shape)
    one = Recording(ts, observed, observed[0], [0.0])
    found = fit(dry, one, {"w2": 10.0, "c": 0.2, "d": 0.0}, free=["w2", "c"], steps=FixedSteps(8))
    assert "neighbours in time are correlated" in warnings_of(found)


@pytest.mark.parametrize("weight", [None, 1 / NOISE, 0.5 / NOISE])
def test_correlated_noise_of_any_stated_size(weight: float | None) -> None:
    rng = np.random.default_rng(2)
    (one,) = swings((0.8,), weights=weight, ts=np.arange(241) / 50)
    noise = NOISE * _autoregressive(rng, 0.9, len(one.ts))[:, None]
    found = fitted(replace(one, observed=one.observed + noise))
    assert "neighbours in time are correlated" in warnings_of(found)
    assert found.noise.correlated
    assert re.search("by (recording|block) +white noise", repr(found))


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


def test_the_default_budget_grows_with_the_unknowns(
    given: list[Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("jaxmech.identify.optimize.trust_region")
    monkeypatch.setattr(module, "PER_UNKNOWN", 1)
    found = fitted(given[:1])
    assert found.optimization.reason == "the 4 evaluations are used up"  # of 4 unknowns
    assert found.optimization.evaluations == 4
    assert "Not converged, since the 4 evaluations are used up" in warnings_of(found)
    assert "the 2 evaluations are used up" in repr(fitted(given[:1], optimizer=TrustRegion(2)))


PENDULUM = System(
    lambda q, v, t, p: 0.5 * v @ v + p["w2"] * jnp.cos(q[0]),
    force=lambda q, v, t, p: -p["c"] * v,
    coordinates=("angle",),
)


def test_as_many_measurements_as_unknowns(given: list[Recording]) -> None:
    few = replace(
        given[0], observed=np.where(np.arange(61)[:, None] < 4, given[0].observed, np.nan)
    )
    with pytest.raises(
        ValueError, match=r"must hold more measurements .* there are 4 for 4; state"
    ):
        fitted(replace(few, weights=None))
    assert fitted(few).count == 4


def test_parameters_without_any_effect() -> None:
    still = Recording(np.arange(11) / 10, 1e-3 * np.arange(11.0), [0.0], [0.0])
    with pytest.raises(ValueError, match="no sensor depends on c, w2: the system may be at rest"):
        fit(PENDULUM, still, {"w2": 18.0, "c": 0.2}, initial_states="fixed", steps=FixedSteps(4))
