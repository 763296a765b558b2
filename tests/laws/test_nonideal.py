"""Constraints that do work: prescribed forces, friction, and friction that jams."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    Acceleration,
    FixedSteps,
    Holonomic,
    Status,
    System,
    acceleration,
    observe,
    simulate,
)
from jaxmech.laws import CoordinatePartition, UdwadiaKalaba
from jaxmech.models import make
from jaxmech.system import conserves_energy
from jaxmech.utils.probing import depends_on
from tests.laws.laws import LAWS
from tests.small import PENDULUM, REDUNDANT

EPS = 1e-4  # m/s, over which friction changes its sign


def sliding(v: Any) -> Any:
    """The sign of a speed, made smooth."""
    return jnp.tanh(v / EPS)


# prescribed forces

GIVEN = System(
    lambda q, v, t, p: 0.5 * v @ (p["M"] @ v) + p["Q"] @ q,
    [Acceleration(lambda q, v, a, t, p: p["A"] @ a - p["b"], "given")],
    nonideal=lambda q, v, multipliers, t, p: p["C"],
    coordinates=("x", "y", "z", "w"),
)


@jax.jit
def given_motions(p: Any) -> Any:
    rest = np.zeros(4)
    return [acceleration(GIVEN, rest, rest, 0.0, p, formulation=law) for law in LAWS]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_prescribed_force_against_the_formula(rank: int) -> None:
    """a + M^-1/2 D^+ (b - A a) + M^-1/2 (I - D^+ D) M^-1/2 C with D = A M^-1/2, by numpy."""
    draw = np.random.default_rng(rank)
    F, A = draw.normal(size=(4, 4)), draw.normal(size=(3, rank)) @ draw.normal(size=(rank, 4))
    p = {
        "M": F @ F.T + np.eye(4),
        "Q": draw.normal(size=4),
        "A": A,
        "b": A @ draw.normal(size=4),
        "C": draw.normal(size=4),
    }
    values, vectors = np.linalg.eigh(p["M"])
    root = vectors / np.sqrt(values) @ vectors.T
    a, D = np.linalg.solve(p["M"], p["Q"]), A @ root
    inverse = np.linalg.pinv(D, rcond=1e-11)
    expected = a + root @ inverse @ (p["b"] - A @ a)
    expected += root @ (np.eye(4) - inverse @ D) @ root @ p["C"]
    for motion in given_motions(p):
        np.testing.assert_allclose(motion.qdd, expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(motion.nonideal_force, p["C"])
        left = p["M"] @ motion.qdd - p["Q"] - p["C"]
        np.testing.assert_allclose(motion.constraint_force, left, atol=1e-10)
        np.testing.assert_allclose(A.T @ motion.multipliers, left, atol=1e-10)
        assert motion.converged


def test_a_dependence_on_the_multipliers_is_detected() -> None:
    """The dependence is found in the operations, even if a part vanishes at most states."""

    def late(multipliers: Any, q: Any) -> Any:
        return q + jnp.maximum(multipliers[0] - 1e9, 0.0)

    m, q = jnp.zeros(2), jnp.zeros(3)
    assert depends_on(late, (m, q))
    assert depends_on(jax.jit(lambda m, q: (q, m)), (m, q))
    assert not depends_on(lambda m, q: -q + m.size, (m, q))
    assert not depends_on(lambda m, q: 1.0, (m, q))


# friction with a solution in closed form

PLANE = System(
    lambda q, v, t, p: p["m"] * (0.5 * v @ v - p["g"] * q[1]),
    [Holonomic(lambda q, t, p: q @ jnp.stack([jnp.sin(p["slope"]), jnp.cos(p["slope"])]), "plane")],
    nonideal=lambda q, v, multipliers, t, p: (
        -p["mu"]
        * jnp.abs(multipliers[0])
        * sliding(v @ jnp.stack([jnp.cos(p["slope"]), -jnp.sin(p["slope"])]))
        * jnp.stack([jnp.cos(p["slope"]), -jnp.sin(p["slope"])])
    ),
    coordinates=("x", "y"),
)
PLANE_P = {"m": 2.5, "g": 9.81, "slope": 0.6, "mu": 0.3}


DOWN = np.array([np.cos(0.6), -np.sin(0.6)])


@pytest.mark.slow
def test_a_block_slides_down_a_plane() -> None:
    """a = g (sin - mu cos), pressed on with m g cos, and the same by derivatives to mu."""
    p, ts = PLANE_P, np.linspace(0.0, 1.0, 5)
    pull, press = p["g"] * np.sin(p["slope"]), p["g"] * np.cos(p["slope"])

    def run(mu: Any) -> Any:
        start = 0 * DOWN, 0.5 * DOWN
        return simulate(PLANE, *start, ts, {**p, "mu": mu}, steps=FixedSteps(100))

    sol = run(p["mu"])
    along = 0.5 * ts + 0.5 * (pull - p["mu"] * press) * ts**2
    np.testing.assert_allclose(sol.q @ DOWN, along, rtol=1e-12, atol=1e-12)
    assert np.isnan(sol.energy_drift)
    slope = jax.jit(jax.grad(lambda mu: run(mu).q[-1] @ DOWN))(p["mu"])
    np.testing.assert_allclose(slope, -0.5 * press, rtol=1e-11)
    seen = observe(PLANE, sol, p)
    np.testing.assert_allclose(seen.multipliers["plane"], p["m"] * press, rtol=1e-12)
    np.testing.assert_allclose(seen.nonideal_force @ DOWN, -p["mu"] * p["m"] * press, rtol=1e-12)
    np.testing.assert_allclose(seen.constraint_force @ DOWN, 0.0, atol=1e-12)


def test_a_block_on_a_flat_slope_sticks() -> None:
    """tan(slope) < mu: it creeps at the speed where the smooth sign is tan(slope) / mu."""
    p = {**PLANE_P, "slope": 0.2}
    down = np.array([np.cos(0.2), -np.sin(0.2)])
    ts = np.linspace(0.0, 0.02, 5)
    sol = simulate(PLANE, 0 * down, 0 * down, ts, p, steps=FixedSteps(100))
    creep = EPS * np.arctanh(np.tan(0.2) / p["mu"])
    np.testing.assert_allclose(sol.v[-1] @ down, creep, rtol=1e-9)


def ring_friction(q: Any, v: Any, multipliers: Any, t: Any, p: Any) -> Any:
    """mu N against the velocity; every row is a multiple of q, so the push is along q."""
    rows = jnp.asarray(p["rows"])
    return -p["mu"] * jnp.abs(rows @ multipliers) * jnp.sqrt(q @ q) * v / jnp.sqrt(v @ v + EPS**2)


RINGS = {
    "one": (PENDULUM.system.constraints, np.ones(1), CoordinatePartition()),
    "redundant": (REDUNDANT.system.constraints, np.array([1e3, 1.0, 0.5]), UdwadiaKalaba()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RINGS)
def test_a_bead_on_a_rough_ring(name: str) -> None:
    """Without gravity w' = -mu w^2, so that the angle grows as log(1 + mu w0 t) / mu."""
    constraints, rows, law = RINGS[name]
    system = System(
        PENDULUM.system.lagrangian, constraints, coordinates=("x", "y"), nonideal=ring_friction
    )
    p = {"m": 1.3, "g": 0.0, "l": 2.0, "mu": 0.4, "rows": rows}
    ts = np.linspace(0.0, 2.0, 5)
    sol = simulate(system, [2.0, 0.0], [0.0, 6.0], ts, p, steps=FixedSteps(200), formulation=law)
    angle = np.log(1 + 0.4 * 3.0 * ts) / 0.4
    np.testing.assert_allclose(sol.q, 2 * np.stack([np.cos(angle), np.sin(angle)], 1), atol=1e-8)


def rough_rod(q: Any, v: Any, multipliers: Any, t: Any, p: Any) -> Any:
    """The rod pushes with sqrt(lambda1^2 + lambda2^2), whose slope at zero does not exist."""
    angle = p["omega"] * t
    push = jnp.sqrt(multipliers @ multipliers)
    along = jnp.stack([jnp.cos(angle), jnp.sin(angle), 0.0])
    return -p["mu"] * push * sliding(v[2]) * along


@pytest.mark.slow
def test_a_bead_on_a_rough_turning_rod() -> None:
    """Singular M: r'' = w^2 r - 2 mu w r', so r = sum of c exp(w (-mu +- sqrt(1 + mu^2)) t)."""
    model = make("bead_on_rod")
    system = System(
        model.system.lagrangian, model.system.constraints, coordinates=model.system.coordinates,
        nonideal=rough_rod,
    )  # fmt: skip
    w, mu, ts = 1.5, 0.35, np.linspace(0.0, 1.5, 4)
    q, v = model.initial({"r": 0.4, "r_rate": 0.2}, {"omega": w})
    p = {"m": 1.3, "omega": w, "mu": mu}
    law = CoordinatePartition()
    sol = simulate(system, q, v, ts, p, steps=FixedSteps(200), formulation=law)
    rates = w * (-mu + np.sqrt(1 + mu**2) * np.array([1.0, -1.0]))
    c = np.linalg.solve(np.stack([np.ones(2), rates]), [0.4, 0.2])
    np.testing.assert_allclose(sol.q[:, 2], np.exp(np.outer(ts, rates)) @ c, rtol=1e-10)
    rest = acceleration(system, [0.4, 0.0, 0.4], [0.0, 0.4 * w, 0.0], 0.0, p, formulation=law)
    assert rest.converged
    np.testing.assert_allclose(rest.qdd[2], w**2 * 0.4, rtol=1e-12)


# friction that acts back on what presses: a slider with an eccentric mass on a guide

SLIDER = System(
    lambda q, v, t, p: (
        0.5 * v @ (jnp.stack([1.0, p["c"], p["c"], 2.0]).reshape(2, 2) @ v) - p["g"] * q[1]
    ),
    [Holonomic(lambda q, t, p: q[1], "guide")],
    nonideal=lambda q, v, multipliers, t, p: jnp.stack(
        [-p["mu"] * jnp.abs(multipliers[0]) * sliding(v[0]), 0.0]
    ),
    coordinates=("x", "y"),
)


ECCENTRIC = 0.8


def slider(mu: Any, g: Any, law: Any) -> Any:
    params = {"mu": mu, "g": g, "c": ECCENTRIC}
    return acceleration(SLIDER, [0.0, 0.0], [1.0, 0.0], 0.0, params, formulation=law)


@jax.jit
@jax.vmap
def sliders(mu: Any, g: Any) -> Any:
    return [slider(mu, g, law) for law in LAWS]


@pytest.mark.slow
@pytest.mark.parametrize("g", [9.81, -9.81])
def test_friction_and_pressure_determine_each_other(g: float) -> None:
    """x'' = -mu |lambda| and lambda = g + c x'': lambda = g - mu c |lambda|, for all laws."""
    mu = np.array([0.0, 0.3, 1.2])
    expected = g / (1 + np.sign(g) * mu * ECCENTRIC)
    for motion in sliders(mu, np.full(3, g)):
        assert motion.converged.all()
        np.testing.assert_allclose(motion.multipliers[:, 0], expected, rtol=1e-11)
        np.testing.assert_allclose(motion.qdd[:, 0], -mu * np.abs(expected), rtol=1e-11, atol=1e-12)


def test_derivatives_of_the_fixed_point() -> None:
    def press(mu: Any) -> Any:
        return slider(mu, 9.81, UdwadiaKalaba()).multipliers[0]

    mu, c, g = np.array([0.3, 1.2]), ECCENTRIC, 9.81
    by_mu = jax.grad(press)
    slope, bend = jax.jit(jax.vmap(lambda mu: (by_mu(mu), jax.jacfwd(by_mu)(mu))))(mu)
    np.testing.assert_allclose(slope, -g * c / (1 + mu * c) ** 2, rtol=1e-12)
    np.testing.assert_allclose(bend, 2 * g * c**2 / (1 + mu * c) ** 3, rtol=1e-11)


def test_a_guide_without_pressure() -> None:
    """The norm of the multipliers is not differentiable at zero."""
    system = System(
        SLIDER.lagrangian, SLIDER.constraints, coordinates=("x", "y"),
        nonideal=lambda q, v, m, t, p: jnp.stack([-jnp.sqrt(m @ m), 0.0]),
    )  # fmt: skip
    motion = acceleration(system, [0.0, 0.0], [1.0, 0.0], 0.0, {"g": 0.0, "c": ECCENTRIC})
    assert motion.converged
    np.testing.assert_array_equal(motion.qdd, [0.0, 0.0])


@pytest.mark.slow
def test_none_or_several_solutions_are_detected() -> None:
    """mu c > 1: lambda = g - mu c |lambda| has two solutions for g > 0, none for g < 0."""
    for motion in sliders(np.array([1.2, 1.3, 1.3]), np.array([9.81, 9.81, -9.81])):
        assert motion.converged.tolist() == [True, False, False]
        assert np.isfinite(motion.qdd).all()
        np.testing.assert_allclose(motion.nonideal_force[1:, 0], -1.3 * 9.81, rtol=1e-12)


@pytest.mark.slow
def test_a_jammed_slider_has_a_status_and_its_neighbours_go_on() -> None:
    ts = np.linspace(0.0, 0.4, 5)

    @jax.jit
    @jax.vmap
    def run(mu: Any) -> Any:
        params = {"mu": mu, "g": 9.81, "c": 0.8}
        return simulate(SLIDER, [0.0, 0.0], [2.0, 0.0], ts, params, steps=FixedSteps(4))

    mixed, alone = run(np.array([0.1, 1.4, 0.2])), run(np.array([0.1, 0.1, 0.2]))
    assert mixed.status.tolist() == [Status.OK, Status.NONIDEAL_FAILED, Status.OK]
    assert mixed.t_failed[1] == 0.0
    assert np.isnan(mixed.q[1, 1:]).all()
    for k in (0, 2):
        np.testing.assert_array_equal(mixed.q[k], alone.q[k])
        np.testing.assert_array_equal(mixed.v[k], alone.v[k])
    a = -0.1 * 9.81 / (1 + 0.1 * 0.8)
    np.testing.assert_allclose(mixed.q[0, :, 0], 2.0 * ts + 0.5 * a * ts**2, rtol=1e-12)


def test_a_force_that_is_nan_is_not_called_friction() -> None:
    system = System(
        SLIDER.lagrangian, SLIDER.constraints, coordinates=("x", "y"),
        nonideal=lambda q, v, m, t, p: jnp.stack([jnp.sqrt(0.25 - t) * m[0], 0.0]),
    )  # fmt: skip
    sol = simulate(
        system,
        [0.0, 0.0],
        [1.0, 0.0],
        np.linspace(0.0, 0.4, 5),
        {"g": 1.0, "c": 0.0},
        throw=False,
        steps=FixedSteps(1),
    )
    assert sol.status == Status.NONFINITE
    assert np.isfinite(sol.q[:3]).all()


# the house around it


def test_systems_without_such_forces_are_unchanged() -> None:
    motion = acceleration(PENDULUM.system, PENDULUM.q, PENDULUM.v, 0.0, PENDULUM.params)
    np.testing.assert_array_equal(motion.nonideal_force, [0.0, 0.0])
    assert motion.converged
    ideal = System(SLIDER.lagrangian, SLIDER.constraints, coordinates=("x", "y"))
    params = {"g": 1.0, "c": 0.2, "mu": 0.1}
    state = jnp.zeros(2), jnp.zeros(2), jnp.zeros(()), params
    assert conserves_energy(ideal, *state)
    assert not conserves_energy(SLIDER, *state)
