"""Analyses of systems whose quasi-velocities exclude motions: a sledge by two speeds of its own."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

NAMES = ("x", "y", "heading")
PARAMS = {"a": 0.3, "m": 2.0, "J": 0.5, "k": 0.0}
SPEED = 1.7


def energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Of a blade whose centre of mass is at the distance a ahead (Chaplygin 1911)."""
    side = jnp.stack([-jnp.sin(q[2]), jnp.cos(q[2])])
    center = v[:2] + p["a"] * v[2] * side
    return p["m"] / 2 * center @ center + p["J"] / 2 * v[2] ** 2 - p["k"] / 2 * q[2] ** 2


def along(q: Any, t: Any, p: Any) -> Any:
    return jnp.array([[jnp.cos(q[2]), 0.0], [jnp.sin(q[2]), 0.0], [0.0, 1.0]])


def across(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[1] * jnp.cos(q[2]) - v[0] * jnp.sin(q[2])


BY_SPEEDS = jm.System(
    energy, coordinates=NAMES, velocities=("forward", "turning"), kinematics=along
)
BY_RATES = jm.System(energy, [jm.Nonholonomic(across, "blade")], coordinates=NAMES)


def test_excluded_motions_are_a_constraint_on_the_rates() -> None:
    plain = BY_SPEEDS.in_rates(PARAMS)
    q = [0.1, 0.2, 0.7]
    v = [0.6 * np.cos(0.7), 0.6 * np.sin(0.7), 0.9]
    assert [c.name for c in plain.constraints] == ["kinematics"]
    (residual,) = plain.dynamics.velocity_level(*plain.arguments(q, v, 0.0, PARAMS))
    assert abs(residual) < 1e-15
    expected = jm.acceleration(BY_RATES, q, v, 0.0, PARAMS)
    np.testing.assert_allclose(jm.acceleration(plain, q, v, 0.0, PARAMS).qdd, expected.qdd)
    by_speeds = jm.acceleration(BY_SPEEDS, q, [0.6, 0.9], 0.0, PARAMS).qdd
    rates = BY_SPEEDS.arguments(q, [0.6, 0.9], 0.0, PARAMS)
    of_coordinates = BY_SPEEDS.dynamics.speed_rates(*rates[:2], by_speeds, *rates[2:])
    np.testing.assert_allclose(of_coordinates, expected.qdd, atol=1e-14)


@pytest.mark.slow
def test_a_sledge_by_its_speeds_is_as_stable_as_with_a_blade() -> None:
    found = jm.analysis.linearize(BY_SPEEDS, [0.1, 0.2, 0.0], [SPEED, 0.0], PARAMS, steady=False)
    values = np.asarray(jm.analysis.modes(found).eigenvalues)
    a, m, inertia = PARAMS["a"], PARAMS["m"], PARAMS["J"]
    decay = -m * a * SPEED / (inertia + m * a**2)  # of the turning rate
    np.testing.assert_allclose(np.sort(values.real), [decay, 0, 0, 0, 0], atol=1e-8)


@pytest.mark.slow
def test_structure_and_equilibrium_take_speeds() -> None:
    state = [0.1, 0.2, 0.3], [SPEED, 0.4]
    ranks = jm.analysis.structure(BY_SPEEDS, *state, 0.0, PARAMS).ranks
    assert (ranks.position_freedom, ranks.velocity_freedom) == (3, 2)
    rest = jm.analysis.equilibrium(BY_SPEEDS, state[0], {**PARAMS, "k": 1.0})
    np.testing.assert_allclose(rest.q[2], 0.0, atol=1e-9)


@pytest.mark.slow
def test_inverse_dynamics_takes_speeds() -> None:
    def circle(t: Any, p: Any) -> Any:  # the blade is a tangent
        return jnp.stack([jnp.sin(t), 1 - jnp.cos(t), t])

    ts = jnp.linspace(0.0, 1.0, 5)
    found = jm.control.inverse_dynamics(
        BY_SPEEDS, circle, ts, PARAMS, actuators=("x", "y", "heading")
    )
    expected = jnp.stack([-jnp.sin(ts), jnp.cos(ts), 0 * ts], axis=1)
    np.testing.assert_allclose(found.qdd, expected, atol=1e-12)
    turning = PARAMS["m"] * PARAMS["a"]  # m a v omega about the blade, at constant speeds of 1
    np.testing.assert_allclose(found.u[:, 2], turning, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("states", [(), ("warmth",)])
def test_states_of_first_order_stay_the_last(states: tuple[str, ...]) -> None:
    rates = {"states": states, "rates": lambda q, v, t, p: -v[-1:]} if states else {}
    system = jm.System(
        energy, coordinates=NAMES, velocities=("forward", "turning"), kinematics=along, **rates
    )
    plain = system.in_rates(PARAMS)
    assert plain.states == states
    q, v = [0.0] * (3 + len(states)), [1.0, 0.0, 0.0, *[2.0] * len(states)]
    qdd = jm.acceleration(plain, q, v, 0.0, PARAMS).qdd
    np.testing.assert_allclose(qdd[3:], [-2.0] * len(states))
