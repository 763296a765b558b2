"""Quasi-velocities: closed forms, the same motions in rates of coordinates, messages."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipj

import jaxmech as jm
from tests.rotations import (
    SPINS,
    TOP,
    axis,
    by_spins,
    sheared,
)

FREE = {"J": np.array([1.0, 2.0, 2.5]), "mgl": 0.0}
TS = np.linspace(0.0, 4.0, 9)
E = np.array([0.5, 0.5, -0.5, 0.5])
DOUBLE = jm.models.double_pendulum()
SLEIGH = jm.models.chaplygin_sleigh()


def spins(w0: np.ndarray, J: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Landau and Lifshitz, Mechanics, section 37, for w2 = 0 at t = 0; M^2 > 2 E J2."""
    two_E, M2 = J @ w0**2, J**2 @ w0**2
    J1, J2, J3 = J
    assert two_E * J2 < M2
    rate = np.sqrt((J3 - J2) * (M2 - two_E * J1) / (J1 * J2 * J3))
    m = (J2 - J1) * (two_E * J3 - M2) / ((J3 - J2) * (M2 - two_E * J1))
    sn, cn, dn, _ = ellipj(rate * t, m)
    return np.stack([
        np.sqrt((two_E * J3 - M2) / (J1 * (J3 - J1))) * cn,
        np.sqrt((two_E * J3 - M2) / (J2 * (J3 - J2))) * sn,
        np.sqrt((M2 - two_E * J1) / (J3 * (J3 - J1))) * dn,
    ], axis=1)  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [jm.FixedSteps(128), pytest.param(jm.Adaptive(rtol=1e-12, atol=1e-14), marks=pytest.mark.slow)],
)
def test_a_free_body_turns_as_the_elliptic_functions(steps: Any) -> None:
    w0 = np.array([[0.3, 0.0, 0.9], [0.2, 0.0, 1.1], [0.1, 0.0, 0.5]])
    run = jax.jit(jax.vmap(lambda w: jm.simulate(TOP, E, w, TS, FREE, steps=steps)))
    sols = run(w0)
    for k, w in enumerate(w0):
        np.testing.assert_allclose(sols.v[k], spins(w, FREE["J"], TS), rtol=0, atol=1e-10)
    assert (sols.status == jm.Status.OK).all()
    assert sols.energy_drift.max() < 1e-11
    assert sols.position_residual.max() < 1e-15  # of the unit
    alone = jm.simulate(TOP, E, w0[1], TS, FREE, steps=steps)
    np.testing.assert_array_equal(alone.q, sols.q[1])
    np.testing.assert_array_equal(alone.v, sols.v[1])
    np.testing.assert_array_equal(alone["w2"], alone.v[:, 1])
    # the angular momentum in space
    J = FREE["J"]
    turned = [rotation(q) @ (J * w) for q, w in zip(alone.q, alone.v, strict=True)]
    np.testing.assert_allclose(turned, np.broadcast_to(turned[0], (9, 3)), atol=1e-10)


def rotation(e: Any) -> np.ndarray:
    e0, x = float(e[0]), np.asarray(e[1:])
    cross = np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])
    return np.asarray((2 * e0**2 - 1) * np.eye(3) + 2 * np.outer(x, x) + 2 * e0 * cross)


def test_a_top_precesses_steadily() -> None:
    A, C, mgl, tilt, axle = 0.3, 0.1, 0.8, 0.6, 12.0
    p = {"J": np.array([A, A, C]), "mgl": mgl}
    # A cos(tilt) W^2 - C axle W + mgl = 0 (Goldstein, Classical Mechanics, section 5.7)
    slow = min(np.roots([A * np.cos(tilt), -C * axle, mgl]))
    q0 = np.array([np.cos(tilt / 2), 0.0, np.sin(tilt / 2), 0.0])  # leans towards x
    w0 = np.array([-slow * np.sin(tilt), 0.0, axle])
    sol = jm.simulate(TOP, q0, w0, TS, p, steps=jm.Adaptive(rtol=1e-12, atol=1e-14))
    x, y, z = jax.vmap(axis)(sol.q).T
    np.testing.assert_allclose(z, np.cos(tilt), atol=1e-10)
    np.testing.assert_allclose(x, np.sin(tilt) * np.cos(slow * TS), atol=1e-9)
    np.testing.assert_allclose(y, np.sin(tilt) * np.sin(slow * TS), atol=1e-9)
    np.testing.assert_allclose(sol.v[:, 2], axle, atol=1e-11)


def along_edge(q: Any, t: Any, p: Any) -> Any:
    zero = jnp.zeros_like(q[2])
    along = jnp.stack([jnp.cos(q[2]), jnp.sin(q[2]), zero])
    return jnp.stack([along, jnp.stack([zero, zero, zero + 1])], axis=1)


SLEDGE = jm.System(
    SLEIGH.system.lagrangian,
    coordinates=SLEIGH.system.coordinates,
    velocities=("forward", "turning"),
    kinematics=along_edge,
)


def closed_sleigh(p: Any, v0: Any, t: Any) -> Any:
    """The forward speed and the turning rate; see `jaxmech.models.chaplygin_sleigh`."""
    inertia = p["I"] + p["m"] * p["a"] ** 2
    two_E = p["m"] * v0[0] ** 2 + inertia * v0[1] ** 2
    U, W = jnp.sqrt(two_E / p["m"]), jnp.sqrt(two_E / inertia)
    x = p["m"] * p["a"] * U / inertia * t + jnp.arctanh(v0[0] / U)
    return jnp.stack([U * jnp.tanh(x), W / jnp.cosh(x)])


@pytest.mark.slow
def test_a_sleigh_slides_in_closed_form_and_so_do_its_derivatives() -> None:
    u0, p = jnp.array([-0.5, 1.1]), jax.tree.map(jnp.asarray, SLEIGH.params)

    def end(p: Any, u: Any) -> Any:
        sol = jm.simulate(SLEDGE, np.zeros(3), u, TS, p, steps=jm.FixedSteps(64))
        return sol.v[-1] @ jnp.array([1.0, 2.0])

    def closed(p: Any, u: Any) -> Any:
        return closed_sleigh(p, u, TS[-1]) @ jnp.array([1.0, 2.0])

    ours, expected = (jax.value_and_grad(f, (0, 1))(p, u0) for f in (end, closed))
    for x, y in zip(*map(jax.tree.leaves, (ours, expected)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-8)
    change = (jax.tree.map(lambda x: 0.3 * x, p), jnp.array([1.0, -1.0]))
    pushed = jax.jvp(jax.jit(end), (p, u0), change)[1]
    np.testing.assert_allclose(pushed, jax.jvp(closed, (p, u0), change)[1], atol=1e-8)


@pytest.mark.slow
def test_a_loop_moves_in_any_velocities() -> None:
    steps, system, p = jm.FixedSteps(64), sheared(DOUBLE.system), DOUBLE.params
    q0, v0 = DOUBLE.initial()
    _, u0 = in_velocities(system, q0, v0)
    ts = np.linspace(0.0, 1.0, 5)
    sol = jm.simulate(system, q0, u0, ts, p, steps=steps)
    plain = jm.simulate(DOUBLE.system, q0, v0, ts, p, steps=steps)
    np.testing.assert_allclose(sol.q, plain.q, atol=1e-9)
    np.testing.assert_allclose(rates_of(system, sol), plain.v, atol=1e-8)
    np.testing.assert_allclose(sol.energy, plain.energy, atol=1e-8)
    assert sol.position_residual.max() < 1e-14
    assert sol.velocity_residual.max() < 1e-13
    seen, expected = (jm.observe(*pair, p) for pair in ((system, sol), (DOUBLE.system, plain)))
    for name, force in expected.multipliers.items():
        np.testing.assert_allclose(seen.multipliers[name], force, atol=1e-7)


def in_velocities(system: jm.System, q: Any, v: Any, t: float = 0.0) -> tuple[Any, Any]:
    q, v, t, _ = system.plain.arguments(q, v, t, None)
    return q, system.dynamics.from_speeds(q, v, t, None)


def rates_of(system: jm.System, sol: Any) -> Any:
    return jax.vmap(lambda q, v, t: system.dynamics.speeds(q, v, t, None))(
        sol.q, sol.v, jnp.asarray(sol.ts)
    )


@pytest.mark.slow
def test_events_are_those_of_rates_and_so_are_their_derivatives() -> None:
    steps = jm.Adaptive(rtol=1e-9, atol=1e-11)
    plain = jm.System(
        lambda q, v, t, p: v @ v / 2 - p["g"] * q[1] - 0.1 * q[0] ** 2, coordinates=("x", "y")
    )
    system = sheared(plain)
    bounce = jm.Transition(restitution=lambda p: p["e"])
    events = [
        jm.Event(lambda q, v, t, p: q[1], direction=-1, transition=bounce, name="floor"),
        jm.Event(lambda q, v, t, p: q[0] - 0.4, name="gate"),
    ]
    ts, q0, v0 = np.linspace(0.0, 1.0, 5), jnp.array([0.2, 0.5]), jnp.array([0.7, 0.3])
    p = {"g": jnp.asarray(9.81), "e": jnp.asarray(0.8)}

    def ends(system: jm.System, p: Any) -> Any:
        u0 = in_velocities(system, q0, v0)[1]
        sol = jm.simulate(system, q0, u0, ts, p, steps=steps, events=events)
        return sol.q[-1] @ jnp.array([1.0, 2.0]) + sol.events["floor"].t[1], sol

    results = []
    for s in (system, plain):
        (value, sol), slope = jax.value_and_grad(lambda p, s=s: ends(s, p), has_aux=True)(p)
        results.append((value, slope, sol))
    (value, slope, sol), (plain_value, plain_slope, plain_sol) = results
    np.testing.assert_allclose(value, plain_value, atol=1e-6)
    for name in p:
        np.testing.assert_allclose(slope[name], plain_slope[name], rtol=1e-5)
    ours, expected = sol.events["floor"], plain_sol.events["floor"]
    assert int(ours.count) == int(expected.count) >= 2
    np.testing.assert_allclose(ours.t[:2], expected.t[:2], atol=1e-6)
    after = [system.dynamics.speeds(ours.q_after[0], ours.v_after[0], ours.t[0], p)]
    np.testing.assert_allclose(after[0], expected.v_after[0], atol=1e-5)
    np.testing.assert_allclose(sol.events["gate"].t[0], plain_sol.events["gate"].t[0], atol=1e-6)


def _everything() -> tuple[jm.System, dict[str, Any]]:
    """A system with all functions that a system can have."""
    constraints = [
        jm.Holonomic(lambda q, t, p: q[0] ** 2 + q[1] * q[2] - p["l"] * (1 + t), name="surface"),
        jm.Nonholonomic(lambda q, v, t, p: v[0] * v[1] - jnp.sin(q[2]) * v[2], name="rolls"),
        jm.Acceleration(lambda q, v, a, t, p: a[3] * q[0] + v[2] * a[1] - t, name="servo"),
    ]

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        bent = v * (1.5 + jnp.sin(q + t))
        return bent @ bent / 2 + 0.3 * v[0] * v[3] * q[1] + q[0] * v[2] - p["l"] * q @ q

    plain = jm.System(
        lagrangian,
        constraints,
        force=lambda q, v, t, p: -0.1 * v * q + t,
        coordinates=tuple("abcd"),
        nonideal=lambda q, v, multipliers, t, p: -0.2 * v * (1 + q**2),
    )
    return plain, {"l": 0.7}


def test_equations_of_all_kinds_have_the_same_accelerations() -> None:
    plain, p = _everything()
    system = sheared(plain)
    again = jm.System(
        lambda q, v, t, p: 0.0 * t,
        system.plain.constraints,
        system.force,
        coordinates=system.coordinates,
        nonideal=system.nonideal,
        velocities=system.velocities,
        kinematics=system.kinematics,
        mass_and_force=lambda q, v, t, p: (
            plain.dynamics.mass(q, v, t, p), plain.dynamics.conservative_force(q, v, t, p)
        ),
    )  # fmt: skip
    directly = replace(
        system,
        quasi_mass_and_force=lambda q, u, t, p: (
            system.dynamics.mass(q, u, t, p), system.dynamics.conservative_force(q, u, t, p)
        ),
    )  # fmt: skip
    draw = np.random.default_rng(5)
    for q, v in draw.normal(size=(3, 2, 4)):
        u = in_velocities(system, q, v, 0.4)[1]
        expected = jm.acceleration(plain, q, v, 0.4, p)
        for s in (system, again, directly):
            motion = jm.acceleration(s, q, u, 0.4, p)
            state = s.arguments(q, u, 0.4, p)
            ours = s.dynamics.speed_rates(*state[:2], motion.qdd, *state[2:])
            np.testing.assert_allclose(ours, expected.qdd, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(motion.multipliers, expected.multipliers, rtol=1e-9)
    q, v, t, p = plain.arguments(q, v, 0.4, p)
    np.testing.assert_allclose(
        system.dynamics.energy(q, u, t, p), plain.dynamics.energy(q, v, t, p), rtol=1e-12
    )


@pytest.mark.slow
def test_assemble_keeps_invariants_and_closes_loops() -> None:
    holder = jm.Holonomic(lambda q, t, p: axis(q)[0] - 0.3, name="holder")
    system = jm.System(
        TOP.lagrangian,
        [holder],
        coordinates=TOP.coordinates,
        velocities=SPINS,
        kinematics=by_spins,
        invariants=TOP.invariants,
    )
    q, u = jm.assemble(system, [0.8, 0.1, 0.3, -0.2], [0.1, 0.5, 2.0], 0.0, FREE)
    guess = jnp.array([0.8, 0.1, 0.3, -0.2]), jnp.array([0.1, 0.5, 2.0])
    in_a_program = jax.jit(lambda q, u: jm.assemble(system, q, u, 0.0, FREE))(*guess)
    np.testing.assert_allclose(q, in_a_program[0], atol=1e-14)
    np.testing.assert_allclose(u, in_a_program[1], atol=1e-14)
    plain = system.plain
    v = by_spins(q, 0.0, FREE) @ u
    assert abs(plain.dynamics.position_level(q, jnp.asarray(0.0), FREE)).max() < 1e-14
    assert abs(plain.dynamics.velocity_level(q, v, jnp.asarray(0.0), FREE)).max() < 1e-14
    sol = jm.simulate(system, q, u, TS, FREE, steps=jm.FixedSteps(32))
    assert sol.position_residual.max() < 1e-14
    assert sol.energy_drift < 1e-6
    with pytest.raises(jm.errors.SimulationError, match=r"'unit' has a position residual"):
        jm.simulate(TOP, 2**0.5 * E, [0.1, 0.2, 0.3], TS, FREE, steps=jm.FixedSteps(4))
