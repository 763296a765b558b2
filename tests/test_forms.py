"""All analyses take a system in any velocities, and with states, as they take it in its rates."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.laws import Contravariant, CoordinatePartition, UdwadiaKalaba

L = 1.3
HEAVY, LIGHT = {"m": 2.0, "g": 9.81}, {"m": 2.0, "g": 0.0}
Q, SPEED = np.array([0.6 * L, -0.8 * L]), 0.7  # on a circle, and the speed along it
V = SPEED * np.array([0.8, 0.6])
TURN = SPEED / L


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return p["m"] * (v[:2] @ v[:2] / 2 - p["g"] * q[1])


def rod(q: Any, t: Any, p: Any) -> Any:
    return (q[:2] @ q[:2] - L**2) / 2


def tangent(q: Any, t: Any, p: Any) -> Any:
    return jnp.stack([-q[1], q[0]])[:, None] / L


def sheared(q: Any, t: Any, p: Any) -> Any:
    return jnp.stack([jnp.stack([1.5 + q[1] ** 2, jnp.sin(q[0])]), jnp.stack([0.0 * t, 2.0 + t])])


ROD = jm.Holonomic(rod, name="rod")
NAMES: dict[str, Any] = {"coordinates": ("x", "y")}
# A state that cools by itself changes nothing of the motion.
WARM: dict[str, Any] = {"states": ("warmth",), "rates": lambda q, v, t, p: -v[-1:]}
SYSTEMS = {
    "speed": jm.System(
        lagrangian, velocities=("speed",), kinematics=tangent, invariants=[ROD], **NAMES
    ),
    "velocities and a state": jm.System(
        lagrangian, [ROD], velocities=("a", "b"), kinematics=sheared, **NAMES, **WARM
    ),
}


def state_of(system: jm.System, rates: Any = V) -> tuple[Any, Any]:
    """The state in the velocities of the system, with a warmth of one."""
    states = jnp.ones(len(system.states))
    q, rates = jnp.append(Q, states), jnp.append(rates, states)
    return q, system.dynamics.from_speeds(q, rates, jnp.asarray(0.0), None)


# Of the pendulum, with the tangent (0.8, 0.6): its weight along it, and the centripetal force.
ACCELERATION = -0.6 * HEAVY["g"] * np.array([0.8, 0.6]) - SPEED**2 / L**2 * Q


def accelerations(law: Any) -> Callable[[jm.System], Any]:
    def of(system: jm.System) -> Any:
        q, u = state_of(system)
        rates = jm.acceleration(system, q, u, 0.0, HEAVY, formulation=law).qdd
        return system.dynamics.speed_rates(q, u, rates, jnp.asarray(0.0), HEAVY)[:2]

    return of


def circle(system: jm.System) -> Any:
    """A motion without weight in independent coordinates."""
    run = {"formulation": CoordinatePartition(), "projection": None, "steps": jm.FixedSteps(32)}
    sol = jm.simulate(system, *state_of(system), [0.0, 0.5], LIGHT, **run)
    assert sol.position_residual.max() < 1e-13
    return sol.q[-1, :2]


def turned(angle: float) -> Any:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ Q


def rest(system: jm.System) -> Any:
    return jm.analysis.equilibrium(system, state_of(system)[0], HEAVY).q[:2]


def eigenvalues(system: jm.System) -> Any:
    q = jnp.append(jnp.array([0.0, -L]), jnp.zeros(len(system.states)))
    found = jm.analysis.linearize(system, q, jnp.zeros(system.n_velocities), HEAVY)
    return without_state(np.linalg.eigvals(np.asarray(found.space.A)), -1.0)


def without_state(values: Any, decay: float) -> Any:
    """The two values with the others that belong to a state taken out."""
    values = values[np.argsort(np.abs(values - decay))]
    assert np.allclose(values[: len(values) - 2], decay, atol=1e-4)
    return np.sort_complex(values[-2:])


def freedom(system: jm.System) -> Any:
    found = jm.analysis.structure(system, *state_of(system), 0.0, HEAVY)
    return found.ranks.position_freedom, found.ranks.velocity_freedom


VERBS: dict[str, tuple[Callable[[jm.System], Any], Any, float]] = {
    "UdwadiaKalaba": (accelerations(UdwadiaKalaba()), ACCELERATION, 1e-11),
    "Contravariant": (accelerations(Contravariant()), ACCELERATION, 1e-11),
    "without reactions": (accelerations(Contravariant(eliminate=True)), ACCELERATION, 1e-9),
    "CoordinatePartition": (circle, turned(0.5 * TURN), 1e-8),
    "equilibrium": (rest, [0.0, -L], 1e-7),
    "modes": (eigenvalues, [-1j * (9.81 / L) ** 0.5, 1j * (9.81 / L) ** 0.5], 1e-9),
    "structure": (freedom, [1, 1], 0.0),
}


BOTH = [(verb, "velocities and a state") for verb in VERBS if verb != "equilibrium"]
CASES = [
    *(
        pytest.param(v, "speed", marks=[pytest.mark.slow] * (v == "CoordinatePartition"))
        for v in VERBS
    ),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in BOTH),
]


@pytest.mark.parametrize(("verb", "kind"), CASES)
def test_every_analysis_takes_every_form(verb: str, kind: str) -> None:
    answer, expected, atol = VERBS[verb]
    np.testing.assert_allclose(answer(SYSTEMS[kind]), expected, rtol=0, atol=atol)


MOTOR = {"J": 0.02, "k": 0.5, "c": 0.01, "u": 6.0, "R": 1.2, "L": 0.05}


def motor(velocities: bool) -> jm.System:
    """A motor with its current; with velocities its speed is the double of that of its angle."""
    doubled: dict[str, Any] = {
        "velocities": ("double",),
        "kinematics": lambda q, t, p: jnp.array([[0.5]]),
    }
    return jm.System(
        lambda q, v, t, p: 0.5 * p["J"] * v[0] ** 2,
        force=lambda q, v, t, p: jnp.array([p["k"] * v[1] - p["c"] * v[0]]),
        coordinates=("angle",),
        states=("current",),
        rates=lambda q, v, t, p: (p["u"] - p["R"] * v[1] - p["k"] * v[0]) / p["L"],
        **doubled if velocities else {},
    )


def test_a_motor_turns_steadily_at_its_speed_without_load() -> None:
    p = MOTOR
    found = jm.analysis.equilibrium(motor(velocities=False), [0.2, 0.0], p, v=[1.0, 1.0])
    speed = p["k"] * p["u"] / (p["R"] * p["c"] + p["k"] ** 2)
    np.testing.assert_allclose(found.v, [speed, p["c"] / p["k"] * speed], rtol=1e-9)
    by_state = [[-p["c"] / p["J"], p["k"] / p["J"]], [-p["k"] / p["L"], -p["R"] / p["L"]]]
    values = np.asarray(jm.analysis.modes(found.linearization).eigenvalues)
    expected = np.append(np.linalg.eigvals(by_state), 0.0)
    np.testing.assert_allclose(np.sort_complex(values), np.sort_complex(expected), atol=1e-7)


def test_velocities_that_are_kept_are_those_of_the_names() -> None:
    # Nothing but the balance of torques determines the speed: only one can be kept.
    speed = 2 * MOTOR["k"] * MOTOR["u"] / (MOTOR["R"] * MOTOR["c"] + MOTOR["k"] ** 2)
    system, kept = motor(velocities=True), {"double": speed}
    found = jm.analysis.equilibrium(system, [0.2, 0.0], MOTOR, v=kept)
    np.testing.assert_allclose(found.v[0], speed, rtol=1e-9)
    with pytest.raises(ValueError, match="No steady motion was found"):
        jm.analysis.equilibrium(system, [0.2, 0.0], MOTOR, v={"double": 1.0})


def test_the_metric_of_a_mass_that_burns_changes_with_it() -> None:
    def burning(q: Any, v: Any, t: Any, p: Any) -> Any:
        return (1 + v[1]) * (v[0] ** 2 * (1 + q[0] ** 2) / 2 - q[0]) + v[0] * q[0] * t

    rocket = jm.System(
        burning, coordinates=("height",), states=("fuel",), rates=lambda q, v, t, p: -v[1:] * q[0]
    )
    state = [0.3, 0.1], [0.7, 2.0], 0.4
    expected, found = (
        jm.acceleration(rocket, *state, formulation=law).qdd
        for law in (UdwadiaKalaba(), Contravariant())
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    frozen = jm.acceleration(
        jm.System(lambda q, v, t, p: burning(q, jnp.append(v, 2.0), t, p), coordinates=("height",)),
        [0.3], [0.7], 0.4,
    ).qdd  # fmt: skip
    assert abs(frozen[0] - expected[0]) > 0.1  # what burns carries momentum away
