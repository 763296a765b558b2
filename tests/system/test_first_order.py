"""States of first order: motion, derivatives, events, constraints that contain them, messages."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.integrate import Scheme
from jaxmech.integrate.step_size import steps_needed

P = {"J": 0.02, "k": 0.5, "c": 0.01, "u": 6.0, "R": 1.2, "L": 0.05}
TS = np.linspace(0.0, 0.3, 7)
ZERO = np.zeros(2)


def kinetic(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * p["J"] * v[0] ** 2


def torque(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([p["k"] * v[1] - p["c"] * v[0]])


def circuit(q: Any, v: Any, t: Any, p: Any) -> Any:
    return (p["u"] - p["R"] * v[1] - p["k"] * v[0]) / p["L"]


MOTOR = jm.System(kinetic, force=torque, coordinates=("angle",), states=("current",), rates=circuit)


def exact(t: Any, p: Any) -> Any:
    """The angle, the charge, the speed and the current, from rest."""
    A = jnp.array([
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, -p["c"] / p["J"], p["k"] / p["J"], 0],
        [0, 0, -p["k"] / p["L"], -p["R"] / p["L"], p["u"] / p["L"]],
        [0, 0, 0, 0, 0],
    ])  # fmt: skip
    return jax.scipy.linalg.expm(A * t)[:4, 4]


METHODS = {
    "RK4": ({"steps": jm.FixedSteps(64)}, 1e-8),
    "Rodas5P": ({"method": jm.Rodas5P(), "steps": jm.FixedSteps(32)}, 1e-8),
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name != "RK4"]


@pytest.mark.parametrize("name", ["RK4", *SLOW])
def test_a_motor_moves_as_the_exponential_and_so_do_its_derivatives(name: str) -> None:
    policies, tolerance = METHODS[name]

    def ends(p: Any) -> Any:
        sol = jm.simulate(MOTOR, ZERO, ZERO, TS, p, **policies)
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    p = jax.tree.map(jnp.asarray, P)
    many = {key: x * jnp.array([1.0, 1.1, 0.8]) for key, x in p.items()}
    run = jax.jit(jax.vmap(lambda p: (ends(p), jax.grad(lambda p: ends(p) @ ends(p))(p))))
    reached, slopes = run(many)
    last = TS[-1]
    expected = jax.vmap(lambda p: exact(last, p))(many)
    np.testing.assert_allclose(reached, expected, rtol=tolerance)
    closed = jax.vmap(jax.grad(lambda p: (exact(last, p) ** 2).sum()))(many)
    for key in P:
        np.testing.assert_allclose(slopes[key], closed[key], rtol=30 * tolerance)
    alone = jm.simulate(MOTOR, ZERO, ZERO, TS, p, **policies)
    np.testing.assert_array_equal(jnp.concatenate([alone.q[-1], alone.v[-1]]), reached[0])
    if name == "RK4":
        way = {key: x * (1.0 + k) for k, (key, x) in enumerate(p.items())}
        along = jax.jvp(ends, (p,), (way,))[1]
        np.testing.assert_allclose(along, jax.jvp(lambda p: exact(last, p), (p,), (way,))[1], 1e-6)


def test_the_default_step_resolves_a_state() -> None:
    sol = jm.simulate(MOTOR, ZERO, ZERO, TS, P)
    reached = jnp.concatenate([sol.q[-1], sol.v[-1]])
    np.testing.assert_allclose(reached, exact(TS[-1], P), rtol=1e-5)
    assert 1e-9 < sol.integration_error < 2e-6
    assert np.isnan(sol.energy_drift)  # the circuit adds and takes energy
    np.testing.assert_allclose(sol.energy, P["J"] * sol.v[:, 0] ** 2 / 2, rtol=1e-12)
    seen = jm.observe(MOTOR, sol, P)
    np.testing.assert_allclose(seen.qdd[:, 1], circuit(sol.q.T, sol.v.T, 0.0, P), rtol=1e-12)


@pytest.mark.slow
def test_hysteresis_by_bouc_and_wen() -> None:
    # nonlinearbenchmark.org; the numbers by scipy's DOP853 (rtol 2.3e-14) in 61 pieces, each up to
    # the next zero of y' or z, so that every piece is smooth.
    def friction(q: Any, v: Any, t: Any, p: Any) -> Any:
        return jnp.stack([120 * jnp.sin(60 * jnp.pi * t) - 10 * v[0] - v[1]])

    def hysteresis(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 5e4 * v[0] - 1e3 * (0.8 * jnp.abs(v[0]) * v[1] - 1.1 * v[0] * jnp.abs(v[1]))

    system = jm.System(
        lambda q, v, t, p: v[0] ** 2 - 2.5e4 * q[0] ** 2,
        force=friction, coordinates=("y",), states=("z",), rates=hysteresis,
    )  # fmt: skip
    steps = jm.Adaptive(rtol=1e-13, atol=1e-16)
    sol = jm.simulate(system, ZERO, ZERO, np.linspace(0.0, 0.5, 51), None, steps=steps)
    y, speed, z = sol.q[-1, 0], sol.v[-1, 0], sol.v[-1, 1]
    np.testing.assert_allclose(y, -6.59343878034159e-4, rtol=1e-12)
    np.testing.assert_allclose(speed, 0.27411105413247794, rtol=1e-12)
    # z is the small remainder of rates that are 5e4 times the speed.
    np.testing.assert_allclose(z, 0.30969614761909214, atol=1e-12 * np.abs(sol.v[:, 1]).max())


@pytest.mark.slow
def test_a_constraint_that_contains_a_state() -> None:
    # The speed of a mass is the filtered command: x' = z, z' = (u - z) / tau.
    def command(q: Any, v: Any, t: Any, p: Any) -> Any:
        return (p["u"] - v[2]) / p["tau"]

    drive = jm.Nonholonomic(lambda q, v, t, p: v[0] - v[2], name="drive")
    system = jm.System(
        lambda q, v, t, p: (3.0 * v[0] ** 2 + v[1] ** 2) / 2,
        [drive], coordinates=("x", "y"), states=("z",), rates=command,
    )  # fmt: skip
    p, ts = {"u": 2.0, "tau": 0.5}, np.linspace(0.0, 1.0, 11)
    q0, v0 = jm.assemble(system, np.zeros(3), np.array([0.3, 1.0, -1.0]), 0.0, p)
    np.testing.assert_allclose(v0, [-1.0, 1.0, -1.0], atol=1e-14)  # the state is not moved
    z = 2.0 - 3.0 * np.exp(-ts / 0.5)
    for projection in (jm.Projection(), jm.Baumgarte(5.0, 5.0)):
        sol = jm.simulate(system, q0, v0, ts, p, steps=jm.FixedSteps(32), projection=projection)
        np.testing.assert_allclose(sol.v[:, 2], z, rtol=1e-7)
        np.testing.assert_allclose(sol.v[:, 0], z, rtol=1e-7)
        np.testing.assert_allclose(sol.q[:, 0], sol.q[:, 2], atol=1e-8)
        np.testing.assert_allclose(sol.v[:, 1], 1.0, rtol=1e-14)
    seen = jm.observe(system, sol, p)
    np.testing.assert_allclose(seen.multipliers["drive"][:, 0], 3.0 * (2.0 - z) / 0.5, rtol=1e-6)
    assert not seen.constraint_force[:, 2].any()


def test_a_mass_that_burns() -> None:
    # The Lagrangian takes the mass as a function of time: momentum is conserved, energy is not.
    system = jm.System(
        lambda q, v, t, p: v[1] * v[0] ** 2 / 2,
        coordinates=("x",), states=("mass",), rates=lambda q, v, t, p: -0.1 * v[1],
    )  # fmt: skip
    sol = jm.simulate(system, ZERO, np.array([2.0, 3.0]), TS, None)
    np.testing.assert_allclose(sol.v[:, 1], 3.0 * np.exp(-0.1 * TS), rtol=1e-8)
    np.testing.assert_allclose(sol.v[:, 0] * sol.v[:, 1], 6.0, rtol=1e-8)
    np.testing.assert_allclose(sol.energy, 3.0 * sol.v[:, 0], rtol=1e-8)
    assert np.isnan(sol.energy_drift)


def heated(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.1 * (p["T"] - v[-1])


@pytest.mark.slow
def test_the_unit_of_a_state_does_not_matter_to_the_steps() -> None:
    # A temperature without effect: neither the trial nor the tolerance compare it with metres.
    spring = jm.System(lambda q, v, t, p: v[0] ** 2 / 2 - 50 * q[0] ** 2, coordinates=("x",))
    warm = replace(spring, states=("T",), rates=heated)
    T, q, v, ts = 3e6, np.array([[1.0]]), np.array([[0.0]]), np.array([[0.0, 10.0]])
    hot = {"T": np.array([T])}
    rates = np.array([[0.0, 1.01 * T]])
    alone = steps_needed(Scheme.of(spring), (q, v, ts, {}, np.zeros((1, 0))))
    members = np.append(q, [[0.0]], 1), rates, ts, hot, np.zeros((1, 0))
    both = steps_needed(Scheme.of(warm), members)
    assert both == pytest.approx(alone, rel=1e-6)
    steps = jm.Adaptive(rtol=1e-6, atol=1e-12)
    run = jm.simulate(spring, q[0], v[0], ts[0], {}, steps=steps)
    sol = jm.simulate(warm, np.array([1.0, 0.0]), rates[0], ts[0], {"T": T}, steps=steps)
    assert abs(int(sol.accepted) - int(run.accepted)) <= 0.15 * int(run.accepted)
    np.testing.assert_allclose(sol.integration_error, run.integration_error, rtol=1.0)


@pytest.mark.slow
def test_a_state_costs_a_batch_its_own_operations_alone() -> None:
    model = jm.models.double_pendulum()
    q, v = model.initial()
    n = q.size
    rods = [
        replace(rod, fn=lambda q, t, p, rod=rod: rod.fn(q[:n], t, p))
        for rod in model.system.constraints
    ]
    system = jm.System(
        lambda q, v, t, p: model.system.lagrangian(q[:n], v[:n], t, p),
        rods, coordinates=model.system.coordinates, states=("z",),
        rates=lambda q, v, t, p: q[0] - v[n],
    )  # fmt: skip

    def operations(system: Any, q: Any, v: Any) -> int:
        def run(q: Any, v: Any) -> Any:
            ts = np.linspace(0.0, 1.0, 5)
            return jm.simulate(system, q, v, ts, model.params, steps=jm.FixedSteps(10)).q

        found = jm.compiler.explain(run, *(jnp.stack([x] * 4) for x in (q, v)))
        return sum(part.operations for part in found.parts)

    before = operations(model.system, q, v)
    zero = jnp.zeros(1)
    after = operations(system, jnp.concatenate([q, zero]), jnp.concatenate([v, zero]))
    assert 0 < after - before <= 64  # of 1,081
