"""Each joint: zero where it holds, the right number of equations, and reactions without work.

A joint is compared with the motions that it should allow, written down by hand in `poses.py`. Its
equations vanish on those poses, their gradients A are at right angles to all those motions (so that
no reaction does work), and the ranks of both fill the space: it allows nothing else.

At the end, a joint by a subclass of `CoordinateJoint`, and axes that change with time.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.parts.joints import CoordinateJoint, Direction, Hinge, Slide
from tests.parts.poses import (
    A,
    B,
    assert_balanced,
    hamilton,
    load,
    motions,
    pair,
    placed,
    rows,
    turn,
)

PA, PB = (0.3, -0.2, 0.5), (-0.1, 0.4, 0.2)
U, V = (1.0, -2.0, 2.0), (0.6, 0.0, 0.8)
OUT = np.cross(U, V)  # the axis of a turn that takes V to the direction of U
ANGLE = -np.arccos(np.dot(U, V) / np.linalg.norm(U) / np.linalg.norm(V))
FIXED = (0.5, 0.1, -0.7, 0.5)
L = 0.7
O3 = np.zeros(3)

Make = Callable[[Any, Any], jp.Joint]
Relative = Callable[[Any], tuple[Any, Any]]


class Case(NamedTuple):
    """A joint, its number of equations and freedoms, and the poses that it allows."""

    make: Make
    equations: int
    freedoms: int
    relative: Relative


def attitude(f: Any) -> Any:
    """Any attitude, from three freedoms."""
    e = np.array([1.0, *f])
    return e / np.sqrt(e @ e)


def along(s: Any) -> Any:
    return s * np.asarray(U) / np.linalg.norm(U)


def fixed() -> Any:
    return np.asarray(FIXED) / np.linalg.norm(FIXED)


def globe(f: Any) -> Any:
    return L * np.array([np.cos(f[0]) * np.cos(f[1]), np.sin(f[0]) * np.cos(f[1]),
                          np.sin(f[1])])  # fmt: skip


def plane_of(f: Any) -> Any:
    """The plane at right angles to U, 0.2 above its point."""
    first, second = np.cross(U, (0, 0, 1)), np.cross(U, (1, 0, 0))
    return f[0] * first + f[1] * second + 0.2 * np.asarray(U) / np.linalg.norm(U)


def in_plane(f: Any) -> Any:
    return plane_of(f) - 0.2 * np.asarray(U) / np.linalg.norm(U)


def turned_onto(angle: Any) -> Any:
    """An attitude that rotates V onto U, and then about U."""
    return hamilton(turn(U, angle), turn(OUT, ANGLE))


def cardan(f: Any) -> Any:
    """About x of a, then about y of b."""
    return hamilton(turn((1, 0, 0), f[0]), turn((0, 1, 0), f[1]))


SPATIAL = {
    "revolute": Case(
        lambda a, b: jp.revolute("J", a, PA, b, PB, axis=U), 5, 1, lambda f: (O3, turn(U, f[0]))
    ),
    "revolute, own axis": Case(
        lambda a, b: jp.revolute("J", a, PA, b, PB, axis=U, axis_b=V),
        5,
        1,
        lambda f: (O3, turned_onto(f[0])),
    ),
    "prismatic": Case(
        lambda a, b: jp.prismatic("J", a, PA, b, PB, axis=U, turn=FIXED),
        5,
        1,
        lambda f: (along(f[0]), fixed()),
    ),
    "prismatic, -e": Case(
        lambda a, b: jp.prismatic("J", a, PA, b, PB, axis=U, turn=FIXED),
        5,
        1,
        lambda f: (along(f[0]), -fixed()),
    ),
    "cylindrical": Case(
        lambda a, b: jp.cylindrical("J", a, PA, b, PB, axis=U),
        4,
        2,
        lambda f: (along(f[0]), turn(U, f[1])),
    ),
    "spherical": Case(
        lambda a, b: jp.spherical("J", a, PA, b, PB), 3, 3, lambda f: (O3, attitude(f))
    ),
    "universal": Case(
        lambda a, b: jp.universal("J", a, PA, b, PB, axis_a=(1, 0, 0), axis_b=(0, 2, 0)),
        4,
        2,
        lambda f: (O3, cardan(f)),
    ),
    "planar": Case(
        lambda a, b: jp.planar("J", a, PA, b, PB, normal=U, normal_b=V),
        3,
        3,
        lambda f: (in_plane(f), turned_onto(f[2])),
    ),
    "weld": Case(
        lambda a, b: jp.weld("J", a, PA, b, PB, turn=FIXED), 6, 0, lambda f: (O3, fixed())
    ),
    "distance": Case(
        lambda a, b: jp.distance("J", a, PA, b, PB, length=L),
        1,
        5,
        lambda f: (globe(f), attitude(f[2:])),
    ),
    "point on line": Case(
        lambda a, b: jp.point_on_line("J", a, PA, b, PB, axis=U),
        2,
        4,
        lambda f: (along(f[0]), attitude(f[1:])),
    ),
    "point on plane": Case(
        lambda a, b: jp.point_on_plane("J", a, PA, b, PB, normal=U, height=0.2),
        1,
        5,
        lambda f: (plane_of(f), attitude(f[2:])),
    ),
}


QA, QB, DIRECTION = (0.3, -0.2), (-0.1, 0.4), (3.0, -4.0)


def straight(s: Any) -> Any:
    return s * np.asarray(DIRECTION) / 5


PLANAR = {
    "revolute": Case(
        lambda a, b: jp.revolute("J", a, QA, b, QB), 2, 1, lambda f: (np.zeros(2), f[0])
    ),
    "prismatic": Case(
        lambda a, b: jp.prismatic("J", a, QA, b, QB, axis=DIRECTION, turn=0.3),
        2,
        1,
        lambda f: (straight(f[0]), 0.3),
    ),
    "weld": Case(
        lambda a, b: jp.weld("J", a, QA, b, QB, turn=0.3), 3, 0, lambda f: (np.zeros(2), 0.3)
    ),
    "distance": Case(
        lambda a, b: jp.distance("J", a, QA, b, QB, length=L),
        1,
        2,
        lambda f: (L * np.array([np.cos(f[0]), np.sin(f[0])]), f[1]),
    ),
    "point on line": Case(
        lambda a, b: jp.point_on_line("J", a, QA, b, QB, axis=DIRECTION),
        1,
        2,
        lambda f: (straight(f[0]), f[1]),
    ),
    "given angle": Case(
        lambda a, b: jp.given_angle("J", a, b, 0.4), 1, 2, lambda f: (np.array([f[0], f[1]]), 0.4)
    ),
}

each_joint = pytest.mark.parametrize(
    ("size", "name"), [*((2, name) for name in PLANAR), *((3, name) for name in SPATIAL)]
)


class Sample(NamedTuple):
    """A mechanism of one joint, a pose, the motions that the joint allows there, and its A."""

    case: Case
    mechanism: jp.Mechanism
    q: Any
    allowed: Any
    A: dict[str, np.ndarray]


@cache
def at_random(size: int, name: str) -> Sample:
    """A joint between two bodies, in a pose that it allows."""
    case = (PLANAR if size == 2 else SPATIAL)[name]
    a, b = pair(size)
    mechanism = jp.Mechanism([a, b], [case.make(a, b)], coordinates="bodies")
    points = (QA, QB) if size == 2 else (PA, PB)
    f = np.random.default_rng(3).uniform(-1, 1, case.freedoms)
    q, allowed = motions(placed(size, case.relative, points, seed=4), size, f)
    return Sample(case, mechanism, q, allowed, rows(mechanism, q))


@each_joint
def test_joint_allows_these_motions_and_no_others(size: int, name: str) -> None:
    case, mechanism, q, allowed, A_of = at_random(size, name)
    residual = mechanism.system.dynamics.position_level(q, jnp.zeros(()), {})
    np.testing.assert_allclose(residual, 0, atol=1e-14)
    assert A_of["J"].shape[0] == case.equations
    whole = np.concatenate(list(A_of.values()))
    np.testing.assert_allclose(whole @ allowed, 0, atol=1e-8)
    assert np.linalg.matrix_rank(whole) == whole.shape[0]
    common = 3 if size == 2 else 6
    assert (
        np.linalg.matrix_rank(allowed, tol=1e-6)
        == common + case.freedoms
        == q.size - whole.shape[0]
    )


@each_joint
def test_joint_does_not_hold_in_other_poses(size: int, name: str) -> None:
    _, mechanism, q, _, _ = at_random(size, name)
    away = q + np.random.default_rng(5).normal(size=q.shape)
    constraint = next(c for c in mechanism.system.constraints if c.name == "J")
    assert np.all(np.abs(constraint.value(away, jnp.zeros(()), {})) > 1e-3)


@each_joint
def test_reaction_on_one_body_is_opposite_to_that_on_the_other(size: int, name: str) -> None:
    case, mechanism, q, _, A_of = at_random(size, name)
    multipliers = np.random.default_rng(6).normal(size=case.equations)
    assert_balanced(mechanism, q, A_of["J"].T @ multipliers)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["revolute", "weld"])
def test_multipliers_of_a_hinge_are_the_force_on_the_second_body(name: str, size: int) -> None:
    case, mechanism, q, _, A_of = at_random(size, name)
    multipliers = np.random.default_rng(7).normal(size=case.equations)
    force, _ = load(mechanism, B, q, A_of["J"].T @ multipliers)
    np.testing.assert_allclose(force, multipliers[:size], atol=1e-14)


@pytest.mark.parametrize("name", ["weld", "prismatic, -e"])
def test_torques_of_a_weld_are_along_the_axes_of_the_second_body(name: str) -> None:
    _, mechanism, q, _, A_of = at_random(3, name)
    torque = np.array([0.3, -0.4, 1.1])
    _, found = load(mechanism, B, q, A_of["J"][-3:].T @ torque)
    np.testing.assert_allclose(found, mechanism.frame(B, q).axes @ torque, atol=1e-14)


@pytest.mark.parametrize("size", [2, 3])
def test_multiplier_of_a_rod_is_the_force_that_pushes(size: int) -> None:
    _, mechanism, q, _, A_of = at_random(size, "distance")
    points = (QA, QB) if size == 2 else (PA, PB)
    ends = [mechanism.frame(n, q).point(np.array(p)) for n, p in zip((A, B), points, strict=True)]
    force, _ = load(mechanism, B, q, 2.5 * A_of["J"][0])
    np.testing.assert_allclose(force, 2.5 * (ends[1] - ends[0]) / L, atol=1e-14)


def test_multiplier_of_a_line_is_a_force_across_it() -> None:
    _, mechanism, q, _, A_of = at_random(2, "point on line")
    force, _ = load(mechanism, B, q, 2.0 * A_of["J"][0])
    line = mechanism.frame(A, q).direction(np.array(DIRECTION) / 5)
    np.testing.assert_allclose([force @ line, force @ force], [0, 4], atol=1e-14)


def test_given_angle_in_space_is_the_angle_in_the_hinge() -> None:
    a, b = pair(3)
    drive = jp.given_angle("drive", a, b, "angle", axis=U)
    mechanism = jp.Mechanism(
        [a, b],
        [jp.revolute("J", a, PA, b, PB, axis=U), drive],
        params={"angle": 0.4},
        coordinates="bodies",
    )
    place = placed(3, lambda f: (O3, turn(U, f[0])), (PA, PB), seed=8)
    (row,) = (c for c in mechanism.system.constraints if c.name == "drive")
    for angle, expected in ((0.4, 0.0), (1.0, np.sin(0.6)), (-2.0, -2 + np.sin(2.4))):
        q, allowed = motions(place, 3, [angle])
        np.testing.assert_allclose(
            row.value(q, jnp.zeros(()), {"angle": 0.4}), expected, atol=1e-14
        )
    q, allowed = motions(place, 3, [0.4])
    A_drive = rows(mechanism, q)["drive"]
    np.testing.assert_allclose(A_drive @ allowed, [[0, 0, 0, 0, 0, 0, 1]], atol=1e-8)
    assert_balanced(mechanism, q, A_drive[0])


@pytest.mark.slow
@pytest.mark.parametrize("guess", [3.1, -2.5])
def test_a_fixed_attitude_is_found_from_a_guess_almost_half_a_turn_away(guess: float) -> None:
    _, b = pair(3)
    weld = jp.Mechanism([b], [jp.weld("J", jp.ground, O3, b, O3, turn=FIXED)], coordinates="bodies")
    start = {B: jp.Start(O3, hamilton(fixed(), turn(U, guess)))}
    q, _ = jm.assemble(weld.system, *weld.guess(start))
    np.testing.assert_allclose(q[3:] * np.sign(q[3:] @ fixed()), fixed(), atol=1e-14)
    hinge = jp.revolute("J", jp.ground, O3, b, O3, axis=U)
    drive = jp.given_angle("drive", jp.ground, b, 0.4, axis=U)
    driven = jp.Mechanism([b], [hinge, drive], coordinates="bodies")
    q, _ = jm.assemble(driven.system, *driven.guess({B: jp.Start(O3, turn(U, 0.4 + guess))}))
    e = turn(U, 0.4)
    np.testing.assert_allclose(q[3:] * np.sign(q[3:] @ e), e, atol=1e-14)


@dataclass(frozen=True)
class PinInSlot(CoordinateJoint):
    """A pin of b slides along a slot of a, and b turns about it; in the plane."""

    _: KW_ONLY
    axis: Direction

    kind = "pin in slot"

    @property
    def motions(self) -> Any:
        return Slide(self.at_a, self.at_b, self.axis), Hinge()


def swing(coordinates: Any) -> jp.Mechanism:
    """A bar on a pin in a slot of a turning disk, with a spring and a stop along the slot."""
    disk = jp.planar_body("disk", mass=3.0, inertia=0.5)
    bar = jp.planar_body("bar", mass=1.0, inertia=0.1)
    slot = PinInSlot("slot", disk, (0.0, 0.2), bar, (0.5, 0.0), axis=(8, 6))
    spring = jp.joint_force("spring", slot, lambda x, rate, t, p: -20 * x, coordinate="position")
    return jp.Mechanism(
        [disk, bar],
        [jp.revolute("axle", jp.ground, (0, 0), disk, (0, 0)), slot],
        [jp.gravity(), spring],
        coordinates=coordinates,
    )


def test_a_joint_of_ones_own_moves_as_its_equations_say() -> None:
    by_joints, by_bodies = swing("joints"), swing("bodies")
    assert by_joints.tree == ("axle", "slot")
    assert by_joints.system.coordinates == ("axle.angle", "slot.position", "slot.angle")
    q, v = jnp.array([0.3, 0.1, -0.4]), jnp.array([1.0, -0.5, 2.0])
    starts = {}
    for name in ("disk", "bar"):
        frame, rate = by_joints.frame(name, q), by_joints.velocity(name, (0, 0), q, v)
        spin = 1.0 if name == "disk" else 3.0
        starts[name] = jp.Start(tuple(frame.origin), frame.attitude, tuple(rate), spin)
    np.testing.assert_allclose(by_joints.guess(starts)[0], q, atol=1e-12)
    np.testing.assert_allclose(by_joints.guess(starts)[1], v, atol=1e-12)
    ts = jnp.linspace(0.0, 0.2, 3)
    policy = {"steps": jm.FixedSteps(per_save=20), "method": jm.RK4()}
    sol = jm.simulate(by_joints.system, q, v, ts, {}, **policy)
    other = jm.simulate(by_bodies.system, *by_bodies.guess(starts), ts, {}, **policy)
    for name in ("disk", "bar"):
        ends = [m.frame(name, s.q[-1]).origin for m, s in ((by_joints, sol), (by_bodies, other))]
        np.testing.assert_allclose(*ends, atol=1e-7)
    loads = [
        jm.observe(m.system, s).loads["slot"] for m, s in ((by_joints, sol), (by_bodies, other))
    ]
    np.testing.assert_allclose(loads[0][0], loads[1][0], rtol=1e-5, atol=1e-5)
    assert {"slot", "slot.guide"} <= by_joints.geometry(q, 0.0, {}).keys()


@pytest.mark.parametrize("make", [jp.revolute, jp.cylindrical])
def test_an_axis_that_changes_with_time_moves_the_body(make: Any) -> None:
    top = jp.spatial_body("top", mass=1.0, inertia=(0.1, 0.2, 0.3))
    tilting = (lambda t, p: jnp.sin(2 * t), 0.0, lambda t, p: jnp.cos(2 * t))
    o = (0, 0, 0)
    mechanism = jp.Mechanism(
        [top], [make("axle", jp.ground, o, top, o, axis=tilting, axis_b=tilting)]
    )
    q, t = jnp.linspace(0.7, 0.9, mechanism.system.n), jnp.asarray(0.3)
    speed = jax.jvp(lambda t: mechanism.point("top", (1, 2, 3), q, t), (t,), (1.0,))[1]
    assert np.linalg.norm(speed) > 0.1
    found = mechanism.velocity("top", (1, 2, 3), q, 0 * q, t)
    np.testing.assert_allclose(found, speed, atol=1e-12)
