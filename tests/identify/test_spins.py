"""Fits in quasi-velocities: a spinning body's inertias as in rates, its starts, and messages."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp

TRUTH = {"a": 0.6, "c": 1.3}  # moments of inertia, relative to that about the second axis
TS = np.linspace(0.0, 2.0, 21)
Q0, SPINS = np.array([0.8, 0.0, 0.6, 0.0]), np.array([0.4, 2.0, 0.3])
STEPS = jm.FixedSteps(10)


def spinning(velocities: Any) -> jm.System:
    """A body that turns about its centre of mass."""
    body = jp.spatial_body("body", mass=1.0, inertia=lambda t, p: jnp.diag(_moments(p)))
    ball = jp.spherical("ball", jp.ground, (0, 0, 0), body, (0, 0, 0))
    return jp.Mechanism([body], [ball], params=TRUTH, velocities=velocities).system


def _moments(p: Any) -> Any:
    return jnp.stack([jnp.asarray(p["a"]), jnp.ones(()), jnp.asarray(p["c"])])


def recorded(velocities: Any, sd: float = 2e-3) -> tuple[jm.System, jm.Recording]:
    """Attitudes with noise, and a start that is off, the same in either velocities."""
    system, noise = spinning("spins"), np.random.default_rng(4).normal(0, sd, (TS.size, 4))
    sol = jm.simulate(system, Q0, SPINS, TS, TRUTH, steps=STEPS)
    u0 = SPINS + np.array([0.05, -0.1, 0.02])
    rates = system.dynamics.speeds(jnp.asarray(Q0), jnp.asarray(u0), jnp.zeros(()), TRUTH)
    v0 = u0 if velocities == "spins" else rates
    return spinning(velocities), jm.Recording(TS, sol.q + noise, Q0, v0)


@pytest.mark.slow
def test_inertias_are_those_of_the_fit_in_rates() -> None:
    """With their errors and the start, and near the true ones."""
    fits = [jm.fit(*recorded(x), {"a": 0.7, "c": 1.2}, steps=STEPS) for x in ("spins", "rates")]
    spins, rates = (one.uncertainty for one in fits)
    np.testing.assert_allclose(spins.values, rates.values, rtol=1e-8)
    np.testing.assert_allclose(spins.standard_errors, rates.standard_errors, rtol=1e-8)
    assert (abs(spins.values - list(TRUTH.values())) < 4 * spins.standard_errors).all()
    assert (spins.standard_errors < 0.05).all()
    (q0, u0), (other_q0, other_v0) = (x.initial_states[0] for x in fits)
    assert u0.shape == (3,)
    np.testing.assert_allclose(q0, other_q0, atol=1e-8)
    dynamics = spinning("spins").dynamics
    speeds = dynamics.speeds(*map(jnp.asarray, (q0, u0)), jnp.zeros(()), fits[0].params)
    np.testing.assert_allclose(speeds, other_v0, atol=1e-8)


def test_spins_are_measured() -> None:
    """By a gyroscope, in segments whose jumps vanish."""
    system = spinning("spins")
    sol = jm.simulate(system, Q0, SPINS, TS, TRUTH, steps=STEPS)
    gyroscope = jm.Recording(TS, sol.v, Q0, SPINS + 0.02, weights=1e3, start_sd=(1e-3, 0.1))

    found = jm.fit(
        system, gyroscope, {"a": 0.7, "c": 1.2}, steps=STEPS, observe=lambda q, u, t, p: u,
        initial_states=jm.identify.Shooting(1.0),
    )  # fmt: skip
    np.testing.assert_allclose(found.values, list(TRUTH.values()), rtol=1e-5)  # the prior pulls


def test_velocities_are_those_of_the_system() -> None:
    """Rates of the coordinates, as differences of samples give them, are refused."""
    system, recording = recorded("rates")
    with pytest.raises(ValueError, match=r"`v0` of .* must have shape \(3,\) for the velocities"):
        jm.fit(spinning("spins"), recording, TRUTH)
    fewer = jm.Recording(TS, recording.observed, Q0, SPINS)
    with pytest.raises(ValueError, match=r"`v0` of .* must have the shape of `q0`, \(4,\)"):
        jm.fit(system, fewer, TRUTH)
