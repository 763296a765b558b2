"""Mechanisms in spins: M and Q by recursions, motions as in rates, names, starts and loads."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from tests.parts.test_dynamics import mass_and_force, spatial_tree

TS = jnp.linspace(0.0, 5.0, 6)
CENTER = (0.1, 0.02, -0.2)


def free_body(velocities: Any) -> tuple[jp.Mechanism, dict[str, jp.Start]]:
    body = jp.spatial_body("body", mass=2.0, inertia=(0.1, 0.2, 0.25), center=CENTER)
    pull = jp.spring("pull", jp.ground, (0, 0, 2.0), body, (0.1, 0, 0), stiffness=30.0, length=0.5)
    drag = jp.damper("drag", jp.ground, (1.0, 0, 0), body, (0, 0.2, 0), damping=0.3)
    start = jp.Start((0, 0, 1.0), (0.8, 0.6, 0, 0), velocity=(0.5, 0, 0.2), spin=(0.3, 2.0, 0.2))
    mechanism = jp.Mechanism([body], [], [jp.gravity(), pull, drag], velocities=velocities)
    return mechanism, {"body": start}


def linkage(velocities: Any) -> tuple[jp.Mechanism, dict[str, jp.Start]]:
    """A crank and a rocker with a rod on two balls, of which one closes the loop."""
    bodies = crank, rod, rocker = [
        jp.spatial_body(name, mass=1.0, inertia=(0.05, 0.05, 0.02))
        for name in ("crank", "rod", "rocker")
    ]
    joints = [
        jp.revolute("A", jp.ground, (0, 0, 0), crank, (0, 0, 0), axis=(0, 0, 1)),
        jp.spherical("B", crank, (0.2, 0, 0), rod, (-0.4, 0, 0)),
        jp.revolute("D", jp.ground, (0.9, 0.3, 0), rocker, (0, 0, 0), axis=(1, 0, 0)),
        jp.spherical("C", rod, (0.4, 0, 0), rocker, (-0.1, 0, -0.5)),
    ]
    drag = jp.damper("drag", jp.ground, (0.5, 0.5, 0.5), rod, (0, 0.1, 0), damping=0.3)
    mechanism = jp.Mechanism(bodies, joints, [jp.gravity(), drag], cut=["C"], velocities=velocities)
    return mechanism, {"A": jp.Start(0.3, velocity=1.0), "D": jp.Start(0.2)}


def pendulum(velocities: Any) -> tuple[jp.Mechanism, dict[str, jp.Start]]:
    """Two bodies on balls; in one of them the body before is the second one."""
    upper, lower = (
        jp.spatial_body(name, mass=1.0, inertia=(0.02, 0.03, 0.04), center=CENTER)
        for name in ("upper", "lower")
    )
    joints = [
        jp.spherical("pivot", jp.ground, (0, 0, 0), upper, (0, 0, 0.3)),
        jp.spherical("link", lower, (0, 0, 0.2), upper, (0.1, 0, -0.3)),
    ]
    drag = jp.damper("drag", jp.ground, (1.0, 1.0, 0), lower, (0, 0.1, 0), damping=0.5)
    twist = jp.torsion_damper("twist", upper, lower, axis=(0, 0, 1), damping=0.02)
    mechanism = jp.Mechanism(
        [upper, lower], joints, [jp.gravity(), drag, twist], velocities=velocities
    )
    start = jp.Start((0.9, 0.3, 0.1, 0.3), velocity=(0.1, -0.2, 0.0, 0.0))
    return mechanism, {"pivot": start, "link": jp.Start((0.8, 0, 0.6, 0))}


def consistent(mechanism: jp.Mechanism, starts: dict[str, jp.Start]) -> tuple[Any, Any]:
    q, v = mechanism.guess(starts)
    fixed = [name for name in mechanism.system.coordinates if name == "A.angle"]
    return jm.assemble(mechanism.system, q, v, 0.0, {}, fixed=fixed)


@pytest.mark.parametrize(
    "made",
    [
        free_body,
        pytest.param(pendulum, marks=pytest.mark.slow),
        pytest.param(linkage, marks=pytest.mark.slow),
    ],
)
def test_motions_are_those_in_rates(made: Any) -> None:
    mechanism, starts = made("rates")
    q0, v0 = consistent(mechanism, starts)
    solutions, values = [], []
    for velocities in ("rates", "spins"):
        mechanism, starts = made(velocities)
        system, body = mechanism.system, mechanism.bodies[-1].name
        u0 = system.dynamics.from_speeds(q0, v0, jnp.zeros(()), {})
        sol = jm.simulate(system, q0, u0, TS, {}, steps=jm.FixedSteps(1000))
        assert sol.status == jm.Status.OK
        assert sol.position_residual.max() < 1e-13
        q, v = sol.q[-1], sol.v[-1]
        observation = jm.observe(system, sol, {})
        values.append([
            mechanism.point(body, CENTER, q), mechanism.velocity(body, CENTER, q, v),
            mechanism.acceleration(body, CENTER, q, v, observation.qdd[-1]),
            mechanism.frame(body, q).axes, mechanism.momentum(q, v),
            observation.energy, observation.loads, observation.multipliers.get("C", 0.0),
            system.dynamics.speeds(q, v, sol.ts[-1], {}),
        ])  # fmt: skip
        solutions.append(sol)
    rates, spins = solutions
    np.testing.assert_allclose(spins.q, rates.q, rtol=0, atol=1e-9)
    for ours, expected in zip(*map(jax.tree.leaves, values), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_mass_and_force_are_the_projected_ones() -> None:
    system = spatial_tree(1, velocities="spins").system
    projected = replace(system, quasi_mass_and_force=None)
    draw = np.random.default_rng(1)
    q, v = draw.normal(size=system.n), draw.normal(size=system.n_velocities)
    params = {"l": 0.5, "m": 1.1, "k": 15.0, "c": 0.4}
    run = jax.jit(lambda *state: [mass_and_force(s, *state) for s in (system, projected)])
    (M, Q), (expected, force) = run(*system.arguments(q, v, 0.4, params))
    np.testing.assert_allclose(M, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(Q, force, rtol=1e-12, atol=1e-12 * np.abs(force).max())


@pytest.mark.slow
def test_names_and_starts_of_bodies() -> None:
    body = jp.spatial_body("body", mass=2.0, inertia=(0.1, 0.2, 0.25))
    start = jp.Start((1, 2, 3), jp.quaternion((1, 2, 3), 0.7), velocity=(4, 5, 6), spin=(1, 0, 2))
    free = jp.Mechanism([body], velocities="spins")
    q, v = free.guess({"body": start})
    axes = free.frame("body", q).axes
    np.testing.assert_allclose(v, [4, 5, 6, *axes.T @ jnp.array([1.0, 0, 2.0])], atol=1e-15)
    rates = ("body.x.rate", "body.y.rate", "body.z.rate")
    spins = ("body.spin_x", "body.spin_y", "body.spin_z")
    assert free.system.velocities == (*rates, *spins)
    assert [free.system.unit(name) for name in (rates[0], spins[0])] == ["m/s", "rad/s"]
    np.testing.assert_allclose(
        free.system.equations(q, v).M, np.diag([2, 2, 2, 0.1, 0.2, 0.25]), atol=1e-15
    )
    assert "coordinates 7, velocities 6, constraint equations 0" in repr(free)
    sol = jm.simulate(free.system, q, v, [0.0, 0.1], {})
    np.testing.assert_array_equal(sol["body.spin_y"], sol.v[:, 4])
    np.testing.assert_array_equal(sol["body.x.rate"], sol.v[:, 0])
    drawn = free.geometry(q, 0.0, {})
    jax.tree.map(np.testing.assert_array_equal, drawn, jp.Mechanism([body]).geometry(q, 0.0, {}))


@pytest.mark.slow
def test_in_the_coordinates_of_bodies() -> None:
    body = jp.spatial_body("body", mass=2.0, inertia=(0.1, 0.2, 0.25))
    pivot = jp.spherical("pivot", jp.ground, (0, 0, 0), body, (0, 0, 0.4))
    qdd = []
    for velocities in ("rates", "spins"):
        mechanism = jp.Mechanism(
            [body], [pivot], [jp.gravity()], coordinates="bodies", velocities=velocities
        )
        start = jp.Start((0.4, 0, 0), jp.quaternion((0, 1, 0), -jnp.pi / 2), spin=(1.0, 0, 0))
        q, v = mechanism.guess({"body": start})
        motion = jm.acceleration(mechanism.system, q, v)
        qdd.append(mechanism.acceleration("body", (0, 0, 0), q, v, motion.qdd))
        assert mechanism.system.n_velocities == {"rates": 7, "spins": 6}[velocities]
    np.testing.assert_allclose(*qdd, atol=1e-12)


def test_few_operations() -> None:
    def operations(velocities: Any) -> int:
        mechanism, starts = pendulum(velocities)
        q, v = mechanism.guess(starts)
        state = (jnp.broadcast_to(x, (8, *x.shape)) for x in (q, v))
        explained = jm.compiler.explain(
            lambda q, v: jm.acceleration(mechanism.system, q, v, 0.0, {}).qdd, *state
        )
        return sum(part.operations for part in explained.parts)

    assert operations("spins") < 0.6 * operations("rates")


def test_a_mechanism_without_quaternions_keeps_its_rates() -> None:
    bar = jp.planar_body("bar", mass=1.0, inertia=1.0)
    hinge = jp.revolute("hinge", jp.ground, (0, 0), bar, (1, 0))
    assert jp.Mechanism([bar], [hinge], velocities="spins").system.velocities == ()
