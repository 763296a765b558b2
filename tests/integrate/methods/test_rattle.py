"""RATTLE: order, symmetry, momenta and energy; redundant rows, a closed loop and derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import RATTLE, FixedSteps, Holonomic, Solution, Status, System, simulate
from jaxmech.compiler import explain
from tests.small import DOUBLE, PENDULUM, Case, from_angles, solved, times_of

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


@pytest.fixture(scope="module")
def swing() -> Any:
    """The double pendulum from angles, saved after every step."""

    @jax.jit
    def run(start: Any, ts: Any) -> Any:
        q, v = from_angles(start[:2], start[2:], DOUBLE.params)
        return simulate(
            DOUBLE.system, q, v, ts, DOUBLE.params, method=RATTLE(), steps=FixedSteps(1)
        )

    return run


@pytest.fixture(scope="module")
def turning() -> Any:
    """The spherical pendulum from any state, saved after every step."""
    return jax.jit(
        lambda q, v, ts: simulate(
            SPHERICAL.system, q, v, ts, SPHERICAL.params, method=RATTLE(), steps=FixedSteps(1)
        )
    )


START = np.array([0.9, 0.4, 0.5, -1.0])


def test_order_two_in_positions_and_velocities(swing: Any) -> None:
    end = solved(START, 0.4)
    errors = []
    for steps in (40, 80, 160):
        sol = swing(START, times_of(steps, STEPS, 0.4))
        assert sol.ok
        errors.append(np.abs(np.concatenate([sol.q[-1], sol.v[-1]]) - end).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 2.0, atol=0.02)
    assert errors[-1] < 1e-4


@pytest.mark.slow
def test_time_reversal(turning: Any) -> None:
    """To rounding, with steps that are far too long for accuracy."""
    ts = np.arange(STEPS + 1) * 0.1
    there = turning(SPHERICAL.q, SPHERICAL.v, ts)
    back = turning(there.q[-1], there.v[-1], ts[::-1])
    assert there.ok
    assert back.ok
    np.testing.assert_allclose(back.q[::-1], there.q, atol=1e-10)
    np.testing.assert_allclose(back.v[::-1], there.v, atol=1e-10)


@pytest.mark.slow
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


def pendulum(start: Any) -> Solution:
    """From an angle at rest, and g."""
    q = PENDULUM.params["l"] * jnp.stack([jnp.sin(start[0]), -jnp.cos(start[0])])
    params, ts = {**PENDULUM.params, "g": start[1]}, np.linspace(0.0, 0.2, 5)
    steps = FixedSteps(3)
    return simulate(PENDULUM.system, q, jnp.zeros(2), ts, params, method=RATTLE(), steps=steps)


AT = np.array([0.9, 9.81])


@pytest.mark.slow
def test_a_batch_is_native_code_with_the_bits_of_single_runs() -> None:
    starts = np.linspace(0.3, 1.1, 5)[:, None] * AT
    together, alone = jax.vmap(pendulum)(starts), jax.jit(pendulum)(starts[3])
    np.testing.assert_array_equal(together.q[3], alone.q)
    np.testing.assert_array_equal(together.v[3], alone.v)
    assert [part.reason for part in explain(pendulum, starts).parts] == [""]


@pytest.mark.slow
def test_gradients_in_both_modes() -> None:
    """Against central differences, with respect to the initial state and a parameter."""

    @jax.jit
    def end(start: Any) -> Any:
        sol = pendulum(start)
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    steps = 1e-5 * np.eye(2)
    expected = np.stack([(end(AT + d) - end(AT - d)) / 2e-5 for d in steps], axis=1)
    np.testing.assert_allclose(jax.jacfwd(end)(AT), expected, atol=1e-8)
    np.testing.assert_allclose(jax.jacrev(end)(AT), expected, atol=1e-8)


@pytest.mark.slow
def test_second_derivatives() -> None:
    def height(g: Any) -> Any:
        return pendulum(jnp.stack([0.9, g])).q[-1, 1]

    slope = jax.jit(jax.grad(height))
    expected = (slope(9.811) - slope(9.809)) / 2e-3
    np.testing.assert_allclose(jax.grad(slope)(9.81), expected, rtol=1e-5)
