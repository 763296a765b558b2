"""The coordinates of joints along a tree of bodies; only joints that close loops are constraints.

Velocities are along the axes of each body, where masses are constant.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Ground, Load, Moving, Start
from jaxmech.parts.joints.coordinates import CoordinateJoint
from jaxmech.parts.kinematics.base import (
    AbstractKinematics,
    Bodies,
    Inertial,
    Located,
    Norm,
    relation_between,
)
from jaxmech.parts.values import Reader, vector_with_rate
from jaxmech.parts.vectors import apply
from jaxmech.utils.checks import is_known


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
    def name(self) -> str:
        """The name of the joint, or of the free body; its coordinates are called after it."""
        return (self.joint or self.body).name

    @property
    def part(self) -> str:
        """The name of the joint in messages."""
        return f"body {self.name!r}" if self.joint is None else self.joint.part

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of the coordinates without prefix."""
        return (self.joint or self.body).letters

    @property
    def has_norm(self) -> bool:
        """Whether the last coordinates are a quaternion."""
        return (self.joint or self.body).has_norm

    def entries(self, x: Array) -> Array:
        """The entries of the joint in coordinates, their rates or generalized forces."""
        return x[self.first : self.first + len(self.letters)]

    def located(self, parent: Located, q: Array, v: Array, t: Array, params: Any) -> Located:
        """The body, for the coordinates of all joints and the body before it."""
        q, v = self.entries(q), self.entries(v)
        if self.joint is None:
            return _alone(self.body, q, v)
        relation = self.joint.moving(q, v, Reader(self.part, t, params))
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
        read = Reader(self.part, t, params)
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
    """The coordinates of the joints of a tree, `elbow.angle` and so on, and of free bodies.

    Attributes:
        links: a link for each body, those before it first.
    """

    links: tuple[Link, ...] = ()

    has_tree = True

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names such as `elbow.angle`."""
        return tuple(f"{link.name}.{letter}" for link in self.links for letter in link.letters)

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The quaternions of balls and of free bodies in space."""
        return tuple(
            Norm(link.name, link.first + len(link.letters) - 4)
            for link in self.links
            if link.has_norm
        )

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
        """The frames along the tree."""
        located = self.located(bodies, q, jnp.zeros_like(q), t, params)
        return tuple(located[body.name].frame for body in bodies)

    def moving(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Moving, ...]:
        """The frames along the tree with their velocities along the axes of the ground."""
        located = self.located(bodies, q, v, t, params)
        return tuple(_in_space(located[body.name]) for body in bodies)

    def inertial(self, q: Array, v: Array, t: Array, params: Any) -> Iterator[Inertial]:
        """The kinetic energies in the velocities along the axes of each body.

        Quaternions count as their directions, so that no energy changes with their length, and the
        force of the constraint on it is zero.
        """
        if self.norms:
            q, v = jax.jvp(self.with_units, (q,), (v,))
        located = self.located(self.bodies, q, v, t, params)
        for body in self.bodies:
            seen, read = located[body.name], Reader(f"body {body.name!r}", t, params)
            kinetic = body.kinetic(seen.velocity, seen.spin, read)
            yield Inertial(body, kinetic, seen.frame)

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
