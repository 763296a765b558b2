"""`Mechanism`: parts assembled into a `System`, its functions, and what it prints."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Ground, Start
from jaxmech.parts.body_motions import BodyMotions
from jaxmech.parts.equations import system_of
from jaxmech.parts.forces.elements import AbstractTerm, Gravity
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates, Link
from jaxmech.parts.kinematics.tree import kinematics_of, spins_of
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.validation import (
    AnyForce,
    AnyJoint,
    reads_parameters,
    require_consistent,
    require_possible,
)
from jaxmech.parts.values import Reader, Value
from jaxmech.parts.visuals import Visual
from jaxmech.system import AbstractConstraint, System, function_values
from jaxmech.utils.checks import require_kind
from jaxmech.utils.drawings import DRAWINGS
from jaxmech.utils.trees import as_dtype

_LAST, _BRANCH, _STEM, _BLANK = "└─ ", "├─ ", "│  ", "   "


def outline(mechanism: Any) -> str:
    """The lines that a mechanism prints."""
    kinematics, joints, tree = mechanism.kinematics, mechanism.joints, mechanism.tree
    counts = f"coordinates {len(kinematics.coordinates)}"
    if velocities := mechanism.system.velocities:
        counts += f", velocities {len(velocities)}"
    system, params = mechanism.system, dict(mechanism.params)
    q, v = jnp.zeros(system.n), jnp.zeros(system.n_velocities)
    counts += f", constraint equations {sum(system.dynamics.sizes(q, v, jnp.zeros(()), params))}"
    lines = [f"Mechanism: {counts}", "ground"]
    lines += _branches(_children(kinematics), "ground", "")
    constraints = [joint for joint in joints if joint.name not in tree]
    for title, parts in (("constraints", constraints), ("forces", mechanism.forces)):
        if parts:
            lines += [f"{title}:", *(f"{_BLANK}{_called(part)}" for part in parts)]
    return "\n".join(lines)


def _children(kinematics: AbstractKinematics) -> dict[str, list[tuple[AbstractBody, str]]]:
    """By name of a body, those that hang on it, each with a word on its coordinates."""
    children: dict[str, list[tuple[AbstractBody, str]]] = {}
    free = [Link(body, "ground", None) for body in kinematics.bodies]
    for link in kinematics.links if isinstance(kinematics, JointCoordinates) else free:
        letters = ", ".join(link.letters) or "no coordinates"
        how = "free" if link.joint is None else f"{link.name!r}, {link.joint.kind}"
        children.setdefault(link.parent, []).append((link.body, f"{how}: {letters}"))
    return children


def _branches(
    children: dict[str, list[tuple[AbstractBody, str]]], name: str, indent: str
) -> Iterator[str]:
    hanging = children.get(name, [])
    for k, (body, how) in enumerate(hanging):
        is_last = k == len(hanging) - 1
        yield f"{indent}{_LAST if is_last else _BRANCH}{body.name} ({_mass(body)}), {how}"
        yield from _branches(children, body.name, indent + (_BLANK if is_last else _STEM))


def _mass(body: Any) -> str:
    mass: Value = body.properties.mass if isinstance(body, AbstractRigidBody) else body.mass
    if isinstance(mass, float):
        return f"{mass:g} kg"
    return f"mass {mass!r}" if isinstance(mass, str) else "mass by a function"


def _called(part: Any) -> str:
    """The name of a joint or force, and of the bodies that it connects."""
    if isinstance(part, Gravity):
        return "gravity"
    if isinstance(part, AbstractTerm):
        return f"{part.part}: {', '.join(part.coordinates)}"
    if not hasattr(part, "bodies"):
        return repr(part) if isinstance(part, AbstractConstraint) else "a function"
    return f"{part.part}: {' - '.join(body.name for body in part.bodies)}"


@dataclass(frozen=True, eq=False, repr=False)
class Mechanism(BodyMotions):
    """Bodies, joints and forces as one mechanical system.

    By default the coordinates are those of joints along a tree from the ground, `elbow.angle` and
    so on, and the joints that close loops are constraints with the names of the joints. A
    `revolute` joint has the coordinate `angle`, `prismatic` a `position`, `cylindrical` both,
    `universal` has `angle_a` and `angle_b`, `planar` has `x`, `y` and `angle`, `screw` an `angle`,
    `spherical` a quaternion `e0`, `e1`, `e2`, `e3` with the constraint `name.unit`, and `weld`
    none. A body that no such joint connects to the ground has its own coordinates, and a joint
    without a name is a constraint.

    With `coordinates="bodies"` the coordinates are those of the bodies in order, `crank.x` and so
    on; the constraints are the unit quaternions, `crank.unit`, and then all joints. There are more
    coordinates, and programs are longer.

    Args:
        bodies: bodies and point masses, all planar or all spatial; the ground is included.
        joints: joints, and `Holonomic`, `Nonholonomic` or `Acceleration` constraints on all
            coordinates.
        forces: forces, and functions `force(q, v, t, params)` of shape (n,).
        params: default parameters, with all names that the parts use.
        coordinates: "joints" or "bodies".
        velocities: "rates" of the coordinates, or "spins": three velocities `name.spin_x`,
            `name.spin_y`, `name.spin_z` for each quaternion, the angular velocity [rad/s] of a free
            body along its axes, or for a spherical joint that of b relative to a along the axes of
            b. The others are rates, such as `elbow.angle.rate`. Then there are no constraints for
            the lengths of quaternions, and the mass matrix is regular.
        states: names of states of first order, as for `System`; the functions among `forces` find
            them at the end of v, and return one number for each coordinate.
        rates: `rates(q, v, t, params)`, the time derivatives of the states.
        scenery: `Visual` shapes that are fixed to the ground.
        cut: names of joints that become constraints even if their coordinates could be used.

    Attributes:
        system: the `System`.
        tree: the names of the joints whose coordinates are used.
        kinematics: the positions and velocities of bodies as functions of the coordinates.

    Raises:
        ValueError: if a name is missing, unknown or used twice, a joint has a body that is not
            among `bodies`, or `params` lacks a parameter.
        TypeError: if an entry is not a body, joint or force.

    Example:
        >>> from jaxmech.parts import gravity, ground, planar_body, revolute
        >>> bar = planar_body("bar", mass="m", inertia=lambda t, p: p["m"] * p["l"] ** 2 / 12)
        >>> hinge = revolute("hinge", ground, (0, 0), bar, (lambda t, p: -p["l"] / 2, 0))
        >>> params = {"m": 2.0, "l": 1.0, "g": 9.81}
        >>> pendulum = Mechanism([bar], [hinge], [gravity("g")], params)
        >>> pendulum
        Mechanism: coordinates 1, constraint equations 0
        ground
        └─ bar (mass 'm'), 'hinge', revolute joint: angle
        forces:
           gravity
        >>> q, v = pendulum.guess({"bar": Start((0.5, 0.0))})
        >>> print(pendulum.frame("bar", q).origin)
        [0.5 0. ]
        >>> bars = Mechanism([bar], [hinge], [gravity("g")], params, coordinates="bodies")
        >>> bars.system
        System(coordinates=('bar.x', 'bar.y', 'bar.angle'), constraints=(Holonomic('hinge'),))
    """

    bodies: Sequence[AbstractBody]
    joints: Sequence[AnyJoint] = ()
    forces: Sequence[AnyForce] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Literal["joints", "bodies"] = "joints"
    cut: Sequence[str] = ()
    velocities: Literal["rates", "spins"] = field(default="rates", kw_only=True)
    states: Sequence[str] = field(default=(), kw_only=True)
    rates: Callable[..., Any] | None = field(default=None, kw_only=True)
    scenery: Sequence[Visual] = field(default=(), kw_only=True)
    system: System = field(init=False)
    tree: tuple[str, ...] = field(init=False)
    kinematics: AbstractKinematics = field(init=False)

    def __post_init__(self) -> None:
        for name in ("bodies", "joints", "forces"):
            if not isinstance(parts := getattr(self, name), Iterable):
                raise TypeError(
                    f"Argument `{name}` must be a sequence, but is {parts!r}; put it into a list."
                )
            object.__setattr__(self, name, tuple(parts))
        require_kind("params", self.params, Mapping, '{"m": 1.0}')
        require_consistent(self.bodies, self.joints, self.forces)
        kinematics, tree = kinematics_of(self.bodies, self.joints, self.coordinates, self.cut)
        object.__setattr__(self, "kinematics", kinematics)
        object.__setattr__(self, "tree", tree)
        parts = self.joints, self.forces, tree
        spins = spins_of(kinematics, self.velocities)
        system = system_of(kinematics, *parts, self.states, self.rates, spins)
        object.__setattr__(self, "system", system.with_declared(self.params))
        _require_readable(self)
        require_possible(self.bodies, self.joints, self.params)

    def __repr__(self) -> str:
        return outline(self)

    def guess(self, starts: Mapping[str, Start]) -> tuple[Array, Array]:
        """Coordinates and velocities from the initial states of all bodies, for `assemble`.

        Args:
            starts: a `Start` for each joint of the `tree`, by its name or by that of the body that
                it moves; without one, the coordinates of the joint are zero. The start of a joint
                has the coordinates as `position`, and their rates as `velocity`. With the
                coordinates of bodies, a `Start` for each body.

        Returns:
            q and v, with shapes (n,) and (n,) or (k,). They satisfy the constraints only if the
            starts do; states are zero.

        Raises:
            ValueError: if a body has no start, a start belongs to no body, or does not fit its
                body.
            TypeError: if an entry is not a `Start`.
        """
        for name, start in starts.items():
            require_kind(f"starts[{name!r}]", start, Start, "Start((0.0, 0.0))")
        t, params = jnp.zeros(()), dict(self.params)
        q, v = self.kinematics.guess(starts, t, params)
        states = jnp.zeros(self.system.dynamics.n_states, q.dtype)
        q, v = jnp.concatenate([q, states]), jnp.concatenate([v, states])
        return q, self.system.dynamics.from_speeds(q, v, t, params)

    def geometry(self, q: Any, t: Any, params: Any) -> dict[str, Any]:
        """The solids, dots and lines that represent the mechanism (`jaxmech.geometry`).

        Args:
            q: all coordinates, shape (n,).
            t: time [s].
            params: parameters.
        """
        return DRAWINGS["Mechanism"](self, *self._pose(q, t, params))


def _require_readable(mechanism: Mechanism) -> None:
    """Raise if a value of a part is missing in the default parameters."""
    parts = *mechanism.bodies, *mechanism.joints, *mechanism.forces
    if not mechanism.params and not any(map(reads_parameters, parts)):
        return  # tracing would take long for many bodies

    def everything(params: Any) -> Any:
        system, t = mechanism.system, jnp.zeros(())
        q, v = jnp.zeros(system.n), jnp.zeros(system.n_velocities)
        d = mechanism.bodies[0].dimension
        frame = Ground(dimension=d).frame(q)
        owners = [(f"body {x.name!r}", getattr(x, "visual", ())) for x in mechanism.bodies]
        looks = [
            visual.solid(frame, frame.origin, Reader(owner, t, params), 1.0, 0.0)
            for owner, visuals in (*owners, ("the scenery", mechanism.scenery))
            for visual in visuals
        ]
        return function_values(system, q, v, t, params), looks

    # Of the types that they have in a run, where the functions are then not traced again.
    params = as_dtype(dict(mechanism.params), jnp.result_type(float))
    jax.eval_shape(everything, params)
