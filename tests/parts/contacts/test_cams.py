"""Cams: lifts and forces in closed form, derivatives, and misuse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.laws import UdwadiaKalaba, observed_at
from jaxmech.parts.values import Reader

O = (0, 0)  # noqa: E741
PARAMS = {"e": 0.02, "r": 0.05, "R": 0.01, "w": 3.0, "m": 0.5, "g": 9.81}


def eccentric(s: Any, t: Any, p: Any) -> Any:
    """A circular disk, whose centre is at e from the axle."""
    return p["e"] + p["r"] * jnp.cos(s), p["r"] * jnp.sin(s)


def driven(joint: Any, coordinates: Any = "joints", **more: Any) -> jp.Mechanism:
    """A cam that turns at a given speed under a follower that slides upward."""
    wheel = jp.planar_body("wheel", mass=2.0, inertia=0.3)
    rod = jp.planar_body("rod", mass="m", inertia=0.1)
    joints = [
        jp.revolute("axle", jp.ground, O, wheel, O),
        jp.prismatic("guide", jp.ground, O, rod, O, axis=(0, 1)),
        joint(wheel, rod),
        jp.given_angle("motor", jp.ground, wheel, lambda t, p: p["w"] * t),
    ]
    params = PARAMS | more
    return jp.Mechanism([wheel, rod], joints, [jp.gravity("g")], params, coordinates=coordinates)


def roller(wheel: Any, rod: Any) -> jp.Joint:
    return jp.cam("lift", wheel, O, rod, O, profile=eccentric, radius="R")


def face(wheel: Any, rod: Any) -> jp.Joint:
    return jp.flat_follower("lift", wheel, O, rod, O, profile=eccentric, normal=(0, -1))


def lift_of_roller(t: Any, p: Any) -> Any:
    """e cos(angle) + sqrt((r + R)^2 - e^2 sin(angle)^2), with the angle from above."""
    angle = jnp.pi / 2 - p["w"] * t
    x, y = p["e"] * jnp.sin(angle), p["e"] * jnp.cos(angle)
    return y + jnp.sqrt((p["r"] + p["R"]) ** 2 - x**2)


def lift_of_face(t: Any, p: Any) -> Any:
    return p["e"] * jnp.sin(p["w"] * t) + p["r"]


def states(lift: Any, coordinates: str, ts: Any, p: Any) -> tuple[Any, Any, Any]:
    """Coordinates, velocities and accelerations in closed form, (k, n)."""

    def q(t: Any) -> Any:
        turn, height = p["w"] * t, lift(t, p)
        pose = (turn, height) if coordinates == "joints" else (0, 0, turn, 0, height, 0)
        return jnp.stack([1.0 * jnp.asarray(x) for x in pose])

    v = jax.jacfwd(q)
    return tuple(jax.vmap(fn)(ts) for fn in (q, v, jax.jacfwd(v)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("joint", "lift", "coordinates"),
    [(roller, lift_of_roller, "bodies"), (face, lift_of_face, "joints")],
)
def test_an_eccentric_lifts_its_follower(joint: Any, lift: Any, coordinates: Any) -> None:
    mechanism, p, ts = driven(joint, coordinates), dict(PARAMS), jnp.linspace(0.0, 2.0, 9)
    system, (q, v, qdd) = mechanism.system, states(lift, coordinates, ts, p)

    @jax.jit
    @jax.vmap
    def everything(q: Any, v: Any, t: Any) -> Any:
        a = jm.acceleration(system, q, v, t, p)
        return (
            system.dynamics.position_level(q, t, p),
            system.dynamics.velocity_level(q, v, t, p),
            a.qdd,
        )

    position, velocity, acceleration = everything(q, v, ts)
    np.testing.assert_allclose(position, 0, atol=1e-15)
    np.testing.assert_allclose(velocity, 0, atol=1e-15)
    np.testing.assert_allclose(acceleration, qdd, atol=1e-12)


def test_the_force_on_a_follower_is_that_of_its_acceleration() -> None:
    mechanism, p, ts = driven(roller), dict(PARAMS), jnp.linspace(0.0, 2.0, 5)
    q, v, qdd = states(lift_of_roller, "joints", ts, p)

    def observed(q: Any, v: Any, t: Any) -> Any:
        return observed_at(mechanism.system, UdwadiaKalaba(), q, v, t, p)

    seen = jax.jit(jax.vmap(observed))(q, v, ts)
    np.testing.assert_allclose(seen.qdd, qdd, atol=1e-12)
    force, _ = seen.loads["lift"]
    np.testing.assert_allclose(force[:, 1], p["m"] * (p["g"] + qdd[:, 1]), atol=1e-10)


def gap(joint: Any, q: Any, p: Any) -> Any:
    frames = [body.frame(q[k : k + 3]) for k, body in ((0, joint.bodies[0]), (3, joint.bodies[1]))]
    read = Reader(joint.part, jnp.zeros(()), p)
    return joint.positions[0].residual(tuple(frames), read)[0]


@pytest.mark.slow
def test_derivatives_of_all_orders_that_gradients_need_are_exact() -> None:
    """Of a roller on a circle, whose gap is |x - center| - r - R, by the pose and by e."""
    bodies = (jp.planar_body(name, mass=1.0, inertia=1.0) for name in "ab")
    joint = jp.cam("lift", next(bodies), O, next(bodies), O, profile=eccentric, radius="R")

    def of_contact(x: Any) -> Any:
        q = jnp.stack([*jnp.zeros(2), x[0], x[1], x[2], x[0]])
        return gap(joint, q, PARAMS | {"e": x[3]})

    def closed(x: Any) -> Any:
        center = x[3] * jnp.stack([jnp.cos(x[0]), jnp.sin(x[0])])
        return jnp.linalg.norm(x[1:3] - center) - PARAMS["r"] - PARAMS["R"]

    def slopes(fn: Any) -> Any:
        """Directional derivatives up to the fourth order, along a direction of all entries."""
        x, way = jnp.array([0.7, 0.03, 0.06, 0.02]), jnp.array([1.0, 0.02, -0.03, 0.01])
        along, values = (lambda h: fn(x + h * way)), []
        for _ in range(5):
            values.append(along)
            along = jax.jacfwd(along)
        return jax.jit(lambda h: jnp.stack([value(h) for value in values]))(0.0)

    np.testing.assert_allclose(slopes(of_contact), slopes(closed), rtol=1e-9, atol=1e-15)


def test_a_roller_runs_inside_a_clockwise_ring() -> None:
    ring = lambda s, t, p: (p["a"] * jnp.cos(s), -p["b"] * jnp.sin(s))  # noqa: E731
    bob = jp.point_mass("bob", mass=1.0)
    joint = jp.cam("ring", jp.ground, O, bob, O, profile=ring, radius=0.3)
    pipe = jp.Mechanism([bob], [joint], params={"a": 3.0, "b": 2.0})
    q = jnp.array([0.0, -1.7])
    level = pipe.system.dynamics.position_level(q, jnp.zeros(()), dict(pipe.params))
    np.testing.assert_allclose(level, 0, atol=1e-15)
    lower = pipe.system.dynamics.position_level(
        q - jnp.array([0.0, 0.1]), jnp.zeros(()), dict(pipe.params)
    )
    np.testing.assert_allclose(lower, -0.1, atol=1e-14)  # pushed into the ring


@pytest.mark.slow
def test_a_spline_is_smooth_and_differentiable_by_its_points() -> None:
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    points = np.stack([2 * np.cos(angle), np.sin(angle)], axis=1)
    curve, named = jp.spline_profile(points), jp.spline_profile("points")
    at = jax.jit(jax.vmap(lambda s: curve(s, 0.0, {})))
    np.testing.assert_allclose(at(angle), points, atol=1e-14)
    middle = angle + np.pi / 24
    exact = np.stack([2 * np.cos(middle), np.sin(middle)], axis=1)
    np.testing.assert_allclose(at(middle - 2 * np.pi), exact, atol=1e-4)
    bend = jax.vmap(jax.jacfwd(jax.jacfwd(lambda s: curve(s, 0.0, {}))))
    np.testing.assert_allclose(bend(angle - 1e-9), bend(angle + 1e-9), atol=1e-6)
    slope = jax.jacfwd(lambda points: named(1.0, 0.0, {"points": points}))(jnp.asarray(points))
    np.testing.assert_allclose(jnp.einsum("ikl->il", slope), jnp.eye(2), atol=1e-14)


@pytest.mark.slow
def test_cams_have_shapes() -> None:
    mechanism = driven(roller)
    y = float(lift_of_roller(0.0, PARAMS))
    shapes = jax.jit(lambda q: mechanism.geometry(q, 0.0, dict(PARAMS)))(jnp.array([0.0, y]))
    away = np.linalg.norm(np.asarray(shapes["lift.profile"]) - [PARAMS["e"], 0], axis=1)
    np.testing.assert_allclose(away, PARAMS["r"], atol=1e-15)
    away = np.linalg.norm(np.asarray(shapes["lift.wheel"]) - [0, y], axis=1)
    np.testing.assert_allclose(away, PARAMS["R"], atol=1e-15)
    between = np.array([0, y]) - np.asarray(shapes["lift"])
    np.testing.assert_allclose(np.linalg.norm(between), PARAMS["R"], atol=1e-15)
