"""Linearizations about steady motions against textbook formulas."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm


def nonzero(found: jm.analysis.Modes) -> np.ndarray:
    return np.asarray(found.eigenvalues)[~np.asarray(found.zero)]


# An upright disc that rolls: contact point, yaw, lean and spin; p' = r spin' e1 is no slip.
def _centre(q: Any, r: Any) -> Any:
    x, y, yaw, lean, _ = q
    side = jnp.stack([-jnp.sin(yaw), jnp.cos(yaw), jnp.zeros_like(yaw)])
    up = jnp.array([0.0, 0.0, 1.0])
    return jnp.stack([x, y, 0.0 * x]) + r * (jnp.cos(lean) * up - jnp.sin(lean) * side)


def _disc(q: Any, v: Any, t: Any, p: Any) -> Any:
    c, velocity = jax.jvp(lambda q: _centre(q, p["r"]), (q,), (v,))
    turning = p["A"] * (v[3] ** 2 + (v[2] * jnp.cos(q[3])) ** 2)
    turning += p["C"] * (v[4] + v[2] * jnp.sin(q[3])) ** 2
    return (p["m"] * velocity @ velocity + turning) / 2 - p["m"] * p["g"] * c[2]


def _no_slip(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[:2] - p["r"] * v[4] * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])


DISC = jm.System(
    _disc,
    [jm.Nonholonomic(_no_slip, "no slip")],
    coordinates=("x", "y", "yaw", "lean", "spin"),
)
COIN = {"m": 1.3, "r": 0.4, "A": 0.07, "C": 0.11, "g": 9.81}


def test_a_rolling_disc_is_upright_beyond_the_critical_speed() -> None:
    """lambda^2 A (A + m r^2) = A m g r - C (C + m r^2) w^2; Routh, Advanced Dynamics, sec. 244."""
    m, r, A, C, g = (COIN[k] for k in "mrACg")
    critical = np.sqrt(A * m * g * r / (C * (C + m * r**2)))
    for spin in (0.9 * critical, 1.1 * critical):
        v = np.array([r * spin, 0, 0, 0, spin])
        found = jm.analysis.linearize(DISC, np.zeros(5), v, COIN)
        assert (found.positions, found.velocities) == (5, 3)
        square = (A * m * g * r - C * (C + m * r**2) * spin**2) / (A * (A + m * r**2))
        values = nonzero(jm.analysis.modes(found))
        assert len(values) == 2
        np.testing.assert_allclose(values**2, square, rtol=1e-10)


# A top with a unit quaternion e, whose M is singular; its axis is the third of the body.
def _axis(e: Any) -> Any:
    return e[0] ** 2 - e[1] ** 2 - e[2] ** 2 + e[3] ** 2


def _top(q: Any, v: Any, t: Any, p: Any) -> Any:
    w = 2 * (q[0] * v[1:] - v[0] * q[1:] - jnp.cross(q[1:], v[1:]))
    return (p["A"] * (w[0] ** 2 + w[1] ** 2) + p["C"] * w[2] ** 2) / 2 - p["mgl"] * _axis(q)


TOP = jm.System(
    _top,
    [jm.Holonomic(lambda q, t, p: (q @ q - 1) / 2, "unit")],
    coordinates=("a", "b", "c", "d"),
)
WEIGHT = {"A": 1.3, "C": 0.6, "mgl": 2.0}


@pytest.mark.slow
def test_a_sleeping_top() -> None:
    """The top sleeps where C^2 w^2 > 4 A m g l; slower, deviations grow at a known rate."""
    A, C, mgl = (WEIGHT[k] for k in ("A", "C", "mgl"))
    critical = np.sqrt(4 * A * mgl) / C
    q = np.array([1.0, 0, 0, 0])
    # a turn about the vertical: e' = w / 2 (0, 0, 0, 1) e
    turn = np.array([[0, 0, 0, -1.0], [0, 0, -1, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    for spin, expected in ((0.8, np.sqrt(1 - 0.8**2) * np.sqrt(mgl / A)), (1.2, 0.0)):
        v = np.array([0, 0, 0, spin * critical / 2])
        lin = jm.analysis.linearize(TOP, q, v, WEIGHT, W=v[3] * turn)
        assert lin.unsteadiness < 1e-14
        np.testing.assert_allclose(jm.analysis.modes(lin).growth, expected, atol=1e-9)
        K, M = (np.asarray(x) for x in (lin.reduced.K, lin.reduced.M))
        np.testing.assert_allclose(K, K.T, atol=1e-12)
        np.testing.assert_allclose(M, M.T, atol=1e-12)
        np.testing.assert_allclose(lin.reduced.C, -lin.reduced.C.T, atol=1e-12)


# A governor: two balls on arms of length l on a shaft with the moment of inertia I.
def _governor(q: Any, v: Any, t: Any, p: Any) -> Any:
    turning = (p["I"] + 2 * p["m"] * (p["l"] * jnp.sin(q[0])) ** 2) * v[1] ** 2 / 2
    balls = p["m"] * (p["l"] * v[0]) ** 2
    return turning + balls + 2 * p["m"] * p["g"] * p["l"] * jnp.cos(q[0])


GOVERNOR = jm.System(_governor, coordinates=("arm", "shaft"))
DRIVEN = jm.System(
    _governor,
    [jm.Holonomic(lambda q, t, p: q[1] - p["w"] * t, "drive")],
    coordinates=("arm", "shaft"),
)
ARMS = {"I": 0.8, "m": 0.5, "l": 0.6, "g": 9.81, "w": 6.0}


@pytest.mark.slow
def test_a_governor_free_and_driven() -> None:
    """cos = g / (l w^2); frequencies w sin sqrt(1 + 8 m l^2 cos^2 / J) free, w sin driven."""
    w, cos = ARMS["w"], ARMS["g"] / (ARMS["l"] * ARMS["w"] ** 2)
    sin = np.sqrt(1 - cos**2)
    inertia = ARMS["m"] * ARMS["l"] ** 2
    free = w * sin * np.sqrt(1 + 8 * inertia * cos**2 / (ARMS["I"] + 2 * inertia * sin**2))
    found = jm.analysis.equilibrium(GOVERNOR, [1.0, 0.0], ARMS, v={"shaft": w})
    driven = jm.analysis.equilibrium(DRIVEN, [1.0, 0.0], ARMS, v={"shaft": w})
    for steady, expected in ((found, free), (driven, w * sin)):
        np.testing.assert_allclose(jnp.cos(steady.q[0]), cos, rtol=1e-12)
        values = nonzero(jm.analysis.modes(steady.linearization))
        np.testing.assert_allclose(np.sort(values.imag), [-expected, expected], rtol=1e-10)
        np.testing.assert_allclose(values.real, 0.0, atol=1e-10)
        assert steady.index == 0
    assert int(driven.stability) == jm.analysis.Stability.STABLE


def _compound(centre: float) -> jm.System:
    """A bar of two on hinges by planar bodies whose reference points are at the middle, or not."""
    ends = (-0.5 - centre, 0.0), (0.5 - centre, 0.0)
    bodies = [
        jm.parts.planar_body(name, mass="m", inertia="I", center=(-centre, 0.0))
        for name in ("upper", "lower")
    ]
    joints = [
        jm.parts.revolute("top", jm.parts.ground, (0, 0), bodies[0], ends[0]),
        jm.parts.revolute("middle", bodies[0], ends[1], bodies[1], ends[0]),
    ]
    return jm.parts.Mechanism(
        bodies, joints, [jm.parts.gravity("g")], BAR, coordinates="bodies"
    ).system


BAR = {"m": 1.7, "I": 0.2, "g": 9.81}


@pytest.mark.slow
def test_the_reference_point_of_a_body_does_not_matter() -> None:
    """Two bars of 1 m that hang: (M, K) in angles, against bodies with other reference points."""
    m, I, g = BAR["m"], BAR["I"], BAR["g"]  # noqa: E741
    M = np.array([[I + m * 1.25, m / 2], [m / 2, I + m / 4]])
    K = m * g * np.diag([1.5, 0.5])
    expected = np.sort(np.sqrt(np.linalg.eigvals(np.linalg.solve(M, K)))) / (2 * np.pi)
    down = -np.pi / 2
    for centre in (0.0, 0.3):
        q = np.array([0.0, -0.5 - centre, down, 0.0, -1.5 - centre, down])
        found = jm.analysis.linearize(_compound(centre), q, np.zeros(6), BAR)
        np.testing.assert_allclose(jm.analysis.modes(found).frequencies[::2], expected, rtol=1e-11)
