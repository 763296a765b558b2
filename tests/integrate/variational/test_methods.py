"""RATTLE and the variational midpoint rule: order, symmetry, momenta and energy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxmech import RATTLE, Holonomic, Status, System, Variational, simulate
from tests.small import DOUBLE, Case

STEPS = 160

# In a field that is not uniform, and symmetric about the vertical.
SPHERICAL = Case(
    System(
        lambda q, v, t, p: 0.5 * v @ v - p["g"] * (q[2] + 0.3 * q[2] ** 2),
        [Holonomic(lambda q, t, p: (q @ q - 1) / 2, "sphere")],
        coordinates=("x", "y", "z"),
    ),
    {"g": 9.81},
    np.array([0.6, 0.0, -0.8]),
    np.array([0.4, 1.5, 0.3]),
)


def times_of(steps: int, span: float = 0.4) -> np.ndarray:
    """The times of a run of few steps, its last one repeated, so that all runs have one shape."""
    return np.minimum(np.arange(STEPS + 1) * (span / steps), span)


def from_angles(angles: Any, rates: Any, p: Any) -> tuple[Any, Any]:
    """q and v of the double pendulum."""
    (a, b), (wa, wb) = angles, rates
    first = p["l1"] * jnp.stack([jnp.sin(a), -jnp.cos(a)])
    second = p["l2"] * jnp.stack([jnp.sin(b), -jnp.cos(b)])
    turned = jnp.array([[0.0, -1.0], [1.0, 0.0]])
    v1, v2 = wa * (turned @ first), wb * (turned @ second)
    return jnp.concatenate([first, first + second]), jnp.concatenate([v1, v1 + v2])


@pytest.fixture(scope="module", params=[RATTLE, Variational], ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def swing(kind: Any) -> Any:
    """The double pendulum from angles, saved after every step."""

    @jax.jit
    def run(start: Any, ts: Any) -> Any:
        q, v = from_angles(start[:2], start[2:], DOUBLE.params)
        return simulate(DOUBLE.system, q, v, ts, DOUBLE.params, method=kind(1))

    return run


@pytest.fixture(scope="module")
def turning(kind: Any) -> Any:
    """The spherical pendulum from any state, saved after every step."""
    return jax.jit(
        lambda q, v, ts: simulate(SPHERICAL.system, q, v, ts, SPHERICAL.params, method=kind(1))
    )


START = np.array([0.9, 0.4, 0.5, -1.0])


def exact(span: float) -> np.ndarray:
    """The double pendulum in its angles by an independent integrator: (q, v) at the end."""
    p = DOUBLE.params
    m1, m2, l1, l2, g = (p[name] for name in ("m1", "m2", "l1", "l2", "g"))

    def rate(_: float, y: Any) -> Any:
        a, b, wa, wb = y
        c, s = np.cos(a - b), np.sin(a - b)
        M = [[(m1 + m2) * l1, m2 * l2 * c], [l1 * c, l2]]
        pull = [-m2 * l2 * wb**2 * s - (m1 + m2) * g * np.sin(a), l1 * wa**2 * s - g * np.sin(b)]
        return [wa, wb, *np.linalg.solve(M, pull)]

    y = solve_ivp(rate, (0, span), START, "DOP853", rtol=3e-14, atol=1e-14).y[:, -1]
    return np.concatenate(from_angles(y[:2], y[2:], p))


def test_order_two_in_positions_and_velocities(swing: Any) -> None:
    end = exact(0.4)
    errors = []
    for steps in (40, 80, 160):
        sol = swing(START, times_of(steps))
        assert sol.ok
        errors.append(np.abs(np.concatenate([sol.q[-1], sol.v[-1]]) - end).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 2.0, atol=0.02)
    assert errors[-1] < 1e-4


def test_it_goes_back_on_the_same_way(turning: Any) -> None:
    """To rounding, with steps that are far too long for accuracy."""
    ts = np.arange(STEPS + 1) * 0.1
    there = turning(SPHERICAL.q, SPHERICAL.v, ts)
    back = turning(there.q[-1], there.v[-1], ts[::-1])
    assert there.ok
    assert back.ok
    np.testing.assert_allclose(back.q[::-1], there.q, atol=1e-10)
    np.testing.assert_allclose(back.v[::-1], there.v, atol=1e-10)


def test_energy_error_does_not_grow_and_momentum_is_kept(turning: Any) -> None:
    """Over 8,000 steps, the momentum about the vertical to rounding, at a coarse step."""
    q, v, ts = jnp.array(SPHERICAL.q), jnp.array(SPHERICAL.v), np.arange(STEPS + 1) * 0.02
    energies, momenta = [], []
    for _ in range(50):
        sol = turning(q, v, ts)
        q, v = sol.q[-1], sol.v[-1]
        energies.append(sol.energy)
        momenta.append(sol.q[:, 0] * sol.v[:, 1] - sol.q[:, 1] * sol.v[:, 0])
        assert sol.position_residual.max() < 1e-14
        assert sol.velocity_residual.max() < 1e-14
    np.testing.assert_allclose(momenta, momenta[0][0], rtol=0, atol=1e-13)
    errors = np.abs(np.array(energies) - energies[0][0])
    early, late = errors[:5].max(), errors[-5:].max()
    assert 1e-5 < early < 1e-2
    assert late < 1.2 * early


def test_a_step_far_too_long_ends_in_a_status(swing: Any) -> None:
    sol = swing(START * 5, np.arange(STEPS + 1) * 0.9)
    assert sol.status in (Status.NOT_CONVERGED, Status.PROJECTION_FAILED)
    assert np.isfinite(sol.t_failed)
    assert np.isnan(sol.q[-1]).all()
    assert np.isfinite(sol.q[0]).all()
