"""Implicit methods: their orders, stiff systems, constraints, derivatives and messages."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.small import DOUBLE, PENDULUM, from_angles, solved, times_of

START = np.array([0.9, 0.4, 0.5, -1.0])


@pytest.fixture(scope="module")
def swing() -> Any:
    """The double pendulum from angles, in steps between the times."""

    def run(start: Any, ts: Any, params: Any) -> Any:
        q, v = from_angles(start[:2], start[2:], params)
        return jm.simulate(
            DOUBLE.system, q, v, ts, params, method=jm.Rodas5P(), steps=jm.FixedSteps(1)
        )

    return jax.jit(run)


def end_of(sol: Any) -> np.ndarray:
    return np.concatenate([sol.q[-1], sol.v[-1]])


def test_order_five_on_the_constraints(swing: Any) -> None:
    end = solved(START, 0.4)
    sols = [swing(START, times_of(steps, 32, 0.4), DOUBLE.params) for steps in (8, 16, 32)]
    errors = np.array([np.abs(end_of(sol) - end).max() for sol in sols])
    assert np.all(np.log2(errors[:-1] / errors[1:]) > 4.7)
    assert errors[-1] < 2e-8
    for sol in sols:
        assert sol.position_residual.max() < 1e-14
        assert sol.velocity_residual.max() < 1e-13


@pytest.mark.slow
def test_derivatives_forward_and_reverse() -> None:
    """By a parameter and the start, against central differences."""
    rodas, steps = jm.Rodas5P(), jm.Adaptive(rtol=1e-10, atol=1e-10)

    @jax.jit
    def height(length: Any, angle: Any) -> Any:
        q = length * jnp.array([jnp.sin(angle), -jnp.cos(angle)])
        v = 0.7 * jnp.array([jnp.cos(angle), jnp.sin(angle)])
        params = {**PENDULUM.params, "l": length}
        sol = jm.simulate(
            PENDULUM.system, q, v, jnp.arange(5) / 10, params, method=rodas, steps=steps
        )
        return sol.q[-1, 1] + 0.3 * sol.v[-1, 0]

    def along(x: Any) -> Any:
        return height(2.0 + 0.7 * x, 0.9 - 0.4 * x)

    h = 1e-3
    near, far = ((along(k * h) - along(-k * h)) / (2 * k * h) for k in (1, 2))
    wanted = (4 * near - far) / 3
    np.testing.assert_allclose(jax.jvp(along, (0.0,), (1.0,))[1], wanted, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(along)(0.0), wanted, rtol=1e-8)


def _relaxing(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A stiff spring and damper between a mass of 1 kg and a point that moves as cos t."""
    return -p["k"] * (q - jnp.cos(t)) - p["d"] * v


RELAXING = jm.System(lambda q, v, t, p: 0.5 * v @ v, force=_relaxing, coordinates=("x",))


def relaxed(t: Any, k: float, d: float) -> tuple[Any, Any]:
    """The motion that all others approach: x = a cos t + b sin t."""
    a, b = np.linalg.solve([[k - 1, d], [-d, k - 1]], [k, 0.0])
    return a * np.cos(t) + b * np.sin(t), b * np.cos(t) - a * np.sin(t)


@pytest.mark.slow
def test_a_stiff_spring_does_not_limit_the_steps() -> None:
    """h lambda = -1e5: an explicit method overflows in some steps."""
    k, d = 1e6, 1e6
    q, v = relaxed(0.0, k, d)
    ts = np.linspace(0.0, 2.0, 3)
    steps = jm.FixedSteps(10)
    sol = jm.simulate(RELAXING, [q], [v], ts, {"k": k, "d": d}, method=jm.Rodas5P(), steps=steps)
    np.testing.assert_allclose(sol.q[:, 0], relaxed(ts, k, d)[0], atol=1e-6)
    assert sol.status == jm.Status.OK
    other = jm.simulate(RELAXING, [q], [v], ts, {"k": k, "d": d}, steps=steps, throw=False)
    assert other.status != jm.Status.OK


@pytest.mark.slow
def test_a_transient_is_followed() -> None:
    """From far away: short steps first, then long ones."""
    k, d = 1e6, 1e4  # eigenvalues of -100 and -9900 per second
    start, ts = relaxed(0.0, k, d), np.array([0.0, 2.0])
    policies = {"method": jm.Rodas5P(), "steps": jm.Adaptive(rtol=1e-6, atol=1e-8)}
    sol = jm.simulate(RELAXING, [start[0] + 0.1], [start[1]], ts, {"k": k, "d": d}, **policies)
    np.testing.assert_allclose(sol.q[-1, 0], relaxed(2.0, k, d)[0], atol=1e-6)
    assert sol.accepted < 400
    assert sol.step > 100 / 9900
