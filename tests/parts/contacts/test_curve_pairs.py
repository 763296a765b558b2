"""Curves that roll on curves: circles as planets, equal ellipses, and misuse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.parts.contacts.profiles import touching

O = (0, 0)  # noqa: E741
M, G, INERTIA = 1.3, 9.81, 0.02


def circle(radius: str, sense: str, shift: float = 0.0) -> Any:
    return lambda s, t, p: (
        shift + p[radius] * jnp.cos(s), p[sense] * p[radius] * jnp.sin(s)
    )  # fmt: skip


def test_a_disk_on_a_circle_is_a_planet() -> None:
    """An arm of length l = R +- r holds it: (m + I / r^2) l phi'' = m g sin(phi), from the top.

    By the teeth of a gear, the disk turns by (1 +- R / r) phi.
    """
    planet = jp.planar_body("planet", mass=M, inertia=INERTIA)
    track, disk = circle("R", "side"), circle("r", "sense", 0.02)
    roll = jp.rolling_profiles(
        "roll", jp.ground, (0.3, 0.1), planet, (-0.02, 0), profile_a=track, profile_b=disk
    )
    params = {"R": 0.7, "r": 0.25, "side": 1.0, "sense": -1.0}  # the sense of the disk is all one
    mechanism = jp.Mechanism([planet], [roll], [jp.gravity(G)], params, coordinates="bodies")

    @jax.jit
    @jax.vmap
    def planets(phi: Any, side: Any) -> Any:
        p = params | {"side": side}
        arm, gain = p["R"] + side * p["r"], 1 + side * p["R"] / p["r"]

        def pose(phi: Any) -> Any:
            return jnp.stack([0.3 + arm * jnp.sin(phi), 0.1 + arm * jnp.cos(phi), -gain * phi])

        q, rate = jax.jvp(pose, (phi,), (2.0 + 0 * phi,))
        levels = mechanism.system.dynamics.position_level(q, 0.0 * phi, p)
        slips = mechanism.system.dynamics.velocity_level(q, rate, 0.0 * phi, p)
        motion = jm.acceleration(mechanism.system, q, rate, 0.0, p)
        exact = M * G * jnp.sin(phi) / (M + INERTIA / p["r"] ** 2) / arm
        return levels, slips, -motion.qdd[2] / gain, exact

    angles, sides = jnp.linspace(-3.0, 3.0, 7), jnp.repeat(jnp.array([1.0, -1.0]), 7)
    levels, slips, accelerations, expected = planets(jnp.tile(angles, 2), sides)
    np.testing.assert_allclose(levels, 0, atol=1e-15)
    np.testing.assert_allclose(slips, 0, atol=2e-15)
    np.testing.assert_allclose(accelerations, expected, atol=1e-12)


A, B = 0.5, 0.4
E = np.sqrt(1 - (B / A) ** 2)


def about_focus(side: int) -> Any:
    return lambda s, t, p: (p["a"] * jnp.cos(s) - side * A * E, p["b"] * jnp.sin(s))


def other_angle(f: Any) -> Any:
    """tan(g / 2) = (1 - e) / (1 + e) tan(f / 2), continued over full turns."""
    turns = jnp.round(f / (2 * jnp.pi))
    half = (f - 2 * jnp.pi * turns) / 2
    return 2 * jnp.arctan2((1 - E) * jnp.sin(half), (1 + E) * jnp.cos(half)) + 2 * jnp.pi * turns


@pytest.mark.slow
def test_equal_ellipses_roll_about_their_foci() -> None:
    """The far focus of one that rolls on another keeps a distance of 2 a from the near focus.

    The line between the foci turns by f, the ellipse by f + g. With the center of mass in that
    focus, the kinetic energy gives the rate of f, and a quadrature the time.
    """
    egg = jp.planar_body("egg", mass=M, inertia=INERTIA)
    roll = jp.rolling_profiles(
        "roll", jp.ground, O, egg, O, profile_a=about_focus(1), profile_b=about_focus(-1)
    )
    params = {"a": A, "b": B}
    mechanism = jp.Mechanism([egg], [roll], params=params)

    def pose(f: Any) -> Any:
        x, y = 2 * A * jnp.cos(f), 2 * A * jnp.sin(f)
        return jnp.stack([x, y, f + other_angle(f) + jnp.pi])

    q, v = jax.jvp(pose, (0.4,), (1.5,))
    ts = jnp.linspace(0.0, 1.5, 4)
    sol = jm.simulate(mechanism.system, q, v, ts, params, steps=jm.FixedSteps(per_save=100))
    assert sol.energy_drift < 1e-8
    f = np.unwrap(np.arctan2(sol.q[:, 1], sol.q[:, 0]))
    np.testing.assert_allclose(np.hypot(sol.q[:, 0], sol.q[:, 1]), 2 * A, atol=1e-9)
    np.testing.assert_allclose(sol.q[:, 2], np.asarray(pose(jnp.asarray(f)))[2], atol=1e-9)

    def momentum(f: Any) -> Any:
        turn = 1 + jax.vmap(jax.grad(other_angle))(f)
        return jnp.sqrt(M * 4 * A**2 + INERTIA * turn**2)

    u, weights = np.polynomial.legendre.leggauss(40)
    start = 1.5 * float(momentum(jnp.full(1, 0.4))[0])
    for t, end in zip(np.asarray(ts), f, strict=True):
        middle, half = (end + 0.4) / 2, (end - 0.4) / 2
        time = half * (weights @ np.asarray(momentum(jnp.asarray(middle + half * u)))) / start
        np.testing.assert_allclose(time, t, atol=1e-8)


def test_the_contact_of_curves_is_that_of_random_poses() -> None:
    """Ellipses put against each other in random places, one with a hollow side of a wave."""

    def first(s: Any, c: Any) -> Any:
        r = 1 + 0.1 * jnp.cos(3 * s)
        return jnp.stack([1.5 * r * jnp.cos(s), r * jnp.sin(s)])

    def egg(s: Any) -> Any:
        return jnp.stack([0.3 + 0.5 * jnp.cos(s), 0.2 * jnp.sin(s) - 0.1])

    def second(s: Any, c: Any) -> Any:
        shift, angle = c
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        x, y = egg(s)
        return shift + jnp.stack([cosine * x - sine * y, sine * x + cosine * y])

    def direction(curve: Any, s: Any) -> Any:
        x, y = jax.jvp(curve, (s,), (1.0 + 0 * s,))[1]
        return jnp.arctan2(y, x)

    @jax.jit
    @jax.vmap
    def places(s: Any) -> Any:
        angle = direction(lambda s: first(s, None), s[0]) + jnp.pi - direction(egg, s[1])
        shift = first(s[0], None) - second(s[1], (jnp.zeros(2), angle))
        return touching(first, second, (shift, angle))

    s = np.random.default_rng(0).uniform(0, 2 * np.pi, (300, 2))
    miss = np.asarray(places(jnp.asarray(s))) - s
    np.testing.assert_allclose(np.sin(miss / 2), 0, atol=1e-12)
