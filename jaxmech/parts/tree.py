"""The tree of a mechanism: which joints have coordinates, and which close loops as constraints.

`JointCoordinates` are those of joints along a tree of bodies. Velocities are along the axes of each
body, where masses are constant. `BodyCoordinates` are those of each body, where all joints are
constraints.

`Spins` are velocities with spins in place of the rates of quaternions. The rate of a quaternion e
is e (0, w) / 2 for the spin w along the axes of the body; the other velocities are the rates of
their coordinates. So there are as many velocities as freedoms of the tree, and no direction in
which a quaternion changes its length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from jaxmech.parts.body import AbstractBody, Frame, Ground, Load, Moving, Start
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.pairs import CoordinateJoint
from jaxmech.parts.kinematics import AbstractKinematics, Bodies, Point, Relation
from jaxmech.parts.values import Reader, vector_with_rate
from jaxmech.parts.vectors import (
    apply,
    conjugate,
    cross,
    matmul,
    product,
    quarter_turn,
    right_products,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known
from jaxmech.utils.traces import repeated
from jaxmech.utils.units import RATE


class Located(NamedTuple):
    """A frame with its velocity, (d,), and spin, () or (3,), along its own axes."""

    frame: Frame
    velocity: AnyArray
    spin: AnyArray

    @repeated
    def following(self, relation: Relation) -> "Located":
        """The frame at the other end of a joint."""
        (at_a, rate_a), (at_b, rate_b) = relation.at_a, relation.at_b
        axes = matmul(self.frame.axes, relation.axes)
        if axes.shape == (2, 2):
            attitude = self.frame.attitude + relation.attitude
            spin = self.spin + relation.spin
            along_a, along_b = self.spin * quarter_turn(at_a), spin * quarter_turn(at_b)
        else:
            attitude = product(self.frame.attitude, relation.attitude)
            spin = apply(relation.axes.T, self.spin) + relation.spin
            along_a, along_b = cross(self.spin, at_a), cross(spin, at_b)
        joint = apply(relation.axes.T, self.velocity + along_a + rate_a)
        origin = self.frame.origin + self.frame.direction(at_a) - apply(axes, at_b)
        return Located(Frame(origin, axes, attitude), joint - along_b - rate_b, spin)


def relation_between(
    a: Located, b: Located, at_a: Point, at_b: Point
) -> tuple[Relation, tuple[Array, Array]]:
    """The relation of two frames, and the way from a point on a to one on b with its velocity.

    The points are given with their velocities on the bodies. Way and velocity are those seen from
    a, along its axes.
    """
    axes = matmul(a.frame.axes.T, b.frame.axes)
    offset = a.frame.components(b.frame.point(at_b[0]) - a.frame.point(at_a[0]))
    if len(axes) == 2:
        attitude, spin = b.frame.attitude - a.frame.attitude, b.spin - a.spin
        of_a, of_b = a.spin * quarter_turn(at_a[0] + offset), b.spin * quarter_turn(at_b[0])
    else:
        attitude = product(conjugate(a.frame.attitude), b.frame.attitude)
        spin = b.spin - apply(axes.T, a.spin)
        of_a, of_b = cross(a.spin, at_a[0] + offset), cross(b.spin, at_b[0])
    rate = apply(axes, b.velocity + of_b + at_b[1]) - (a.velocity + of_a + at_a[1])
    return Relation(axes, attitude, at_a, at_b, spin), (offset, rate)


@dataclass(frozen=True)
class Link:
    """A body of a tree, and the joint by which it hangs on the one before.

    Attributes:
        body: the body.
        parent: name of the body that it hangs on.
        joint: the joint; None for a body that moves freely, in its own coordinates.
        first: index of its first coordinate.
        is_reversed: whether the body is the first one of the joint.
    """

    body: AbstractBody
    parent: str
    joint: CoordinateJoint | None
    first: int = 0
    is_reversed: bool = False

    @property
    def mover(self) -> CoordinateJoint | AbstractBody:
        """The joint, or the free body itself, after which the coordinates are called."""
        return self.joint or self.body

    @property
    def name(self) -> str:
        return self.mover.name

    @property
    def letters(self) -> tuple[str, ...]:
        return self.mover.letters

    @property
    def has_norm(self) -> bool:
        """Whether the last coordinates are a quaternion."""
        return self.mover.has_norm

    def entries(self, x: Array) -> Array:
        return x[self.first : self.first + len(self.letters)]

    def located(self, parent: Located, q: Array, v: Array, t: Array, params: Any) -> Located:
        """The body, for the coordinates of all joints and the body before it."""
        q, v = self.entries(q), self.entries(v)
        if self.joint is None:
            return _alone(self.body, q, v)
        relation = self.joint.moving(q, v, Reader(self.mover.part, t, params))
        return parent.following(relation.reverse if self.is_reversed else relation)

    def from_start(self, start: Start) -> tuple[Array, Array]:
        """The coordinates and rates of the start of a joint; by default those at zero."""
        assert self.joint is not None
        if start.attitude is not None or start.spin is not None:
            raise ValueError(
                f"The start of joint {self.name!r} must have neither `attitude` nor `spin`; give "
                "its coordinates as `position` and their rates as `velocity`."
            )
        zeros = np.zeros(len(self.letters))
        at_zero = np.eye(4)[0] if self.joint.has_norm else zeros
        arrays = []
        pairs = (("position", start.position, at_zero), ("velocity", start.velocity, zeros))
        for field, value, default in pairs:
            x = jnp.atleast_1d(1.0 * jnp.asarray(default if value is None else value))
            if x.shape != zeros.shape:
                raise ValueError(
                    f"The start of joint {self.name!r} must have `{field}` of shape {zeros.shape} "
                    f"({', '.join(self.letters)}), but it has {x.shape}."
                )
            arrays.append(x)
        q, v = arrays
        if not self.joint.has_norm:
            return q, v
        if is_known(q) and not q.any():
            raise ValueError(
                f"The start of joint {self.name!r} must have a quaternion other than zero as "
                "`position`; without rotation it is (1, 0, 0, 0)."
            )
        dtype = jnp.result_type(q, v)
        unit, rate = jax.jvp(lambda e: e / jnp.sqrt(e @ e), (q.astype(dtype),), (v.astype(dtype),))
        return unit, rate

    def nearest(self, parent: Located, goal: Located, t: Array, params: Any) -> tuple[Array, Array]:
        """The coordinates and rates of the joint that bring the body nearest to a goal."""
        assert self.joint is not None
        read = Reader(self.mover.part, t, params)
        a, b = (goal, parent) if self.is_reversed else (parent, goal)
        size = len(a.frame.origin)
        points = (vector_with_rate(read, x, size) for x in (self.joint.at_a, self.joint.at_b))
        relation, joint = relation_between(a, b, *points)
        q = _stacked(self.joint.coordinates(relation, joint, read)[0])
        # Axes and turns that change with time move the body also where the coordinates are at rest.
        drift = self.joint.moving(q, jnp.zeros_like(q), read).spin
        relation = relation._replace(spin=relation.spin - drift)
        return q, _stacked(self.joint.coordinates(relation, joint, read)[1])


def _stacked(numbers: Sequence[Any]) -> Array:
    return jnp.stack([*numbers, jnp.zeros(())])[:-1]


def _alone(body: AbstractBody, q: Array, v: Array) -> Located:
    """A body in its own coordinates."""
    motion = body.moving(q, v)
    velocity = motion.frame.components(motion.velocity)
    return Located(motion.frame, velocity, body.spin(q, v))


@dataclass(frozen=True)
class JointCoordinates(AbstractKinematics):
    """The coordinates of the joints of a tree, `elbow.angle` and so on, and of free bodies."""

    has_tree = True

    def located(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> dict[str, Located]:
        """Some bodies and those before them, by name; the ground is always among them."""
        names = {body.name for body in bodies}
        for link in reversed(self.links):
            if link.body.name in names:
                names.add(link.parent)
        ground = Ground(dimension=self.bodies[0].dimension).moving(q, v)
        located = {"ground": Located(ground.frame, ground.velocity, ground.spin)}
        for link in self.links:
            if link.body.name in names:
                parent = located[link.parent]
                located[link.body.name] = link.located(parent, q, v, t, params)
        return located

    def frames(self, bodies: Bodies, q: Array, t: Array, params: Any) -> tuple[Frame, ...]:
        located = self.located(bodies, q, jnp.zeros_like(q), t, params)
        return tuple(located[body.name].frame for body in bodies)

    def moving(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Moving, ...]:
        located = self.located(bodies, q, v, t, params)
        return tuple(_in_space(located[body.name]) for body in bodies)

    def inertial(
        self, q: Array, v: Array, t: Array, params: Any
    ) -> Iterator[tuple[AbstractBody, AnyArray, Frame]]:
        """The kinetic energies in the velocities along the axes of each body.

        Quaternions count as their directions, so that no energy changes with their length, and the
        force of the constraint on it is zero.
        """
        if self.norms:
            q, v = jax.jvp(self.with_units, (q,), (v,))
        located = self.located(self.bodies, q, v, t, params)
        for body in self.bodies:
            seen, read = located[body.name], Reader(body.part, t, params)
            kinetic = body.kinetic(seen.velocity, seen.spin, read)
            yield body, kinetic, seen.frame

    def generalized(
        self, loads: Mapping[str, Load], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        """The power of the loads, by the velocities of the joints."""
        bodies = [body for body in self.bodies if body.name in loads]

        def velocities(v: Array) -> list[tuple[Any, Any]]:
            return [(m.velocity, m.spin) for m in self.moving(bodies, q, v, t, params)]

        body_loads = [loads[body.name] for body in bodies]
        force: Array = jax.vjp(velocities, v)[1](body_loads)[0]
        return force

    def guess(self, starts: Mapping[str, Start], t: Array, params: Any) -> tuple[Array, Array]:
        """The coordinates of each joint: given, or nearest to the start of the body after it."""
        self._require_starts(starts)
        empty = jnp.zeros(0)
        located = self.located((), empty, empty, t, params)
        pairs = []
        for link in self.links:
            parent, body = located[link.parent], link.body
            if link.joint is None:
                pair = body.start(starts[body.name])
            elif link.name not in starts and body.name in starts:
                goal = _alone(body, *body.start(starts[body.name]))
                pair = link.nearest(parent, goal, t, params)
            else:
                pair = link.from_start(starts.get(link.name, Start(None)))
            pairs.append(pair)
            located[body.name] = replace(link, first=0).located(parent, *pair, t, params)
        q, v = (jnp.concatenate(x) for x in zip(*pairs, strict=True))
        return q, v

    def _require_starts(self, starts: Mapping[str, Start]) -> None:
        bodies = [link.body.name for link in self.links]
        joints = [link.name for link in self.links if link.joint is not None]
        for name in starts:
            if name not in bodies and name not in joints:
                raise ValueError(
                    f"Argument `starts` must have starts of bodies ({', '.join(bodies)}) or of "
                    f"joints with coordinates ({', '.join(joints)}), but has one for {name!r}."
                )
        for link in self.links:
            if link.joint is None and link.body.name not in starts:
                raise ValueError(
                    f"Argument `starts` must have a start for {link.body.name!r}, which is free."
                )
            has_namesake = link.name == link.body.name
            if not has_namesake and {link.name, link.body.name} <= starts.keys():
                raise ValueError(
                    f"Argument `starts` must have a start for either the joint {link.name!r} or "
                    f"the body {link.body.name!r} that hangs on it, but has both."
                )


def _in_space(located: Located) -> Moving:
    axes = located.frame.axes
    spin = apply(axes, located.spin) if axes.shape == (3, 3) else located.spin
    return Moving(located.frame, apply(axes, located.velocity), spin)


@dataclass(frozen=True)
class BodyCoordinates(AbstractKinematics):
    """The coordinates of the bodies in order, `crank.x` and so on, all of whose links are free."""

    def entries(self, body: AbstractBody, x: Array) -> Array:
        entries = [link.entries(x) for link in self.links if link.body.name == body.name]
        return entries[0] if entries else x[:0]  # of the ground

    def frames(self, bodies: Bodies, q: Array, t: Array, params: Any) -> tuple[Frame, ...]:
        return tuple(body.frame(self.entries(body, q)) for body in bodies)

    def moving(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Moving, ...]:
        return tuple(body.moving(self.entries(body, q), self.entries(body, v)) for body in bodies)

    def inertial(
        self, q: Array, v: Array, t: Array, params: Any
    ) -> Iterator[tuple[AbstractBody, AnyArray, Frame]]:
        for body in self.bodies:
            coordinates, rates = self.entries(body, q), self.entries(body, v)
            read, velocity = Reader(body.part, t, params), rates[: body.dimension]
            spin, frame = body.spin(coordinates, rates), body.frame(coordinates)
            yield body, body.kinetic(velocity, spin, read, frame), body.frame(coordinates)

    def generalized(
        self, loads: Mapping[str, Load], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        parts = [
            body.generalized(self.entries(body, q), loads[body.name])
            if body.name in loads
            else jnp.zeros_like(self.entries(body, q))
            for body in self.bodies
        ]
        return jnp.concatenate(parts)

    def guess(self, starts: Mapping[str, Start], t: Array, params: Any) -> tuple[Array, Array]:
        names = [body.name for body in self.bodies]
        for name in (*starts, *names):
            if name not in names or name not in starts:
                raise ValueError(
                    f"Argument `starts` must have one start for each of {', '.join(names)}, but "
                    f"{'has one for' if name in starts else 'has none for'} {name!r}."
                )
        pairs = [body.start(starts[body.name]) for body in self.bodies]
        q, v = (jnp.concatenate(x) for x in zip(*pairs, strict=True))
        return q, v


def kinematics_of(
    bodies: Sequence[AbstractBody], joints: Sequence[Any], coordinates: str, cut: Sequence[str]
) -> tuple[AbstractKinematics, tuple[str, ...]]:
    """The kinematics of a mechanism, and the joints whose coordinates it uses."""
    if coordinates not in ("bodies", "joints"):
        raise ValueError(
            f'Argument `coordinates` must be "bodies" or "joints", but is {coordinates!r}.'
        )
    if coordinates == "bodies":
        if cut:
            raise ValueError(
                'Argument `cut` must be left out with coordinates="bodies", where all joints are '
                "constraints."
            )
        return BodyCoordinates(tuple(bodies), spanning_tree(bodies, (), ())[0].links), ()
    known = [joint.name for joint in joints if isinstance(joint, Joint)]
    for name in cut:
        if name not in known:
            raise ValueError(
                f"Argument `cut` must hold names of joints ({', '.join(known)}), but has {name!r}."
            )
    tree, names = spanning_tree(bodies, joints, cut)
    if bodies and not tree.coordinates:
        raise ValueError(
            "Argument `joints` must leave some freedom to a body, but welds all bodies to the "
            'ground, so that no coordinates are left; with coordinates="bodies" welds are '
            "constraints and have reactions."
        )
    return (tree, names) if names else (BodyCoordinates(tree.bodies, tree.links), ())


def spanning_tree(
    bodies: Sequence[AbstractBody], joints: Sequence[Any], cut: Sequence[str]
) -> tuple[JointCoordinates, tuple[str, ...]]:
    """The coordinates of joints along a tree from the ground, and the names of its joints.

    The tree is as shallow as possible, joints in their given order; a body that no joint connects
    to the ground moves freely. Joints of the names `cut` are left out, and so are those without a
    name, since coordinates are called after their joints.
    """
    movers = [
        joint
        for joint in joints
        if isinstance(joint, CoordinateJoint) and joint.has_coordinates
        if joint.name and joint.name not in cut
    ]
    links, reached, waiting = list[Link](), ["ground"], list(bodies)
    count = 0  # of bodies whose joints have been followed

    def add(parent: str, body: AbstractBody, joint: Any = None, is_reversed: bool = False) -> None:
        first = links[-1].first + len(links[-1].letters) if links else 0
        links.append(Link(body, parent, joint, first, is_reversed))
        waiting.remove(body)
        reached.append(body.name)

    while waiting:
        if count == len(reached):  # nothing else hangs on the bodies so far
            add("ground", waiting[0])
        for joint in movers:
            parent, body = joint.bodies
            is_reversed = body.name == reached[count]
            if is_reversed:
                parent, body = body, parent
            if parent.name == reached[count] and body in waiting:
                add(parent.name, body, joint, is_reversed)
        count += 1
    names = tuple(link.name for link in links if link.joint is not None)
    return JointCoordinates(tuple(bodies), tuple(links)), names


@dataclass(frozen=True)
class Spins:
    """The velocities of all coordinates, in their order."""

    kinematics: AbstractKinematics

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as `elbow.angle.rate` and `ball.spin_x`."""
        coordinates, parts, last = self.kinematics.coordinates, list[str](), 0
        for owner, first in self.kinematics.norms:
            parts += [f"{name}{RATE}" for name in coordinates[last:first]]
            parts += [f"{owner}.spin_{axis}" for axis in "xyz"]
            last = first + 4
        return (*parts, *(f"{name}{RATE}" for name in coordinates[last:]))

    def units(self, unit: Callable[[str], str]) -> dict[str, str]:
        """The units of all velocities by name, for that of each coordinate."""
        rates = {f"{name}{RATE}": f"{unit(name)}/s" for name in self.kinematics.coordinates}
        return {name: rates.get(name, "rad/s") for name in self.names}

    def __call__(self, q: Any, t: Any, params: Any) -> Float[Array, " n k"]:
        """The matrix that makes rates of the coordinates of the velocities."""
        q = jnp.asarray(q)
        n, blocks, last = len(self.kinematics.coordinates), list[Any](), 0
        for _, first in self.kinematics.norms:
            blocks.append(np.eye(first - last, dtype=q.dtype))
            blocks.append(right_products(q[first : first + 4]) / 2)
            last = first + 4
        blocks.append(np.eye(n - last, dtype=q.dtype))
        return block_diag(*blocks)


def spins_of(kinematics: AbstractKinematics, velocities: str) -> Spins | None:
    """The velocities of a mechanism; None for the rates of its coordinates."""
    if velocities not in ("rates", "spins"):
        raise ValueError(
            f'Argument `velocities` must be "rates" or "spins", but is {velocities!r}.'
        )
    return Spins(kinematics) if velocities == "spins" and kinematics.norms else None
