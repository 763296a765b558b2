"""Bodies in space on several feet, whose normal forces may be redundant, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
import jaxmech.parts as jp
from jaxmech.integrate.events.coulomb import contact
from tests.unilateral.systems import G

WIDE, DEEP, HEIGHT = 0.3, 0.2, 0.25
FOUR = ((WIDE, DEEP), (WIDE, -DEEP), (-WIDE, DEEP), (-WIDE, -DEEP))
ALONG = np.array([0.6, 0.8])


@pytest.mark.parametrize(("height", "closed"), [(0.25, 4), (0.62, 3)])
def test_pushes_of_sliding_feet_have_minimum_norm_or_one_foot_has_none(
    height: float, closed: int
) -> None:
    """A box of 1 kg slides along (0.6, 0.8), and the moment of friction leans it forward."""
    feet = np.hstack([FOUR, np.full((4, 1), -height)])
    e = np.eye(3)
    rows = [np.r_[n, np.cross(foot, n)] for n in e[2:] for foot in feet]
    rows += [np.r_[n, np.cross(foot, n)] for foot in feet for n in e[:2]]
    J, M = np.stack(rows), np.diag([1.0, 1.0, 1.0, 0.05, 0.07, 0.08])
    W, r = J @ np.linalg.solve(M, J.T), J @ np.array([0.0, 0.0, -G, 0.0, 0.0, 0.0])
    limits, on, pressed = np.full((2, 8), 0.3), np.ones(8, bool), np.repeat(np.eye(4), 2, axis=0)
    found = jax.jit(contact, static_argnums=10)(
        W, r, np.abs(r), on[:4], pressed, limits, np.zeros(8), on, np.tile(ALONG, 4), False,
        (0, 2, 4, 6),
    )  # fmt: skip
    pushes = np.asarray(found.forces[:4])
    assert found.solved
    assert not found.sticks.any()
    assert found.pushes.sum() == closed
    assert (pushes >= 0).all()
    np.testing.assert_allclose(pushes.sum(), G)
    lean = 0.3 * G * height * ALONG  # by which pushes are farther ahead
    np.testing.assert_allclose(pushes @ feet[:, :2], lean, atol=1e-9)
    np.testing.assert_allclose(found.forces[4:].reshape(4, 2), -0.3 * np.outer(pushes, ALONG))
    if closed == 4:
        by_feet = np.hstack([np.ones((4, 1)), feet[:, :2]]).T
        np.testing.assert_allclose(pushes, np.linalg.pinv(by_feet) @ np.r_[G, lean], rtol=1e-9)


ON_FEET = jnp.array([0.0, 0.0, HEIGHT, 1.0, 0.0, 0.0, 0.0])


def _feet(q: Any, p: Any) -> Any:
    """Where the feet of a box are; its first coordinates are its center, then a quaternion."""
    s, u = q[3], q[4:7]
    return jax.vmap(lambda x: q[:3] + x + 2 * jnp.cross(u, s * x + jnp.cross(u, x)))(p["feet"])


def _growing_push(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.append(p["push"] * jnp.maximum(1 - jnp.abs(t - 1), 0.0) * ALONG, jnp.zeros(5))


TABLE = jp.Mechanism(
    [jp.spatial_body("box", mass=1.0, inertia=(0.05, 0.07, 0.08))],
    [
        jm.Unilateral(
            lambda q, t, p: _feet(q, p)[:, 2], friction=0.3, name="floor",
            slip=lambda q, v, t, p: jax.jvp(lambda q: _feet(q, p), (q,), (v,))[1][:, :2],
        )
    ],
    [jp.gravity(G), _growing_push],
    {"feet": np.zeros((4, 3)), "push": 0.0},
)  # fmt: skip


def _slide(feet: Any, push: float, speed: float, end: float) -> jm.Solution:
    """A box of 1 kg on four feet, pushed at its centre; one program for all arguments."""
    ts, start = end * jnp.linspace(0.0, 1.0, 13), jnp.append(speed * ALONG, jnp.zeros(5))
    params = {"feet": np.hstack([feet, np.full((4, 1), -HEIGHT)]), "push": push}
    return jm.simulate(TABLE, ON_FEET, start, ts, params, steps=jm.FixedSteps(10))


@pytest.mark.slow
def test_a_table_pushed_sideways_sticks_slides_and_stops_like_its_centre() -> None:
    """The push grows to twice the friction f in a second, and is gone after two."""
    f = 0.3 * G
    sol = _slide(FOUR, 2 * f, 0.0, 3.0)
    for k in range(4):
        slips, stops = (sol.events[f"floor friction[{k}] {x}"] for x in ("slips", "stops"))
        assert (slips.count, stops.count) == (1, 1)
        np.testing.assert_allclose(slips.t[0], 0.5, atol=1e-6)
        # It falls on the end of a step, and may be recorded at the end of the next one.
        np.testing.assert_allclose(stops.t[0], 2.25, atol=0.0251)
    np.testing.assert_allclose(sol.q[:, 2:], np.tile(ON_FEET[2:], (13, 1)), atol=1e-6)
    way = f * np.array([0.0, 1 / 24, 1 / 4, 11 / 24, 11 / 24 + 1 / 32])
    np.testing.assert_allclose(sol.q[2:11:2, :2], np.outer(way, ALONG), atol=1e-7)
    np.testing.assert_allclose(sol.v[10:], 0, atol=1e-15)


@pytest.mark.slow
def test_a_table_that_leans_slides_on_three_of_its_four_feet() -> None:
    """Its weight is so far from one foot that pushes of minimum norm would pull there."""
    stop = 0.5 / (0.3 * G)
    sol = _slide([(x - 0.5 * WIDE, y - 0.55 * DEEP) for x, y in FOUR], 0.0, 0.5, 0.6)
    for k in range(4):
        stops = sol.events[f"floor friction[{k}] stops"]
        if k == 3:
            assert stops.count == 0
        else:
            np.testing.assert_allclose(stops.t[0], stop, rtol=1e-7)
    assert not sol.events.active["floor[3]"][1]
    np.testing.assert_allclose(sol.q[-1, :2], 0.25 * stop * ALONG, atol=1e-7)
    np.testing.assert_allclose(sol.q[:, 2:], np.tile(ON_FEET[2:], (13, 1)), atol=1e-6)


RAIL = jm.System(
    lambda q, v, t, p: 0.5 * v @ v - G * q[2],
    [
        jm.Unilateral(
            lambda q, t, p: q[2], friction=0.2, slip=lambda q, v, t, p: v[:2], name="floor"
        ),
        jm.DryFriction(lambda q, v, t, p: v[0], 1.0, name="rail"),
    ],
    force=lambda q, v, t, p: jnp.stack([t, 0 * t, 0 * t]), coordinates=("x", "y", "z"),
)  # fmt: skip


@pytest.mark.slow
def test_friction_of_a_floor_and_of_a_rail_are_overcome_together() -> None:
    still, ts = jnp.zeros(3), jnp.linspace(0.0, 4.0, 5)
    sol = jm.simulate(RAIL, still, still, ts, steps=jm.FixedSteps(20))
    begin = 1 + 0.2 * G
    for name in ("floor friction slips", "rail slips"):
        np.testing.assert_allclose(sol.events[name].t[0], begin, rtol=1e-9)
        assert sol.events[name].count == 1
    np.testing.assert_allclose(sol.q[-1], [(4 - begin) ** 3 / 6, 0, 0], atol=1e-8)


@pytest.mark.slow
def test_a_floor_and_a_rail_that_stop_at_one_time_have_derivatives() -> None:
    """The second one is held by the first, so that its own root would be 0 / 0."""

    @jax.jit
    def pushed(scale: Any, end: Any) -> tuple[Any, Any]:
        def place(scale: Any) -> Any:
            ts, v0 = end * jnp.linspace(0.0, 1.0, 5), scale * jnp.array([0.1, 0.05, 0.0])
            return jm.simulate(RAIL, jnp.zeros(3), v0, ts, steps=jm.FixedSteps(1)).q[-1]

        return jax.jvp(place, (scale,), (1.0,))

    for end in (0.12, 0.4):
        near = (pushed(1.0001, end)[0] - pushed(0.9999, end)[0]) / 2e-4
        np.testing.assert_allclose(pushed(1.0, end)[1], near, atol=1e-8)


TWICE = jm.System(
    lambda q, v, t, p: 0.5 * v @ v - G * q[2],
    [
        jm.Unilateral(
            lambda q, t, p: jnp.stack([q[2], q[2]]), friction=lambda p: p["mu"], name="feet",
            slip=lambda q, v, t, p: jnp.stack([v[:2], v[:2]]),
        )
    ],
    force=lambda q, v, t, p: p["push"] * jnp.array([*ALONG, 0.0]), coordinates=("x", "y", "z"),
)  # fmt: skip


@pytest.mark.parametrize("stop", [0.25, 0.2525, 0.27])
@pytest.mark.parametrize("load", [0.0, 0.5, -0.5])
def test_two_feet_in_one_place_stop_like_one_on_a_save_and_elsewhere(
    stop: float, load: float
) -> None:
    """A load along or against the motion is a part of what they can hold together."""
    f, still = 0.3 * G, jnp.zeros(3)
    speed = (1 - load) * f * stop
    ts, params = jnp.linspace(0.0, 1.0, 5), {"mu": 0.3, "push": load * f}
    start = jnp.array([*(speed * ALONG), 0.0])
    sol = jm.simulate(TWICE, still, start, ts, params, steps=jm.FixedSteps(10))
    for k in range(2):
        stops = sol.events[f"feet friction[{k}] stops"]
        assert stops.count == 1
        np.testing.assert_allclose(stops.t[0], stop, atol=1e-7)
    np.testing.assert_allclose(sol.q[2], [*(speed * stop / 2 * ALONG), 0], atol=1e-8)
    assert (sol.q[3:] == sol.q[2:-1]).all()
    assert (sol.v[2:] == 0).all()


@pytest.mark.slow
def test_two_feet_in_one_place_land_slide_and_stop_like_one() -> None:
    """They fall for 0.1 s, lose 0.1 mu g of 1.5 m/s in the impact, and slide until they stop."""
    start, v = jnp.array([0.0, 0.0, 0.005 * G]), jnp.array([*(1.5 * ALONG), 0.0])
    ts, steps = jnp.linspace(0.0, 1.0, 5), jm.FixedSteps(10)

    for mu in (0.2, 0.3):
        sol = jm.simulate(TWICE, start, v, ts, {"mu": mu, "push": 0.0}, steps=steps)
        u, f = 1.5 - 0.1 * mu * G, mu * G
        for k in range(2):
            stops = sol.events[f"feet friction[{k}] stops"]
            assert stops.count == 1
            np.testing.assert_allclose(stops.t[0], 0.1 + u / f, rtol=1e-7)
        np.testing.assert_allclose(sol.q[-1, :2] @ ALONG, 0.15 + u**2 / (2 * f), rtol=1e-7)


@pytest.mark.slow
def test_two_feet_that_slide_and_stop_have_derivatives() -> None:
    """Forward; those of a ball in `test_friction_in_space.py` are in reverse mode."""
    still, ts = jnp.zeros(3), jnp.linspace(0.0, 1.0, 3)
    start = jnp.array([*(1.5 * ALONG), 0.0])

    def end(mu: Any) -> Any:
        params = {"mu": mu, "push": 0.0}
        sol = jm.simulate(TWICE, still, start, ts, params, steps=jm.FixedSteps(10))
        return jnp.stack([sol.q[-1, :2] @ ALONG, sol.events["feet friction[1] stops"].t[0]])

    mu = 0.3
    way, stop = 1.5**2 / (2 * mu * G), 1.5 / (mu * G)
    np.testing.assert_allclose(jax.jacfwd(end)(mu), [-way / mu, -stop / mu], rtol=1e-6)
