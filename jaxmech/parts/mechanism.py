"""`Mechanism`: parts assembled into a `System`, and the functions of that system."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.constraints import AbstractConstraint, Holonomic
from jaxmech.parts.body import AbstractBody, Frame, Load, Start
from jaxmech.parts.force_elements import AbstractForce, AbstractLoad, AbstractPotential, Gravity
from jaxmech.parts.geometry import shapes
from jaxmech.parts.joint_base import Joint
from jaxmech.parts.kinematics import AbstractKinematics, BodyCoordinates
from jaxmech.parts.tree import spanning_tree
from jaxmech.parts.validation import AnyForce, AnyJoint, require_consistent
from jaxmech.parts.values import Reader
from jaxmech.system import System
from jaxmech.utils.checks import require_kind
from jaxmech.utils.parameters import warn_of_slips


@dataclass(frozen=True)
class _Lagrangian:
    """Kinetic minus potential energy [J] of bodies, their weights and other potentials."""

    kinematics: AbstractKinematics
    gravities: tuple[Gravity, ...]
    potentials: tuple[AbstractPotential, ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        total = jnp.zeros((), q.dtype)
        for body, kinetic, frame in self.kinematics.inertial(q, v, t, params):
            total = total + kinetic
            for weight in self.gravities:
                moment = body.moment(frame, Reader(f"body {body.name!r}", t, params))
                total = total - weight.energy(moment, Reader("gravity", t, params))
        for force in self.potentials:
            frames = self.kinematics.frames(force.bodies, q, t, params)
            total = total - force.energy(frames, Reader(force.part, t, params))
        return total


@dataclass(frozen=True)
class _Forces:
    """The generalized force (n,) of loads, and of functions `force(q, v, t, params)`."""

    kinematics: AbstractKinematics
    loads: tuple[AbstractLoad, ...]
    others: tuple[Callable[..., Any], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        sums: dict[str, Load] = {}
        for force in self.loads:
            moving = self.kinematics.moving(force.bodies, q, v, t, params)
            loads = force.loads(moving, Reader(force.part, t, params))
            for body, load in zip(force.bodies, loads, strict=True):
                if body.letters:
                    before = sums.get(body.name)
                    sums[body.name] = load if before is None else _together(before, load)
        total = self.kinematics.generalized(sums, q, v, t, params)
        for other in self.others:
            force = other(q, v, t, params)
            if jnp.shape(force) != total.shape:
                raise ValueError(
                    f"Argument `forces` must hold functions that return shape {total.shape} (one "
                    f"number per coordinate), but one returned {jnp.shape(force)}."
                )
            total = total + force
        return total


def _together(first: Load, second: Load) -> Load:
    """The sum of two loads on a body."""
    return first[0] + second[0], first[1] + second[1]


@dataclass(frozen=True)
class _Norm:
    """The constraint (e . e - 1) / 2 = 0 on a quaternion, from the first of its coordinates."""

    first: int

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        e = jnp.asarray(q)[self.first : self.first + 4]
        return (e @ e - 1) / 2


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Bodies, joints and forces as one mechanical system.

    By default the coordinates are those of the bodies in order, `crank.x` and so on; the
    constraints are the unit quaternions, `crank.unit`, then the joints under their names. With
    `coordinates="joints"` they are those of the joints along a tree from the ground,
    `elbow.angle` and so on, and only the joints that close loops are constraints: there are fewer
    coordinates, and programs are shorter. Of the joints, `revolute` has an `angle`, `prismatic` a
    `position`, `cylindrical` both, `universal` an `angle_a` and an `angle_b`, `spherical` a
    quaternion `e0`, `e1`, `e2`, `e3`, and `weld` none. A body that no such joint connects to the
    ground has its own coordinates, and a joint without a name is a constraint.

    Args:
        bodies: bodies and point masses, all planar or all spatial; the ground is included.
        joints: joints, and `Holonomic`, `Nonholonomic` or `Acceleration` constraints on all
            coordinates.
        forces: forces, and functions `force(q, v, t, params)` of shape (n,).
        params: default parameters, with all names that parts use.
        coordinates: "bodies" or "joints".
        cut: names of joints that are constraints also where their coordinates could be used.

    Attributes:
        system: the `System`.
        tree: the names of the joints whose coordinates are used.
        kinematics: the positions and velocities of bodies as functions of the coordinates.

    Raises:
        ValueError: a name is missing, unknown or used twice, a joint has a body that is not among
            `bodies`, or `params` lacks a parameter.
        TypeError: an entry is not a body, joint or force.

    Example:
        >>> from jaxmech.parts import gravity, ground, planar_body, revolute
        >>> bar = planar_body("bar", mass="m", inertia=lambda t, p: p["m"] * p["l"] ** 2 / 12)
        >>> hinge = revolute("hinge", ground, (0, 0), bar, (lambda t, p: -p["l"] / 2, 0))
        >>> pendulum = Mechanism([bar], [hinge], [gravity("g")], {"m": 2.0, "l": 1.0, "g": 9.81})
        >>> pendulum.system
        System(coordinates=('bar.x', 'bar.y', 'bar.angle'), constraints=(Holonomic('hinge'),))
        >>> q, v = pendulum.guess({"bar": Start((0.5, 0.0))})
        >>> print(pendulum.system.equations(q, v, 0.0, pendulum.params).A)
        [[ 1.   0.   0. ]
         [ 0.   1.  -0.5]]
        >>> Mechanism([bar], [hinge], [gravity("g")], pendulum.params, coordinates="joints").system
        System(coordinates=('hinge.angle',), constraints=())
    """

    bodies: Sequence[AbstractBody]
    joints: Sequence[AnyJoint] = ()
    forces: Sequence[AnyForce] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Literal["bodies", "joints"] = "bodies"
    cut: Sequence[str] = ()
    system: System = field(init=False)
    tree: tuple[str, ...] = field(init=False)
    kinematics: AbstractKinematics = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("bodies", "joints", "forces"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require_kind("params", self.params, Mapping, '{"m": 1.0}')
        require_consistent(self.bodies, self.joints, self.forces)
        kinematics, tree = _kinematics(self)
        object.__setattr__(self, "kinematics", kinematics)
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "system", _system(self).with_declared(self.params))
        _require_readable(self)

    def guess(self, starts: Mapping[str, Start]) -> tuple[Array, Array]:
        """Coordinates and velocities from the initial states of all bodies, for `assemble`.

        Args:
            starts: a `Start` for each body by name. With the coordinates of joints, one for each
                joint of the `tree` or for the body that hangs on it, or none for a joint whose
                coordinates are zero. The start of a joint has its coordinates as `position`, and
                their rates as `velocity`.

        Returns:
            q and v, shapes (n,), consistent with the constraints only as far as the starts are.

        Raises:
            ValueError: a body has no start, a start belongs to no body, or does not fit its body.
            TypeError: an entry is not a `Start`.

        Example:
            >>> from jaxmech.parts import point_mass
            >>> q, v = Mechanism([point_mass("bob", mass=1.0)]).guess({"bob": Start((1.0, 2.0))})
            >>> print(q, v)
            [1. 2.] [0. 0.]
        """
        for name, start in starts.items():
            require_kind(f"starts[{name!r}]", start, Start, "Start((0.0, 0.0))")
        return self.kinematics.guess(starts, jnp.zeros(()), dict(self.params))

    def frame(self, body: str, q: Any, t: Any = 0.0, params: Any = None) -> Frame:
        """The frame of a body: its `origin`, its `axes` and its `attitude`.

        Args:
            body: name of the body.
            q: all coordinates, shape (n,).
            t: time [s].
            params: parameters; by default those of the mechanism.

        Raises:
            ValueError: no body has this name, or `q` has another shape.

        Example:
            >>> from jaxmech.parts import point_mass
            >>> print(Mechanism([point_mass("bob", mass=1.0)]).frame("bob", [1.0, 2.0]).origin)
            [1. 2.]
        """
        given = dict(self.params) if params is None else params
        q, _, t, given = self.system.arguments(q, q, t, given)
        return self.kinematics.frames([self._body(body)], q, t, given)[0]

    def load(self, body: str, q: Any, generalized: Any) -> Load:
        """The force [N] and the torque [N m] that a generalized force exerts on a body.

        Args:
            body: name of the body.
            q: all coordinates, shape (n,).
            generalized: generalized force, shape (n,), such as a reaction of `observe`.

        Returns:
            The force (d,), and the torque about the reference point, along the axes of the ground.

        Raises:
            ValueError: no body has this name, an argument has another shape, or the coordinates are
                those of joints, where a generalized force does not tell the loads on single bodies.

        Example:
            >>> from jaxmech.parts import planar_body
            >>> bar = Mechanism([planar_body("bar", mass=1.0, inertia=1.0)])
            >>> force, torque = bar.load("bar", [0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
            >>> print(force, torque)
            [1. 2.] 3.0
        """
        known, names = self._body(body), ("q", "generalized")
        if not isinstance(self.kinematics, BodyCoordinates):
            raise ValueError(
                "With the coordinates of joints, a generalized force does not tell the loads on "
                'single bodies; make the mechanism with coordinates="bodies" for them.'
            )
        q, generalized, *_ = self.system.arguments(q, generalized, 0.0, None, names)
        entries = (self.kinematics.entries(known, x) for x in (q, generalized))
        return known.load(*entries)

    def geometry(self, q: Any, t: Any, params: Any) -> dict[str, Array]:
        """The dots and lines that represent the mechanism in pictures (`jaxmech.geometry`).

        Args:
            q: all coordinates, shape (n,).
            t: time [s].
            params: parameters.

        Example:
            >>> from jaxmech.parts import ground, planar_body, revolute
            >>> bar = planar_body("bar", mass=1.0, inertia=1.0)
            >>> hinge = revolute("hinge", ground, (0, 0), bar, (-1, 0))
            >>> drawn = Mechanism([bar], [hinge]).geometry([1.0, 0.0, 0.0], 0.0, {})
            >>> list(drawn)
            ['bar', 'bar.disc', 'bar.radius', 'hinge', 'bar.center']
        """
        q, _, t, params = self.system.arguments(q, q, t, params)
        parts = [p for p in (*self.joints, *self.forces) if isinstance(p, Joint | AbstractForce)]
        return shapes(self.kinematics, parts, q, t, params)

    def _body(self, name: str) -> AbstractBody:
        for body in self.bodies:
            if body.name == name:
                return body
        raise ValueError(
            f"Argument `body` must be one of {', '.join(b.name for b in self.bodies)}, "
            f"but is {name!r}."
        )


def _kinematics(mechanism: Mechanism) -> tuple[AbstractKinematics, tuple[str, ...]]:
    """The kinematics of a mechanism, and the joints whose coordinates it uses."""
    bodies, joints, cut = mechanism.bodies, mechanism.joints, mechanism.cut
    if mechanism.coordinates not in ("bodies", "joints"):
        raise ValueError(
            'Argument `coordinates` must be "bodies" or "joints", but is '
            f"{mechanism.coordinates!r}."
        )
    if mechanism.coordinates == "bodies":
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
    return spanning_tree(bodies, joints, cut)


def _system(mechanism: Mechanism) -> System:
    kinematics = mechanism.kinematics
    constraints: list[AbstractConstraint] = [
        Holonomic(_Norm(norm.first), name=f"{norm.name}.unit") for norm in kinematics.norms
    ]
    for joint in mechanism.joints:
        if not isinstance(joint, Joint):
            constraints.append(joint)
        elif joint.name not in mechanism.tree:
            constraints += joint.constraints(kinematics)
    gravities = tuple(f for f in mechanism.forces if isinstance(f, Gravity))
    potentials = tuple(f for f in mechanism.forces if isinstance(f, AbstractPotential))
    loads = tuple(f for f in mechanism.forces if isinstance(f, AbstractLoad))
    others = tuple(f for f in mechanism.forces if not isinstance(f, AbstractForce | Gravity))
    return System(
        _Lagrangian(kinematics, gravities, potentials),
        constraints,
        _Forces(kinematics, loads, others) if loads or others else None,
        coordinates=kinematics.coordinates,
    )


def _require_readable(mechanism: Mechanism) -> None:
    """Raise if a value of a part is missing in the default parameters; warn of misspelt names."""

    def everything(params: Any) -> Any:
        x, t = jnp.zeros(mechanism.system.n), jnp.zeros(())
        drawn = mechanism.geometry(x, t, params)
        return mechanism.system.everything(x, x, t, params), drawn

    params = dict(mechanism.params)
    jax.eval_shape(everything, params)
    warn_of_slips(params, everything)
