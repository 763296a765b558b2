"""The same accelerations in the coordinates of joints as in those of bodies."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.laws import UdwadiaKalaba, acceleration, observed_at
from jaxmech.parts.vectors import product
from tests.parts.poses import starts_at

PARAMS = {"l": 0.4, "m": 1.3, "k": 20.0, "a": jnp.asarray([0.1, 0.2, 0.97])}
HERE, P = (0.0, 0.0, 0.0), (0.1, -0.2, 0.3)
Made = Callable[..., jp.Mechanism]


def box(name: str, **kwargs: Any) -> Any:
    moments = ((0.05, 0.01, 0.0), (0.01, 0.06, 0.005), (0.0, 0.005, 0.04))
    return jp.spatial_body(name, mass="m", inertia=moments, **kwargs)


def tree_of_all_joints(**kwargs: Any) -> jp.Mechanism:
    """Hinge, sleeve, Cardan joint, slide, weld and ball, some of them towards the ground."""
    a, b, c, d, e, f = (box(name, center=(0.1, 0.0, 0.05)) for name in "abcdef")
    turn = (0.8, 0.0, 0.6, 0.0)
    joints = [
        jp.revolute("hinge", a, P, jp.ground, (0.3, 0, 0), axis=(0, 0.6, 0.8), axis_b=(0, 0, -1)),
        jp.cylindrical("sleeve", a, (0, 0, "l"), b, HERE, axis="a", axis_b=(1, 0, 0)),
        jp.universal("cross", b, P, c, (0, 0.1, 0), axis_a=(0, 0, -1), axis_b=(0, 0.6, 0.8)),
        jp.prismatic("slide", d, P, c, HERE, axis=(1, 2, 2), turn=turn),
        jp.weld("seam", c, HERE, e, (lambda t, p: p["l"] / 2, 0, 0), turn=turn),
        jp.spherical("ball", f, P, a, (0, 0, 0.2)),
    ]
    forces = [
        jp.gravity(down=(1, 2, -5)),
        jp.spring("spring", d, P, f, HERE, stiffness="k", length="l"),
        jp.damper("damper", jp.ground, (1, 1, 1), e, P, damping=0.7),
        jp.torque("motor", b, c, 0.4, axis=(0, 1, 1)),
        jp.applied_force("push", e, P, (0.3, -0.2, 0.5)),
    ]
    return jp.Mechanism([a, b, c, d, e, f], joints, forces, PARAMS, **kwargs)


def moved_by_time(**kwargs: Any) -> jp.Mechanism:
    """Joints move and turn on both bodies as time goes on."""
    a, b, c = box("a"), box("b", center=(0.0, 0.1, 0.0)), box("c")
    along = (lambda t, p: p["l"] * jnp.sin(3 * t), 0, 0.1)
    axis = (lambda t, p: jnp.cos(t), lambda t, p: jnp.sin(t), 0)
    joints = [
        jp.revolute("first", jp.ground, along, a, (0, 0, "l"), axis=axis, axis_b=(0, 1, 0)),
        jp.spherical("second", a, HERE, b, along),
        jp.prismatic(
            "third", c, P, a, along, axis=axis, turn=lambda t, p: jp.quaternion((1, 2, 3), t)
        ),
    ]
    return jp.Mechanism([a, b, c], joints, [jp.gravity()], PARAMS, **kwargs)


def plate_with_screw(**kwargs: Any) -> jp.Mechanism:
    """A plate on a table, with a spindle in it."""
    a, b = box("a", center=(0.1, 0.0, 0.0)), box("b", center=(0.0, 0.1, 0.1))
    joints = [
        jp.planar("table", jp.ground, P, a, HERE, normal=(0, 0.6, 0.8), normal_b=(0, 0, 1)),
        jp.screw("spindle", b, P, a, (0, 0, "l"), axis=(1, 2, 2), axis_b=(0, 0, -1), lead=0.4),
    ]
    forces = [jp.gravity(), jp.joint_force("drag", joints[1], lambda x, rate, t, p: -rate)]
    return jp.Mechanism([a, b], joints, forces, PARAMS, **kwargs)


def planar_tree(**kwargs: Any) -> jp.Mechanism:
    """A cart with an arm whose hand slides, and a welded bar."""
    cart, arm, hand, bar = (
        jp.planar_body(n, mass="m", inertia=0.1, center=(0.1, 0.2)) for n in ("c", "arm", "h", "b")
    )
    joints = [
        jp.prismatic("rail", jp.ground, (0, 0.5), cart, (0, 0), axis=(1, 2), turn=0.3),
        jp.revolute("hinge", arm, ("l", 0), cart, (0.1, 0.2)),
        jp.prismatic("slide", arm, (0.5, 0), hand, (0.1, 0.1), axis=(0, 1)),
        jp.weld("seam", hand, (0.1, 0), bar, (0, "l"), turn=lambda t, p: p["l"]),
    ]
    forces = [jp.gravity(), jp.damper("d", jp.ground, (2, 2), bar, (0.1, 0), damping=0.5)]
    return jp.Mechanism([cart, arm, hand, bar], joints, forces, PARAMS, **kwargs)


def four_bar(**kwargs: Any) -> jp.Mechanism:
    """A loop in the plane that closes where the rocker is pinned to the ground."""
    crank, rod, rocker = (jp.planar_body(n, mass="m", inertia=0.02) for n in ("c", "r", "s"))
    joints = [
        jp.revolute("A", jp.ground, (0, 0), crank, (-0.1, 0)),
        jp.revolute("B", crank, (0.1, 0), rod, (-0.25, 0)),
        jp.revolute("C", rod, (0.25, 0), rocker, (0.2, 0)),
        jp.revolute("D", rocker, (-0.2, 0), jp.ground, (0.5, 0)),
    ]
    return jp.Mechanism([crank, rod, rocker], joints, [jp.gravity()], PARAMS, **kwargs)


def state_of(made: Made, t: float) -> tuple[jp.Mechanism, jp.Mechanism, Any, Any]:
    """A mechanism in both coordinates, and the state of the first at random."""
    joints, bodies = made(), made(coordinates="bodies")
    system, t = joints.system, jnp.asarray(t)
    guess = np.random.default_rng(5).normal(size=(2, system.n))
    q, v = jm.assemble(system, *guess, t, PARAMS)
    return joints, bodies, q, v


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [
        tree_of_all_joints,
        moved_by_time,
        plate_with_screw,
        planar_tree,
    ],
    ids=lambda made: made.__name__,
)
def test_accelerations_energies_and_loads(made: Made) -> None:
    joints, bodies, q, v = state_of(made, 0.4)
    t = jnp.asarray(0.4)
    own = bodies.guess(starts_at(joints, q, v, t, PARAMS))
    for level in (bodies.system.dynamics.position_level(own[0], t, PARAMS),
                  bodies.system.dynamics.velocity_level(*own, t, PARAMS)):  # fmt: skip
        np.testing.assert_allclose(level, 0.0, atol=1e-13)
    energies = [
        m.system.dynamics.energy(*x, t, PARAMS) for m, x in ((joints, (q, v)), (bodies, own))
    ]
    if made is not moved_by_time:  # where the velocities of the joint do not count in v . dL/dv
        np.testing.assert_allclose(*energies, rtol=1e-12)

    def seen(mechanism: jp.Mechanism, q: Any, v: Any) -> Any:
        observation = observed_at(mechanism.system, UdwadiaKalaba(), q, v, t, PARAMS)
        a = observation.qdd

        def velocities(q: Any, v: Any, t: Any) -> Any:
            moving = mechanism.kinematics.moving(mechanism.bodies, q, v, t, PARAMS)
            return [(m.velocity, m.spin) for m in moving]

        accelerations = jax.jvp(velocities, (q, v, t), (v, a, jnp.ones_like(t)))[1]
        return accelerations, observation.loads

    # Operation by operation: XLA takes minutes for programs of this size, which run once.
    mine = seen(joints, q, v)
    assert set(mine[1]) == set(joints.tree)
    expected = seen(bodies, *own)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_coordinates_of_joints_and_bodies() -> None:
    """The coordinates come back from the poses of the bodies that they lead to."""
    joints, _, q, v = state_of(tree_of_all_joints, 0.0)
    assert joints.tree == ("hinge", "sleeve", "ball", "cross", "slide", "seam")
    again = joints.guess(starts_at(joints, q, v, jnp.zeros(()), PARAMS))
    names = joints.system.coordinates
    of_ball = [k for k, name in enumerate(names) if name.startswith("ball.")]
    sign = np.ones(len(names))
    sign[of_ball] = np.sign(again[0][of_ball[0]] * q[of_ball[0]])  # e and -e are one attitude
    near = np.array([np.isclose(np.cos(a - b), 1) if "angle" in name else np.isclose(a, b)
                     for name, a, b in zip(names, sign * again[0], q, strict=True)])  # fmt: skip
    assert near.all(), (names, again[0], q)
    np.testing.assert_allclose(sign * again[1], v, atol=1e-12)


@pytest.mark.slow
def test_a_loop_and_its_reaction() -> None:
    """Only the joint that closes the loop is a constraint, with the multipliers that it has."""
    bodies, t = four_bar(coordinates="bodies"), jnp.zeros(())
    starts = {"c": jp.Start((0.0, 0.1), np.pi / 2, spin=1.0), "r": jp.Start((0.25, 0.3), 0.3),
              "s": jp.Start((0.5, 0.2), 1.4)}  # fmt: skip
    own = jm.assemble(bodies.system, *bodies.guess(starts), t, PARAMS)
    met = starts_at(bodies, *own, t, PARAMS)
    expected = acceleration(bodies.system, *own, t, PARAMS).multipliers
    rows = {c.name: slice(2 * k, 2 * k + 2) for k, c in enumerate(bodies.system.constraints)}
    for cut, closing in (((), "C"), (("B",), "B"), (("A",), "A")):
        joints = four_bar(cut=cut)
        assert [c.name for c in joints.system.constraints] == [closing]
        assert set(joints.tree) == set("ABCD") - {closing}
        q, v = joints.guess(met)
        np.testing.assert_allclose(
            joints.system.dynamics.position_level(q, t, PARAMS), 0.0, atol=1e-12
        )
        np.testing.assert_allclose(
            joints.system.dynamics.velocity_level(q, v, t, PARAMS), 0.0, atol=1e-12
        )
        found = acceleration(joints.system, q, v, t, PARAMS).multipliers
        np.testing.assert_allclose(found, expected[rows[closing]], rtol=1e-9)


@pytest.mark.slow
def test_a_motion_is_native_and_differentiated() -> None:
    """A double pendulum with the energies and gradients of one in bodies, in a batch."""
    mechanism = planar_tree()
    ts = jnp.linspace(0, 0.5, 6)
    params = {**PARAMS, "l": jnp.asarray([0.3, 0.4, 0.5])}
    axes = {name: 0 if name == "l" else None for name in params}

    def end(params: Any) -> Any:
        q = jnp.asarray([0.1, 0.4, 0.2])
        sol = jm.simulate(mechanism.system, q, 0 * q, ts, params, steps=jm.FixedSteps(10))
        return mechanism.frame("b", sol.q[-1], 0.5, params).origin.sum()

    told = repr(jm.compiler.explain(end, params, in_axes=(axes,)))
    assert "plain vmap" not in told, told
    slopes = jax.vmap(jax.grad(end), (axes,))(params)["l"]
    step = 1e-6
    ends = [jax.vmap(end, (axes,))({**params, "l": params["l"] + s}) for s in (step, -step)]
    np.testing.assert_allclose(slopes, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def test_joints_without_names_are_constraints() -> None:
    a, b = (jp.planar_body(name, mass=1.0, inertia=0.1) for name in "ab")
    joints = [
        jp.revolute("", jp.ground, (0, 0), a, (0, 0)),
        jp.revolute("", a, (1, 0), b, (0, 0)),
    ]
    mechanism = jp.Mechanism([a, b], joints)
    assert mechanism.tree == ()
    assert mechanism.system.coordinates == ("a.x", "a.y", "a.angle", "b.x", "b.y", "b.angle")
    assert len(mechanism.system.constraints) == 2


def test_a_hinge_counts_its_angle_from_a_given_attitude() -> None:
    axis, turn, angle = (0, 0, 1), (0.5, 0.5, 0.5, 0.5), 0.3  # turns x into y, y into z
    arm = jp.spatial_body("arm", mass=1.0, inertia=(0.1, 0.2, 0.3))
    made = {"axis": axis, "axis_b": (0, 1, 0), "turn": turn}
    pin = jp.revolute("pin", jp.ground, P, arm, HERE, **made)
    mechanism = jp.Mechanism([arm], [pin], coordinates="joints")
    expected = product(jp.quaternion(axis, angle), jnp.array(turn))
    np.testing.assert_allclose(mechanism.frame("arm", [angle]).attitude, expected, atol=1e-15)
    start = jp.Start(P, attitude=expected, spin=(0, 0, 2.0))
    q, v = mechanism.guess({"arm": start})
    np.testing.assert_allclose((q[0], v[0]), (angle, 2.0), rtol=1e-14)
    with pytest.raises(ValueError, match=r"`turn` that turns `axis_b` .* into `axis`.*correct"):
        jp.revolute("pin", jp.ground, P, arm, HERE, axis=axis, turn=turn)
    flat = jp.planar_body("flat", mass=1.0, inertia=0.1)
    with pytest.raises(ValueError, match="no `turn` in the plane"):
        jp.revolute("pin", jp.ground, (0, 0), flat, (0, 0), turn=turn)


def test_rotors_and_springs_act_on_coordinates() -> None:
    rod = jp.planar_body("rod", mass="m", inertia=0.02)
    pin = jp.revolute("pin", jp.ground, (0, 0), rod, (0, "l"))
    forces = [
        jp.rotor("drive", "pin.angle", lambda t, p: 9 * p["a"]),
        jp.joint_spring("closer", "pin.angle", stiffness="k", rest=0.5),
    ]
    params = {"m": 1.3, "l": 0.4, "a": 0.01, "k": 20.0}
    mechanism = jp.Mechanism([rod], [pin], forces, params)
    assert "rotor 'drive': pin.angle" in repr(mechanism)
    system = mechanism.system
    eom = system.equations([7.0], [2.0], 0.0, params)  # beyond a full turn
    np.testing.assert_allclose(eom.M, [[0.02 + 1.3 * 0.4**2 + 0.09]])
    np.testing.assert_allclose(eom.Q, [-20 * 6.5])
    inertia = 0.02 + 1.3 * 0.4**2 + 0.09
    energy = inertia * 2.0**2 / 2 + 20 * 6.5**2 / 2
    state = (jnp.array([7.0]), jnp.array([2.0]), jnp.zeros(()))
    np.testing.assert_allclose(system.dynamics.energy(*state, params), energy)
    with pytest.raises(ValueError, match=r"Rotor 'drive' must be on coordinates.*'knee.angle'"):
        jp.Mechanism([rod], [pin], [jp.rotor("drive", "knee.angle", 1.0)], params)
    with pytest.raises(ValueError, match="distinct names, but \"rotor 'drive'\" is given twice"):
        jp.Mechanism([rod], [pin], [forces[0], forces[0]], params, coordinates="joints")


def test_the_start_of_a_ball_is_normalized() -> None:
    """The rate turns the body as it would turn the quaternion of any length."""
    body = jp.spatial_body("body", mass=1.0, inertia=(0.1, 0.2, 0.3))
    ball = jp.Mechanism([body], [jp.spherical("ball", jp.ground, (0, 0, 0), body, (0, 0, 0.3))])
    e, rate = np.array([1.0, 0.2, 0.1, 0.3]), np.array([0.5, 0.3, -0.2, 0.1])
    q, v = ball.guess({"ball": jp.Start(e, velocity=rate)})
    np.testing.assert_allclose(q, e / np.linalg.norm(e), rtol=1e-15)
    np.testing.assert_allclose(q @ v, 0.0, atol=1e-15)
    np.testing.assert_allclose(v, (rate - q * (q @ rate)) / np.linalg.norm(e), atol=1e-15)
    with pytest.raises(ValueError, match="joint 'ball' must have a quaternion other than zero"):
        ball.guess({"ball": jp.Start(np.zeros(4))})


def test_a_mechanism_that_is_welded_to_the_ground() -> None:
    """Without coordinates there is no system; in those of bodies the weld carries the weight."""
    body = jp.planar_body("body", mass=2.0, inertia=0.1)
    parts = [body], [jp.weld("wall", jp.ground, (0, 0), body, (-0.5, 0))], [jp.gravity(10.0)]
    with pytest.raises(ValueError, match=r'welds all bodies to the ground.*coordinates="bodies"'):
        jp.Mechanism(*parts)
    held = jp.Mechanism(*parts, coordinates="bodies")
    q, v = held.guess({"body": jp.Start((0.5, 0.0))})
    np.testing.assert_allclose(acceleration(held.system, q, v).multipliers, [0, 20, 10], atol=1e-12)
