"""Bodies: kinetic energy about any point, free motion, loads and starts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from tests.parts.poses import hamilton, load, matrix, plane_matrix

T0 = jnp.zeros(())
SEEDS = range(3)
equations_at = jax.jit(jm.System.equations, static_argnums=0)


def cloud(size: int, seed: int) -> tuple[Any, Any]:
    """Point masses that make a rigid body: masses (7,) and places along its axes (7, size)."""
    draw = np.random.default_rng(seed)
    return draw.uniform(0.1, 1.0, 7), draw.normal(size=(7, size))


def moments(m: Any, x: Any) -> tuple[float, Any, Any]:
    """Mass, static moment and inertia about the origin, by their definitions."""
    if x.shape[1] == 2:
        return m.sum(), m @ x, m @ (x**2).sum(1)
    outer = np.einsum("k,ki,kj->ij", m, x, x)
    return m.sum(), m @ x, np.trace(outer) * np.eye(3) - outer


def three_ways(size: int, seed: int) -> list[tuple[Any, Any]]:
    """One body about three points, each with the place of its reference point in the cloud."""
    make = jp.planar_body if size == 2 else jp.spatial_body
    m, x = cloud(size, seed)
    mass, S, _ = moments(m, x)
    center = S / mass
    about_center = moments(m, x - center)[2]
    elsewhere = np.random.default_rng(seed + 50).normal(size=size)
    _, S_there, I_there = moments(m, x - elsewhere)
    return [
        (make("b", mass=mass, inertia=about_center), center),
        (make("b", mass=mass, inertia=about_center, center=center - elsewhere), elsewhere),
        (make("b", mass=mass, inertia=I_there, static_moment=S_there), elsewhere),
    ]


def pose(size: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """Attitude, rotation matrix, velocity of the cloud's origin, spin along the ground's axes."""
    draw = np.random.default_rng(seed + 100)
    u, e, angle = draw.normal(size=size), draw.normal(size=4), draw.uniform(-3, 3)
    if size == 2:
        return angle, plane_matrix(angle), u, draw.normal()
    e = e / np.linalg.norm(e)
    return e, matrix(e), u, draw.normal(size=3)


def swept(w: Any, arm: Any) -> Any:
    return w * np.array([-arm[1], arm[0]]) if arm.size == 2 else np.cross(w, arm)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [2, 3])
def test_kinetic_energy_about_any_point_is_that_of_the_point_masses(size: int, seed: int) -> None:
    m, x = cloud(size, seed)
    attitude, R, u, w = pose(size, seed)
    velocities = [u + swept(w, R @ place) for place in x]
    wanted = 0.5 * sum(mk * vk @ vk for mk, vk in zip(m, velocities, strict=True))
    for body, reference in three_ways(size, seed):
        mechanism = jp.Mechanism([body])
        velocity = u + swept(w, R @ reference)
        q, v = mechanism.guess({"b": jp.Start(R @ reference, attitude, velocity, w)})
        found = mechanism.system.lagrangian(q, v, 0.0, {})
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.parametrize("size", [2, 3])
def test_potential_energy_in_gravity_is_that_of_the_point_masses(size: int) -> None:
    m, x = cloud(size, 0)
    attitude, R, _, _ = pose(size, 0)
    heights = (x @ R.T)[:, -1]
    for body, reference in three_ways(size, 0):
        mechanism = jp.Mechanism([body], forces=[jp.gravity("g")], params={"g": 9.81})
        q, v = mechanism.guess({"b": jp.Start(R @ reference, attitude)})
        found = mechanism.system.lagrangian(q, v, 0.0, {"g": 9.81})
        np.testing.assert_allclose(found, -9.81 * m @ heights, rtol=1e-13)


def free_spin() -> tuple[Any, Any, Any]:
    J, e, w = np.array([1.0, 2.0, 2.5]), np.array([0.5, -0.1, 0.7, 0.5]), np.array([0.9, 0.2, 0.6])
    return J, e / np.linalg.norm(e), w


def test_free_body_is_the_model_of_the_catalogue() -> None:
    """Equations of motion entry by entry: spin of the ready model and of the part."""
    J, e, w = free_spin()
    model = jm.models.free_body()
    own = model.initial({"e": e, "w": w}, {"J": J})
    mechanism = jp.Mechanism([jp.spatial_body("b", mass=2.0, inertia="J")], params={"J": J})
    start = jp.Start((1.0, 2.0, 3.0), attitude=e, velocity=(0.1, 0.2, 0.3), spin=matrix(e) @ w)
    q, v = mechanism.guess({"b": start})
    np.testing.assert_allclose(q[3:], own[0], atol=1e-15)
    np.testing.assert_allclose(v[3:], own[1], atol=1e-15)
    theirs = equations_at(model.system, *own, 0.0, {"J": J})
    mine = equations_at(mechanism.system, q, v, 0.0, {"J": J})
    np.testing.assert_allclose(mine.M[3:, 3:], theirs.M, atol=1e-14)
    np.testing.assert_allclose(mine.M[:3, :], 2.0 * np.eye(3, 7), atol=1e-14)
    np.testing.assert_allclose(mine.Q, [0, 0, 0, *theirs.Q], atol=1e-14)
    np.testing.assert_allclose(mine.A[:, 3:], theirs.A, atol=1e-15)
    np.testing.assert_allclose(mine.b, theirs.b, atol=1e-15)


def test_free_body_about_another_point_obeys_euler() -> None:
    """J w' = J w x w along the body's axes, and the centre of mass is not accelerated."""
    J, e, w = free_spin()
    c = np.array([0.3, -0.2, 0.4])
    body = jp.spatial_body("b", mass=2.0, inertia=tuple(J), center=c)
    mechanism = jp.Mechanism([body])
    q, v = mechanism.guess({"b": jp.Start(np.zeros(3), e, np.zeros(3), matrix(e) @ w)})
    qdd = solved(equations_at(mechanism.system, q, v))

    def center(q: Any) -> Any:
        return mechanism.frame("b", q).point(jnp.asarray(c))

    moved = jax.jvp(lambda q, v: jax.jvp(center, (q,), (v,))[1], (q, v), (v, qdd))[1]
    np.testing.assert_allclose(moved, 0, atol=1e-14)
    back = e * np.array([1, -1, -1, -1])
    turning = 2 * hamilton(back, np.asarray(qdd[3:]))[1:]  # w' = 2 vec(conj(e) e'')
    np.testing.assert_allclose(turning, np.cross(J * w, w) / J, atol=1e-14)


def solved(eom: jm.laws.EquationsOfMotion) -> Any:
    """qdd of [M A^T; A 0] (qdd, -lambda) = (Q, b), rows redundant or not."""
    m = eom.A.shape[0]
    left = np.block([[np.asarray(eom.M), np.asarray(eom.A).T], [eom.A, np.zeros((m, m))]])
    right = np.concatenate([eom.Q, eom.b])
    return jnp.asarray(np.linalg.lstsq(left, right, rcond=1e-12)[0][: eom.M.shape[0]])


@pytest.mark.parametrize("size", [2, 3])
def test_generalized_force_does_the_work_of_force_and_torque(size: int) -> None:
    body, _ = three_ways(size, 1)[0]
    mechanism, draw = jp.Mechanism([body]), np.random.default_rng(9)
    attitude, _, u, w = pose(size, 1)
    q, v = mechanism.guess({"b": jp.Start(np.ones(size), attitude, u, w)})
    force, torque = draw.normal(size=size), draw.normal(size=np.shape(w))
    generalized = body.generalized(q, (jnp.asarray(force), jnp.asarray(torque)))
    np.testing.assert_allclose(generalized @ v, force @ u + np.sum(torque * w), rtol=1e-13)
    back = load(mechanism, "b", q, generalized)
    np.testing.assert_allclose(back[0], force, atol=1e-14)
    np.testing.assert_allclose(back[1], torque, atol=1e-14)


def test_starts_can_be_differentiated_and_vectorized() -> None:
    mechanism = jp.Mechanism([jp.spatial_body("b", mass=1.0, inertia=(1, 1, 1))])

    def start(angle: Any) -> Any:
        attitude = jp.quaternion((0, 0, 1), angle)
        return mechanism.guess({"b": jp.Start((0, 0, 0), attitude, spin=(0, 0, angle))})

    _, rate = jax.jit(jax.vmap(start))(jnp.array([0.2, 0.4]))
    dq, _ = jax.jit(jax.jacfwd(start))(0.2)
    np.testing.assert_allclose(rate[1, 3:], [-0.2 * np.sin(0.2), 0, 0, 0.2 * np.cos(0.2)])
    np.testing.assert_allclose(dq[3:], [-0.5 * np.sin(0.1), 0, 0, 0.5 * np.cos(0.1)], atol=1e-15)


def test_values_of_a_body_come_from_parameters_and_time() -> None:
    """A name, a function of (t, params), and a number are the same value."""
    given = [
        (2.0, (0.5, 0.0)),
        ("m", ("l", 0)),
        (lambda t, p: p["half"] * (2 + t), lambda t, p: jnp.stack([p["l"], 0 * t])),
    ]
    params = {"m": 2.0, "l": 0.5, "half": 1.0}
    energies = []
    for mass, center in given:
        body = jp.planar_body("b", mass=mass, inertia=0.3, center=center)
        mechanism = jp.Mechanism([body], params=params)
        state = jnp.array([0.1, 0.2, 0.3]), jnp.array([1.0, 2.0, 3.0])
        energies.append(mechanism.system.lagrangian(*state, T0, params))
    np.testing.assert_allclose(energies[1:], energies[0], rtol=1e-15)
