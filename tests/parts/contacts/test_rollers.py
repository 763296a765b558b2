"""Ellipsoids and curves that roll: limits, closed forms, and a rattleback."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from tests.parts.poses import assert_balanced, matrix, pair, rows

O, UP = (0, 0, 0), (0, 0, 1)  # noqa: E741
PA, PB, N = (0.3, -0.2, 0.5), (-0.1, 0.4, 0.2), (1.0, -2.0, 2.0)
acceleration = jax.jit(jm.acceleration, static_argnums=0)


def random_pose() -> Any:
    draw = np.random.default_rng(2)
    e = draw.normal(size=(2, 4))
    e = e / np.linalg.norm(e, axis=1)[:, None]
    return jnp.asarray(np.concatenate([draw.normal(size=3), e[0], draw.normal(size=3), e[1]]))


def test_an_ellipsoid_with_equal_semiaxes_is_a_sphere() -> None:
    (a, b), q = pair(3), random_pose()
    sphere = jp.rolling_sphere("J", a, PA, b, PB, normal=N, radius=0.4)
    ball = jp.rolling_ellipsoid("J", a, PA, b, PB, normal=N, semiaxes=(0.4, 0.4, "r"))
    first = rows(jp.Mechanism([a, b], [sphere], coordinates="bodies"), q)
    second = rows(jp.Mechanism([a, b], [ball], params={"r": 0.4}, coordinates="bodies"), q)
    for name, A in first.items():
        np.testing.assert_allclose(second[name], A, atol=1e-14)


def test_the_contact_of_an_ellipsoid_is_its_lowest_point() -> None:
    (a, b), q, sizes = pair(3), random_pose(), np.array([0.5, 0.3, 0.2])
    joint = jp.rolling_ellipsoid("J", a, PA, b, PB, normal=N, semiaxes=tuple(sizes))
    mechanism = jp.Mechanism([a, b], [joint], coordinates="bodies")
    n = matrix(np.asarray(q[3:7])) @ (np.array(N) / 3)
    z = np.random.default_rng(0).normal(size=(400_000, 3))
    surface = sizes * z / np.linalg.norm(z, axis=1)[:, None] + np.array(PB)
    points = np.asarray(q[7:10]) + surface @ matrix(np.asarray(q[10:])).T
    base = np.asarray(q[:3]) + matrix(np.asarray(q[3:7])) @ np.array(PA)
    level = mechanism.system.dynamics.position_level(q, jnp.zeros(()), {})
    np.testing.assert_allclose(level[-1], ((points - base) @ n).min(), atol=1e-5)
    A_of = rows(mechanism, q)
    assert_balanced(mechanism, q, A_of["J.slip"].T @ np.array([0.7, -0.4]))
    assert_balanced(mechanism, q, A_of["J.contact"][0])


def test_a_spheroid_rocks_as_its_curvature_says() -> None:
    """w^2 = m g (R - c) / (I + m c^2), with the radius of curvature R = a^2 / c of its pole."""
    m, g, a, c = 1.3, 9.81, 0.3, 0.2
    body = jp.spatial_body("stone", mass=m, inertia=(0.02, 0.02, 0.03))
    table = jp.rolling_ellipsoid("table", jp.ground, O, body, O, normal=UP, semiaxes=("a", "a", c))
    mechanism = jp.Mechanism([body], [table], [jp.gravity(g)], {"a": a})

    def twist(tilt: Any, a: Any) -> Any:
        """The rate of the spin about y, when released at a small tilt about it."""
        height = jnp.sqrt((a * jnp.sin(tilt)) ** 2 + (c * jnp.cos(tilt)) ** 2)
        q, v = mechanism.guess({
            "stone": jp.Start(jnp.stack([0.0, 0.0, height]), jp.quaternion((0, 1, 0), tilt))
        })  # fmt: skip
        return 2 * acceleration(mechanism.system, q, v, 0.0, {"a": a}).qdd[5]

    @jax.jit
    def both(a: Any) -> Any:
        stiffness = lambda a: -jax.jacfwd(twist)(0.0, a)  # noqa: E731
        return stiffness(a), jax.jacfwd(stiffness)(a)

    def exact(a: Any) -> Any:
        return m * g * (a**2 / c - c) / (0.02 + m * c**2)

    np.testing.assert_allclose(both(a), [exact(a), jax.grad(exact)(a)], rtol=1e-12)


@pytest.mark.slow
def test_a_rattleback_turns_back_in_one_sense_only() -> None:
    """The stone of Kane and Levinson (Int. J. Non-Linear Mechanics 17, 1982), without drag."""
    inertia = ((2e-4, -2e-5, 0), (-2e-5, 1.6e-3, 0), (0, 0, 1.7e-3))
    stone, sizes = jp.spatial_body("stone", mass=1.0, inertia=inertia), (0.2, 0.03, 0.02)
    at = (0, 0, 0.01)
    table = jp.rolling_ellipsoid("table", jp.ground, O, stone, at, normal=UP, semiaxes=sizes)
    mechanism = jp.Mechanism([stone], [table], [jp.gravity()])
    tilted = jp.quaternion((1, 1, 0), np.deg2rad(0.7))
    R = matrix(np.asarray(tilted))
    height = np.linalg.norm(sizes * R[2])
    arm = R @ (np.array(at) - np.square(sizes) * R[2] / height)  # to the contact

    def motion(spin: Any) -> Any:
        turning = jnp.stack([0.0 * spin, 0.0 * spin, spin])
        start = jp.Start((0, 0, -arm[2]), tilted, -jnp.cross(turning, jnp.asarray(arm)), turning)
        q, v = mechanism.guess({"stone": start})
        return jm.simulate(
            mechanism.system, q, v, [0.0, 4.5], {}, steps=jm.FixedSteps(per_save=8000)
        )

    sol = jax.vmap(motion)(jnp.array([-5.0, 5.0]))
    spins = 2 * (sol.q[..., 3] * sol.v[..., 6] - sol.q[..., 6] * sol.v[..., 3])
    assert spins[0, -1] > 2
    assert spins[1, -1] > 4
    assert (sol.energy_drift < 1e-5).all()
    assert (sol.velocity_residual < 1e-12).all()


def ellipse(s: Any, t: Any, p: Any) -> Any:
    return p["a"] * jnp.cos(s), p["b"] * jnp.sin(s)


@pytest.mark.slow
def test_an_ellipse_travels_by_the_length_of_its_arc() -> None:
    """Its centre keeps ahead of the contact by h', the derivative of the support function."""
    params, turn = {"a": 0.5, "b": 0.3}, 2.0
    body, o = jp.planar_body("egg", mass=1.0, inertia=0.1), (0, 0)
    road = jp.rolling_profile("road", jp.ground, o, body, o, profile=ellipse, normal=(0, 1))
    roll = jp.given_angle("motor", jp.ground, body, lambda t, p: -turn * t)
    mechanism = jp.Mechanism([body], [road, roll], params=params)
    q, v = mechanism.guess({"egg": jp.Start((0.0, 0.3), velocity=(0.6, 0.0), spin=-turn)})
    ts = jnp.linspace(0.0, 1.2, 4)
    sol = jm.simulate(mechanism.system, q, v, ts, params, steps=jm.FixedSteps(per_save=50))

    def height(angle: Any) -> Any:
        return np.hypot(0.5 * np.sin(angle), 0.3 * np.cos(angle))

    # The contact at the angle u of its normal: the arc is the integral of h + h'', that is of
    # (a b)^2 / h^3, and the centre is behind the contact by h'.
    u, weights = np.polynomial.legendre.leggauss(40)
    for t, (x, y, *_) in zip(np.asarray(ts), np.asarray(sol.q), strict=True):
        angle = turn * t
        arc = angle / 2 * (weights @ ((0.5 * 0.3) ** 2 / height(angle / 2 * (u + 1)) ** 3))
        slope = (0.5**2 - 0.3**2) * np.sin(angle) * np.cos(angle) / height(angle)
        np.testing.assert_allclose(y, height(angle), atol=1e-14)
        np.testing.assert_allclose(x, arc - slope, atol=1e-9)
