"""Rolling, knife edges and gears: the motions they allow, and published motions.

Of belts, racks and screws, accelerations in closed form, in both coordinates.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from tests.parts.poses import B, assert_balanced, hamilton, load, matrix, pair, plane_matrix, rows
from tests.published import published

R, N, AXLE = 0.4, np.array([1.0, -2.0, 2.0]) / 3, np.array([0.6, 0.0, 0.8])
PA, PB = np.array([0.3, -0.2, 0.5]), np.array([-0.1, 0.4, 0.2])


def attitudes(seed: int) -> tuple[Any, Any]:
    e = np.random.default_rng(seed).normal(size=(2, 4))
    return tuple(e / np.linalg.norm(e, axis=1)[:, None])


def rates(arms: Any, quaternions: Any, velocity: Any, spin: Any) -> Any:
    """Velocities of bodies that move as one: a velocity of the origin and a spin."""
    return np.concatenate([
        np.concatenate([velocity + np.cross(spin, arm), 0.5 * hamilton(np.array([0, *spin]), e)])
        for arm, e in zip(arms, quaternions, strict=True)
    ])  # fmt: skip


def rolling_motions(ra: Any, ea: Any, rb: Any, eb: Any, contact: Any) -> Any:
    """Columns: both bodies as one, then b turning about the contact point."""
    six = np.eye(6)
    together = [rates((ra, rb), (ea, eb), x[:3], x[3:]) for x in six]
    alone = [
        np.concatenate([np.zeros(7), rates([rb - contact], [eb], np.zeros(3), w)])
        for w in np.eye(3)
    ]
    return np.stack(together + alone, axis=1)


@pytest.mark.parametrize("kind", ["sphere", "wheel"])
def test_rolling_in_space_is_turning_about_the_contact_point(kind: str) -> None:
    (ea, eb), (a, b) = attitudes(1), pair(3)
    ra, n, axle = np.array([0.2, 0.5, -0.3]), matrix(ea) @ N, matrix(eb) @ AXLE
    if kind == "sphere":
        joint = jp.rolling_sphere("J", a, PA, b, PB, normal=N, radius=R)
        upward = n
    else:
        joint = jp.rolling_wheel("J", a, PA, b, PB, normal=N, axle=AXLE, radius=R)
        upward = n - (n @ axle) * axle
        upward = upward / np.linalg.norm(upward)
    contact = ra + matrix(ea) @ (PA + 0.7 * np.cross(N, (1, 0, 0)))
    rb = contact + R * upward - matrix(eb) @ PB
    q = jnp.asarray(np.concatenate([ra, ea, rb, eb]))
    mechanism = jp.Mechanism([a, b], [joint])
    np.testing.assert_allclose(
        mechanism.system.dynamics.position_level(q, jnp.zeros(()), {}), 0, atol=1e-15
    )
    A_of = rows(mechanism, q)
    assert [len(A_of[f"J.{part}"]) for part in ("contact", "slip")] == [1, 2]
    allowed = rolling_motions(ra, ea, rb, eb, contact)
    whole = np.concatenate(list(A_of.values()))
    np.testing.assert_allclose(whole @ allowed, 0, atol=1e-14)
    assert np.linalg.matrix_rank(whole) + np.linalg.matrix_rank(allowed) == 14
    assert_balanced(mechanism, q, A_of["J.slip"].T @ np.array([0.7, -0.4]) + A_of["J.contact"][0])
    pushed, _ = load(mechanism, B, q, A_of["J.contact"][0])
    np.testing.assert_allclose(pushed, n, atol=1e-14)
    forward, _ = load(mechanism, B, q, A_of["J.slip"][0])
    np.testing.assert_allclose([forward @ n, forward @ forward], [0, 1], atol=1e-14)
    if kind == "wheel":
        np.testing.assert_allclose(np.cross(axle, n) @ forward, np.linalg.norm(np.cross(axle, n)))


def in_plane(*columns: Any) -> Any:
    return np.stack([np.array(column, float) for column in columns], axis=1)


def test_disk_rolls_on_a_moving_line() -> None:
    (a, b), n, angle = pair(2), np.array([0.6, 0.8]), 0.4
    joint = jp.rolling_disk("J", a, PA[:2], b, (0, 0), normal=n, radius=R)
    mechanism, world = jp.Mechanism([a, b], [joint]), plane_matrix(angle) @ n
    ra = np.array([0.2, -0.3])
    contact = ra + plane_matrix(angle) @ (PA[:2] + 0.7 * np.array([0.8, -0.6]))
    rb = contact + R * world
    q = jnp.asarray([*ra, angle, *rb, -1.3])
    np.testing.assert_allclose(
        mechanism.system.dynamics.position_level(q, jnp.zeros(()), {}), 0, atol=1e-15
    )
    A_of = rows(mechanism, q)
    arm = R * world
    turning = [-ra[1], ra[0], 1, -rb[1], rb[0], 1]
    allowed = in_plane(
        [1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], turning, [0, 0, 0, -arm[1], arm[0], 1]
    )
    whole = np.concatenate(list(A_of.values()))
    np.testing.assert_allclose(whole @ allowed, 0, atol=1e-14)
    assert np.linalg.matrix_rank(whole) == 2
    assert_balanced(mechanism, q, whole.T @ np.array([0.7, -0.4]))


def test_knife_edge_goes_along_itself_and_turns() -> None:
    a, b = pair(2)
    blade, angle, along = np.array([0.3, -0.2]), 0.7, np.array([0.6, 0.8])
    edge = jp.knife_edge("J", b, blade, along=along, on=a)
    mechanism, world = jp.Mechanism([a, b], [edge]), plane_matrix(angle)
    q, arm = jnp.asarray([0.2, 0.4, -0.3, 1.0, 2.0, angle]), world @ blade
    point = np.array([1.0, 2.0]) + arm
    free = in_plane([0, 0, 0, *(world @ along), 0], [0, 0, 0, arm[1], -arm[0], 1])
    turning = [-0.4, 0.2, 1, -2.0, 1.0, 1]
    common = in_plane([1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], turning)
    (row,) = rows(mechanism, q)["J"]
    np.testing.assert_allclose(row @ np.hstack([free, common]), 0, atol=1e-14)
    force, torque = load(mechanism, B, q, row)
    np.testing.assert_allclose([force @ (world @ along), force @ force], [0, 1], atol=1e-14)
    np.testing.assert_allclose(torque, np.cross([*arm, 0], [*force, 0])[2], atol=1e-14)
    assert np.linalg.norm(point) > 1  # not the origin, where the test would see less


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_planetary_gear_obeys_willis(size: int) -> None:
    """(w_sun - w_arm) / (w_planet - w_arm) = -r_planet / r_sun."""
    zs = {} if size == 2 else {"axis_a": (0, 0, 1), "axis_b": (0, 0, 1)}
    make = jp.planar_body if size == 2 else jp.spatial_body
    inertia = 0.1 if size == 2 else (0.1, 0.1, 0.1)
    sun, planet, arm = (make(n, mass=1.0, inertia=inertia) for n in ("sun", "planet", "arm"))
    teeth = jp.gear("teeth", sun, 0.2, planet, "r", carrier=arm, **zs)
    mechanism = jp.Mechanism([sun, planet, arm], [teeth], params={"r": 0.5})
    spins = {"arm": 0.8, "sun": 3.0, "planet": 0.8 - 0.2 / 0.5 * (3.0 - 0.8)}
    starts = {
        name: jp.Start(np.zeros(size), spin=w if size == 2 else (0.0, 0.0, w))
        for name, w in spins.items()
    }
    q, v = mechanism.guess(starts)
    level = mechanism.system.dynamics.velocity_level(q, v, jnp.zeros(()), mechanism.params)
    np.testing.assert_allclose(level, np.zeros_like(level), atol=1e-14)
    faster = {**starts, "planet": starts["arm"]}
    level = mechanism.system.dynamics.velocity_level(
        *mechanism.guess(faster), jnp.zeros(()), {"r": 0.5}
    )
    np.testing.assert_allclose(level[-1], 0.2 * (3.0 - 0.8), rtol=1e-13)


def test_sphere_on_a_turntable_circles_at_two_sevenths_of_its_speed() -> None:
    """z'' = i (2/7) W z' (Milne), on a table that is a body with a hinge and a drive."""
    case = published("closed_forms")["sphere_on_turntable"]
    p, (x, y), (ux, uy) = case["params"], case["q0"][:2], case["v0"][:2]
    W, r, wz = p["Omega"], p["r"], 0.7
    ball = jp.spatial_body(
        "ball", mass="m", inertia=lambda t, p: 0.4 * p["m"] * p["r"] ** 2 * jnp.ones(3)
    )
    table, o, up = jp.spatial_body("table", mass=3.0, inertia=(1, 1, 1)), (0, 0, 0), (0, 0, 1)
    joints = [
        jp.revolute("pivot", jp.ground, o, table, o, axis=up),
        jp.given_angle("motor", jp.ground, table, lambda t, p: p["W"] * t, axis=up),
        jp.rolling_sphere("cloth", table, o, ball, o, normal=up, radius="r"),
    ]
    params = {"m": p["m"], "r": r, "W": W, "g": p["g"]}
    mechanism = jp.Mechanism([table, ball], joints, [jp.gravity("g")], params, coordinates="bodies")
    spin = ((W * x - uy) / r, (ux + W * y) / r, wz)
    starts = {
        "table": jp.Start(o, spin=(0, 0, W)),
        "ball": jp.Start((x, y, r), velocity=(ux, uy, 0), spin=spin),
    }
    q, v = mechanism.guess(starts)
    eom = jax.jit(mechanism.system.equations)(q, v, 0.0, params)
    level = mechanism.system.dynamics.velocity_level(q, v, jnp.zeros(()), params)
    np.testing.assert_allclose(level, 0, atol=1e-15)
    m, left = eom.A.shape[0], np.block([[eom.M, eom.A.T], [eom.A, np.zeros((eom.A.shape[0],) * 2)]])
    qdd = np.linalg.lstsq(left, np.concatenate([eom.Q, eom.b]), rcond=1e-12)[0][:-m]
    np.testing.assert_allclose(qdd[7:10], [-2 / 7 * W * uy, 2 / 7 * W * ux, 0], atol=1e-13)


O2, O3 = (0.0, 0.0), (0.0, 0.0, 0.0)
X, Z = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
COORDINATES = pytest.mark.parametrize("coordinates", ["joints", "bodies"])


def accelerations(mechanism: jp.Mechanism, starts: Any) -> Any:
    """The accelerations of all bodies at rest, linear and angular."""
    params, t = dict(mechanism.params), jnp.zeros(())
    q, v = mechanism.guess(starts)
    qdd = jm.acceleration(mechanism.system, q, v, t, params).qdd
    # At rest, rates along qdd are those of velocities.
    moving = mechanism.kinematics.moving(mechanism.bodies, q, qdd, t, params)
    return {body.name: m for body, m in zip(mechanism.bodies, moving, strict=True)}


@pytest.mark.slow
@COORDINATES
def test_a_belt(coordinates: Any) -> None:
    """T on a pulley of radius r: (J + J r^2 / R^2) a = T, and the other one turns r / R as fast."""
    one, two = (jp.planar_body(name, mass=1.0, inertia=0.1) for name in ("one", "two"))
    joints = [
        jp.revolute("A", jp.ground, O2, one, O2),
        jp.revolute("B", jp.ground, (1, 0), two, O2),
        jp.belt("belt", one, 0.1, two, "R"),
    ]
    motor = jp.torque("motor", jp.ground, one, 0.5)
    mechanism = jp.Mechanism([one, two], joints, [motor], {"R": 0.2}, coordinates=coordinates)
    found = accelerations(mechanism, {"one": jp.Start(O2), "two": jp.Start((1.0, 0.0))})
    np.testing.assert_allclose(found["one"].spin, 0.5 / (0.1 + 0.1 / 4), rtol=1e-12)
    np.testing.assert_allclose(found["two"].spin, found["one"].spin / 2, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("coordinates", "size"), [("joints", 2), ("bodies", 3)])
def test_a_rack(coordinates: Any, size: int) -> None:
    """T on a pinion of radius r: (J / r + m r) x'' = T."""
    o: Any = O2 if size == 2 else O3
    if size == 2:
        wheel, bar = (jp.planar_body(name, mass=2.0, inertia=0.1) for name in ("wheel", "bar"))
        axes: Any = {}
    else:
        wheel, bar = (
            jp.spatial_body(name, mass=2.0, inertia=(0.1, 0.1, 0.1)) for name in ("wheel", "bar")
        )
        axes = {"axis": Z}
    joints = [
        jp.revolute("A", jp.ground, o, wheel, o, **axes),
        jp.prismatic("guide", jp.ground, o, bar, o, axis=X[:size]),
        jp.rack("teeth", wheel, 0.1, bar, axis=X[:size], axis_a=Z if size == 3 else None),
    ]
    motor = jp.torque("motor", jp.ground, wheel, 0.5, **axes)
    mechanism = jp.Mechanism([wheel, bar], joints, [motor], coordinates=coordinates)
    found = accelerations(mechanism, {"wheel": jp.Start(o), "bar": jp.Start(o)})
    expected = 0.5 / (0.1 / 0.1 + 2.0 * 0.1)
    np.testing.assert_allclose(found["bar"].velocity, expected * np.eye(size)[0], atol=1e-12)


@pytest.mark.slow
@COORDINATES
def test_a_nut_falls_along_its_screw(coordinates: Any) -> None:
    """With h = lead / 2 pi: (J + m h^2) angle'' = -m g h."""
    nut = jp.spatial_body("nut", mass=0.5, inertia=(1e-4, 1e-4, 2e-4))
    spindle = jp.screw("spindle", jp.ground, O3, nut, O3, axis=Z, lead="lead")
    mechanism = jp.Mechanism(
        [nut], [spindle], [jp.gravity()], {"lead": 0.05}, coordinates=coordinates
    )
    h = 0.05 / (2 * np.pi)
    found = accelerations(mechanism, {"nut": jp.Start(O3)})["nut"]
    expected = -0.5 * 9.81 * h / (2e-4 + 0.5 * h**2)
    np.testing.assert_allclose(found.spin, expected * np.array(Z), atol=1e-10)
    np.testing.assert_allclose(found.velocity, h * expected * np.array(Z), atol=1e-12)


def test_the_start_of_a_nut_many_turns_away() -> None:
    nut = jp.spatial_body("nut", mass=0.5, inertia=(1e-4, 1e-4, 2e-4))
    spindle = jp.screw("spindle", jp.ground, O3, nut, O3, axis=Z, lead=0.05)
    mechanism = jp.Mechanism([nut], [spindle])
    angle = 7.3 * 2 * np.pi
    start = jp.Start((0.0, 0.0, 0.05 * 7.3), jp.quaternion(Z, angle))
    np.testing.assert_allclose(mechanism.guess({"nut": start})[0], [angle], rtol=1e-12)


def test_a_given_position() -> None:
    """A piston is moved along a slide: the force of the drive is m s''."""
    piston = jp.planar_body("piston", mass=2.0, inertia=0.1)
    joints = [
        jp.prismatic("slide", jp.ground, O2, piston, O2, axis=(3, 4)),
        jp.given_position(
            "ram", jp.ground, O2, piston, O2, lambda t, p: p["a"] * t**2, axis=(3, 4)
        ),
    ]
    mechanism = jp.Mechanism([piston], joints, params={"a": 0.7})
    motion = jm.acceleration(mechanism.system, [0.0], [0.0], 0.0, mechanism.params)
    np.testing.assert_allclose(motion.qdd, [1.4])
    np.testing.assert_allclose(motion.multipliers, [2.8])
