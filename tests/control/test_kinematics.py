"""Kinematic analysis against closed forms: a slider-crank, a four-bar, a platform on legs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.control import KinematicStatus, kinematics

G = 9.81
SLIDER = {"r": 0.3, "l": 0.8, "J": 0.02, "m": 1.5}


def _slider_energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return p["J"] * v[0] ** 2 / 2 + p["m"] * v[1] ** 2 / 2


def _rod(q: Any, t: Any, p: Any) -> Any:
    crank = p["r"] * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])])
    away = jnp.stack([q[1] - crank[0], -crank[1]])
    return (away @ away - p["l"] ** 2) / 2


SLIDER_CRANK = jm.System(
    _slider_energy, [jm.Holonomic(_rod, "rod")], coordinates=("crank", "slider")
)


def stroke(angle: Any, p: Any) -> Any:
    return p["r"] * jnp.cos(angle) + jnp.sqrt(p["l"] ** 2 - (p["r"] * jnp.sin(angle)) ** 2)


def test_a_slider_crank_has_the_motion_and_the_torque_of_the_closed_form() -> None:
    """x(angle), with x' = dx/d(angle) w, and torque = J w' + m x'' dx/d(angle)."""
    angles, w, dw = np.linspace(0.3, 6.9, 7), 5.0, -2.0
    start = [0.2, 1.0]
    found = kinematics(SLIDER_CRANK, "crank", angles, start, SLIDER, rate=w, acceleration=dw)
    first = jax.jit(jax.vmap(jax.grad(stroke), (0, None)))(angles, SLIDER)
    second = jax.jit(jax.vmap(jax.grad(jax.grad(stroke)), (0, None)))(angles, SLIDER)
    qdd = second * w**2 + first * dw
    np.testing.assert_allclose(found["slider"], stroke(angles, SLIDER), rtol=1e-13)
    np.testing.assert_allclose(found["slider.rate"], first * w, atol=1e-12)
    np.testing.assert_allclose(found.qdd[:, 1], qdd, atol=1e-11)
    torque = SLIDER["J"] * dw + SLIDER["m"] * qdd * first
    np.testing.assert_allclose(found.drive, torque, atol=1e-11)
    np.testing.assert_allclose(found.reactions["rod"][:, 1], SLIDER["m"] * qdd, atol=1e-11)
    assert not found.status.any()
    assert "7 of 7 values of crank reached" in repr(found)


LENGTHS = {"a": 1.0, "b": 1.2, "c": 1.0, "d": 1.5}


def _loop(q: Any, t: Any, p: Any) -> Any:
    crank, coupler, rocker = (jnp.stack([jnp.cos(x), jnp.sin(x)]) for x in q)
    return p["a"] * crank + p["b"] * coupler - p["c"] * rocker - jnp.stack([p["d"], 0 * p["d"]])


def _bars(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.1 * v @ v - G * (jnp.sin(q[0]) + 2 * jnp.sin(q[2]))


FOUR_BAR = jm.System(
    _bars, [jm.Holonomic(_loop, "loop")], coordinates=("crank", "coupler", "rocker")
)


def angles_of(crank: Any, p: Any, branch: float = 1.0) -> Any:
    """The angles of the coupler and the rocker, from the triangle over the diagonal."""
    away = jnp.stack([p["d"] - p["a"] * jnp.cos(crank), -p["a"] * jnp.sin(crank)])
    length = jnp.sqrt(away @ away)
    inner = (p["b"] ** 2 + length**2 - p["c"] ** 2) / (2 * p["b"] * length)
    coupler = jnp.arctan2(away[1], away[0]) + branch * jnp.arccos(inner)
    end = p["b"] * jnp.stack([jnp.cos(coupler), jnp.sin(coupler)]) - away
    return jnp.stack([crank, coupler, jnp.arctan2(end[1], end[0])])


START = np.asarray(angles_of(0.5, LENGTHS))
DEAD = np.arccos((1.0 + 1.5**2 - 2.2**2) / 3.0)  # coupler and rocker in one line


def torque_of(crank: Any, w: Any, dw: Any, p: Any) -> Any:
    """Lagrange's equation of the one degree of freedom that is left."""

    def lagrangian(crank: Any, w: Any) -> Any:
        q, v = jax.jvp(lambda x: angles_of(x, p), (crank,), (w,))
        return _bars(q, v, 0.0, p)

    momentum = jax.grad(lagrangian, 1)
    rate = jax.jvp(momentum, (crank, w), (w, dw))[1]
    return rate - jax.grad(lagrangian)(crank, w)


def test_a_four_bar_and_its_dead_point() -> None:
    """It is not one of Grashof: the crank stops where coupler and rocker are in one line."""
    angles = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 1.0])
    motion = kinematics(
        FOUR_BAR, "crank", angles, START + 0.01, LENGTHS, rate=1.3, acceleration=0.4, throw=False
    )
    np.testing.assert_array_equal(motion.status, [0] * 4 + [KinematicStatus.DEAD_POINT] * 2)
    expected = jax.jit(jax.vmap(angles_of, (0, None)))(angles[:4], LENGTHS)
    np.testing.assert_allclose(motion.q[:4], expected, atol=1e-12)
    np.testing.assert_allclose(motion.end, DEAD, atol=1e-7)
    assert np.isnan(motion.q[4:]).all()
    assert np.isnan(motion.drive[4:]).all()
    torques = jax.jit(jax.vmap(torque_of, (0, None, None, None)))(angles[:4], 1.3, 0.4, LENGTHS)
    np.testing.assert_allclose(motion.drive[:4], torques, rtol=1e-9)
    with pytest.raises(
        ValueError, match=r"values\[4\] = 2.5 of crank, .* ends at 2.129397: this is a dead"
    ):
        kinematics(FOUR_BAR, "crank", angles, START, LENGTHS)
    # The rocker drives it through that point.
    turned = kinematics(FOUR_BAR, "rocker", [START[2] + 0.6], START, LENGTHS)
    assert not turned.status.any()


@pytest.mark.slow
def test_derivatives_by_lengths_and_by_values() -> None:
    angles = jnp.array([0.5, 1.0, 1.5, 2.0, 2.5, 1.0])

    def total(p: Any, shift: Any) -> Any:
        motion = kinematics(FOUR_BAR, "crank", angles[:4] + shift, START, p, rate=1.3)
        return motion.q[3, 1] + (motion.drive * jnp.arange(4)).sum()

    def closed(p: Any, shift: Any) -> Any:
        crank = angles[:4] + shift
        torques = jax.vmap(torque_of, (0, None, None, None))(crank, 1.3, 0.0, p)
        return angles_of(crank[3], p)[1] + (torques * jnp.arange(4)).sum()

    value, slopes = jax.jit(jax.value_and_grad(total, (0, 1)))(LENGTHS, 0.1)
    expected, closed_slopes = jax.jit(jax.value_and_grad(closed, (0, 1)))(LENGTHS, 0.1)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for slope, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(closed_slopes), strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-8)


@pytest.mark.slow
def test_the_branch_does_not_change_however_far_values_are_apart() -> None:
    """A crank that turns: the two branches of the loop never meet."""
    p = {"a": 0.35, "b": 1.2, "c": 0.9, "d": 1.05}
    for change, branch in ((0.5, 1.0), (np.pi / 4, -1.0), (6.0, 1.0), (-7.0, -1.0)):
        angles = change * np.arange(6)
        motion = kinematics(FOUR_BAR, "crank", angles, angles_of(0.0, p, branch), p)
        expected = jax.vmap(angles_of, (0, None, None))(angles, p, branch)
        np.testing.assert_allclose(np.cos(motion.q), np.cos(expected), atol=1e-11)


def test_where_branches_meet_is_a_dead_point() -> None:
    """A parallelogram may fold into a kite where its bars are in one line."""
    p = {"a": 1.0, "b": 1.5, "c": 1.0, "d": 1.5}
    motion = jax.vmap(
        lambda s: kinematics(FOUR_BAR, "crank", s, jnp.array([1.0, 0.0, 1.0]), p)
    )(jnp.array([[2.0, 3.5], [2.0, 3.0], [0.5, -0.1]]))  # fmt: skip
    np.testing.assert_array_equal(motion.status, [[0, 1], [0, 0], [0, 1]])
    np.testing.assert_allclose(motion.end, [np.pi, 3.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(motion.q[1], [[2.0, 0.0, 2.0], [3.0, 0.0, 3.0]], atol=1e-12)


def _legs(q: Any, p: Any) -> Any:
    return jnp.sqrt(
        ((q[None, :3] + p["top"] - p["base"]) ** 2).sum(1)
    )  # of a platform that is level


@pytest.mark.slow
def test_a_platform_is_driven_by_its_legs() -> None:
    """At rest the forces in the legs carry the weight; redundant guides are not in the way."""
    angles = np.array([0.0, 2.0, 4.0])
    base = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    p = {"base": base, "top": 0.4 * base}
    platform = jm.System(
        lambda q, v, t, p: v[:3] @ v[:3] + v[3] ** 2 / 2 - 2 * G * q[2],
        [jm.Holonomic(lambda q, t, p: jnp.stack([q[3], 2 * q[3]]), "guide")],
        coordinates=("x", "y", "z", "turn"),
    )
    places = np.array([[0.0, 0.0, 0.8], [0.1, 0.2, 1.0], [-0.2, 0.3, 1.3]])
    lengths = np.stack([_legs(np.append(place, 0.0), p) for place in places])
    motion = kinematics(platform, _legs, lengths, [0.0, 0.0, 0.7, 0.0], p, rate=0.0)
    np.testing.assert_allclose(motion.q[:, :3], places, atol=1e-12)
    along = (places[:, None] + p["top"] - p["base"]) / lengths[..., None]
    force = (np.asarray(motion.drive)[..., None] * along).sum(1)
    np.testing.assert_allclose(force, np.tile([0.0, 0.0, 2 * G], (3, 1)), atol=1e-11)
    assert motion.drivers == ("_legs[0]", "_legs[1]", "_legs[2]")
    with pytest.raises(ValueError, match="dead point"):  # too long for two of them
        kinematics(platform, _legs, lengths * [[1.0, 1.0, 4.0]], [*places[0], 0.0], p)
