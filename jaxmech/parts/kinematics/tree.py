"""The tree of a mechanism: which joints have coordinates, and which close loops.

`Spins` are velocities with spins in place of the rates of quaternions. The rate of a quaternion e
is e (0, w) / 2 for the spin w along the axes of the body; the other velocities are the rates of
their coordinates. So there are as many velocities as freedoms of the tree, and no direction in
which a quaternion changes its length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from jaxmech.parts.body import AbstractBody, Frame, Ground, Load, Moving, Start
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.coordinates import CoordinateJoint
from jaxmech.parts.kinematics.base import AbstractKinematics, Bodies, Inertial, Norm
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates, Link
from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import right_products
from jaxmech.utils.units import RATE


@dataclass(frozen=True)
class BodyCoordinates(AbstractKinematics):
    """The coordinates of the bodies in order, `crank.x` and so on."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names such as `crank.x`."""
        return tuple(f"{body.name}.{letter}" for body in self.bodies for letter in body.letters)

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The quaternions of bodies in space."""
        return tuple(
            Norm(body.name, self._first(body) + 3) for body in self.bodies if body.has_norm
        )

    def _first(self, body: AbstractBody) -> int:
        preceding = self.bodies[: [candidate.name for candidate in self.bodies].index(body.name)]
        return sum(len(candidate.letters) for candidate in preceding)

    def entries(self, body: AbstractBody, x: Array) -> Array:
        """The entries of a body in coordinates, velocities or generalized forces."""
        if isinstance(body, Ground):
            return x[:0]
        first = self._first(body)
        return x[first : first + len(body.letters)]

    def frames(self, bodies: Bodies, q: Array, t: Array, params: Any) -> tuple[Frame, ...]:
        """The frames at the coordinates of each body."""
        return tuple(body.frame(self.entries(body, q)) for body in bodies)

    def moving(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Moving, ...]:
        """The frames at the coordinates of each body, with its velocities."""
        return tuple(body.moving(self.entries(body, q), self.entries(body, v)) for body in bodies)

    def inertial(self, q: Array, v: Array, t: Array, params: Any) -> Iterator[Inertial]:
        """The kinetic energies in the velocities of each body."""
        for body in self.bodies:
            coordinates, rates = self.entries(body, q), self.entries(body, v)
            read, velocity = Reader(f"body {body.name!r}", t, params), rates[: body.dimension]
            spin, frame = body.spin(coordinates, rates), body.frame(coordinates)
            kinetic = body.kinetic(velocity, spin, read, frame)
            yield Inertial(body, kinetic, body.frame(coordinates))

    def generalized(
        self, loads: Mapping[str, Load], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        """The loads, each in the coordinates of its body."""
        parts = [
            body.generalized(self.entries(body, q), loads[body.name])
            if body.name in loads
            else jnp.zeros_like(self.entries(body, q))
            for body in self.bodies
        ]
        return jnp.concatenate(parts)

    def guess(self, starts: Mapping[str, Start], t: Array, params: Any) -> tuple[Array, Array]:
        """The coordinates of each body at its start."""
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
        return BodyCoordinates(tuple(bodies)), ()
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
    return (tree, names) if names else (BodyCoordinates(tuple(bodies)), ())


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
    links: list[Link] = []
    reached = ["ground"]
    waiting = list(bodies)
    count = 0  # of bodies whose joints have been followed
    while waiting:
        if count == len(reached):  # nothing else hangs on the bodies so far
            body = waiting.pop(0)
            _add(links, Link(body, "ground", None))
            reached.append(body.name)
        for joint in movers:
            parent, body = joint.bodies
            is_reversed = body.name == reached[count]
            if is_reversed:
                parent, body = body, parent
            if parent.name == reached[count] and body in waiting:
                _add(links, Link(body, parent.name, joint, is_reversed=is_reversed))
                waiting.remove(body)
                reached.append(body.name)
        count += 1
    names = tuple(link.name for link in links if link.joint is not None)
    return JointCoordinates(tuple(bodies), tuple(links)), names


def _add(links: list[Link], link: Link) -> None:
    first = links[-1].first + len(links[-1].letters) if links else 0
    links.append(replace(link, first=first))


AXES = ("spin_x", "spin_y", "spin_z")


@dataclass(frozen=True)
class Spins:
    """The velocities of all coordinates, in their order."""

    kinematics: AbstractKinematics

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as `elbow.angle.rate` and `ball.spin_x`."""
        coordinates, parts, last = self.kinematics.coordinates, list[str](), 0
        for norm in self.kinematics.norms:
            parts += [f"{name}{RATE}" for name in coordinates[last : norm.first]]
            parts += [f"{norm.name}.{axis}" for axis in AXES]
            last = norm.first + 4
        return (*parts, *(f"{name}{RATE}" for name in coordinates[last:]))

    def units(self, unit: Callable[[str], str]) -> dict[str, str]:
        """The units of all velocities by name, for that of each coordinate."""
        rates = {f"{name}{RATE}": f"{unit(name)}/s" for name in self.kinematics.coordinates}
        return {name: rates.get(name, "rad/s") for name in self.names}

    def __call__(self, q: Any, t: Any, params: Any) -> Float[Array, " n k"]:
        """The matrix that makes rates of the coordinates of the velocities."""
        q = jnp.asarray(q)
        n, norms = len(self.kinematics.coordinates), self.kinematics.norms
        blocks, last = list[Any](), 0
        for norm in norms:
            blocks.append(np.eye(norm.first - last, dtype=q.dtype))
            blocks.append(right_products(q[norm.first : norm.first + 4]) / 2)
            last = norm.first + 4
        blocks.append(np.eye(n - last, dtype=q.dtype))
        return block_diag(*blocks)


def spins_of(kinematics: AbstractKinematics, velocities: str) -> Spins | None:
    """The velocities of a mechanism; None for the rates of its coordinates."""
    if velocities not in ("rates", "spins"):
        raise ValueError(
            f'Argument `velocities` must be "rates" or "spins", but is {velocities!r}.'
        )
    return Spins(kinematics) if velocities == "spins" and kinematics.norms else None
