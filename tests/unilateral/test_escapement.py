"""A clock: two pins of an anchor that let the teeth of an escape wheel pass, one after another."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.unilateral.systems import G

TEETH, RADIUS, TORQUE, DRAG = 18, 0.03, 2e-3, 2.5e-3
PIVOT = jnp.array([0.0, RADIUS * np.sqrt(2)])


def energy(q: Any, v: Any) -> Any:
    return 0.5 * 0.031 * v[0] ** 2 + 0.5 * 4e-6 * v[1] ** 2 - 0.124 * G * jnp.cos(q[0])


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return energy(0 * q, v) - energy(q, 0 * v) + energy(0 * q, 0 * v)


def force(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([-DRAG * v[0], jnp.asarray(TORQUE)])


def clearances(q: Any, t: Any, p: Any) -> Any:
    c, s = jnp.cos(q[0]), jnp.sin(q[0])
    gaps = []
    for side in (-1, 1):
        x = PIVOT + jnp.array([[c, -s], [s, c]]) @ jnp.array([side * PIVOT[1] / 2, -PIVOT[1] / 2])
        tooth = 2.5e-3 * jnp.cos(TEETH * (jnp.arctan2(x[0], x[1]) + q[1]))
        gaps.append(jnp.sqrt(x @ x) - (RADIUS - 1.8e-3) - tooth)
    return jnp.stack(gaps)


@pytest.mark.slow
def test_a_clock_keeps_its_period_and_its_amplitude() -> None:
    clock = jm.System(
        lagrangian, [jm.Unilateral(clearances, name="pins")], force=force,
        coordinates=("pendulum", "wheel"),
    )  # fmt: skip
    ts = jnp.linspace(0.0, 16.0, 3201)
    # Two starts on both sides of the amplitude of 0.0631 to which all motions tend.
    starts = jnp.array([[0.0620, 0.22], [0.0642, 0.22]])
    assert min(clearances(q, 0.0, None).min() for q in starts) > 1e-4
    steps = jm.Adaptive(rtol=1e-8, atol=1e-10, max_steps=4000)
    sols = jax.vmap(lambda q: jm.simulate(clock, q, jnp.zeros(2), ts, steps=steps))(starts)
    angles = np.asarray(sols["pendulum"])

    peaks = [[abs(x[k * 400 :][:400]).max() for k in range(8)] for x in angles]
    differences = np.diff(peaks, axis=0)[0]
    assert (differences > 0).all()
    assert differences[-1] < 0.7 * differences[0]
    free = 2 * np.pi * np.sqrt(0.031 / (0.124 * G))
    for angle in angles:
        (k,) = np.nonzero((angle[:-1] < 0) & (angle[1:] >= 0))
        passages = ts[k] - angle[k] * 0.005 / (angle[k + 1] - angle[k])
        periods = np.diff(passages)
        # The wheel pushes the pins back, so that the pendulum is faster than it would be alone.
        assert np.ptp(periods) < 2e-4
        np.testing.assert_allclose(periods, 0.99026 * free, rtol=2e-4)
    # One tooth for each swing, and two impacts.
    assert set(np.asarray(sols.events["pins[0] closes"].count)) <= {16, 17}
    teeth = (sols["wheel"][:, -1] - sols["wheel"][:, 0]) * TEETH / (2 * np.pi)
    np.testing.assert_allclose(teeth, 16.2, atol=1.0)

    lost = np.zeros(2)
    for name in ("pins[0] closes", "pins[1] closes"):
        hits = sols.events[name]
        loss = jax.vmap(jax.vmap(lambda q, v, u: energy(q, v) - energy(q, u)))
        losses = np.asarray(loss(hits.q, hits.v, hits.v_after))
        assert np.nanmin(losses) > 0
        lost += np.nansum(losses, axis=1)
    given = TORQUE * (sols["wheel"][:, -1] - sols["wheel"][:, 0])
    air = DRAG * jnp.trapezoid(sols["pendulum.rate"] ** 2, ts[None], axis=1)
    ends = jax.vmap(lambda q, v: energy(q[-1], v[-1]) - energy(q[0], v[0]))(sols.q, sols.v)
    np.testing.assert_allclose(lost + air + ends, given, rtol=1e-5)
