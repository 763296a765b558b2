"""`Mechanism`: parts assembled into a `System`, and the functions of that system."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.parts.body import AbstractBody, Frame, Load, Start
from jaxmech.parts.equations import energies_of, system_of
from jaxmech.parts.forces.elements import AbstractForce, Gravity, point_with_velocity
from jaxmech.parts.geometry import shapes
from jaxmech.parts.joint_loads import total_momentum
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.kinematics.spins import spins_of
from jaxmech.parts.kinematics.tree import BodyCoordinates, kinematics_of
from jaxmech.parts.outline import outline
from jaxmech.parts.validation import (
    AnyForce,
    AnyJoint,
    reads_parameters,
    require_consistent,
    require_possible,
)
from jaxmech.parts.values import Reader, vector
from jaxmech.parts.visuals import Visual
from jaxmech.system import System, as_dtype
from jaxmech.utils.checks import require_kind
from jaxmech.utils.parameters import warn_of_slips


@dataclass(frozen=True, eq=False, repr=False)
class Mechanism:
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

        Example:
            >>> from jaxmech.parts import point_mass
            >>> q, v = Mechanism([point_mass("bob", mass=1.0)]).guess({"bob": Start((1.0, 2.0))})
            >>> print(q, v)
            [1. 2.] [0. 0.]
        """
        for name, start in starts.items():
            require_kind(f"starts[{name!r}]", start, Start, "Start((0.0, 0.0))")
        t, params = jnp.zeros(()), dict(self.params)
        q, v = self.kinematics.guess(starts, t, params)
        states = jnp.zeros(len(self.system.states), q.dtype)
        q, v = jnp.concatenate([q, states]), jnp.concatenate([v, states])
        return q, self.system.dynamics.from_speeds(q, v, t, params)

    def frame(self, body: str, q: Any, t: Any = 0.0, params: Any = None) -> Frame:
        """The frame of a body: its `origin`, its `axes` and its `attitude`.

        Args:
            body: name of the body.
            q: all coordinates, shape (n,).
            t: time [s].
            params: parameters; by default those of the mechanism.

        Raises:
            ValueError: if no body has this name, or `q` has the wrong shape.

        Example:
            >>> from jaxmech.parts import point_mass
            >>> print(Mechanism([point_mass("bob", mass=1.0)]).frame("bob", [1.0, 2.0]).origin)
            [1. 2.]
        """
        q, t, params = self._pose(q, t, params)
        return self.kinematics.frames([self._body(body)], q, t, params)[0]

    def point(
        self, body: str, at: Any, q: Any, t: Any = 0.0, params: Any = None
    ) -> Float[Array, " d"]:
        """The position of a point of a body, along the axes of the ground [m].

        Args:
            body: name of the body.
            at: the point along the axes of the body [m], d values as in joints, or an array (d,).
            q: all coordinates, shape (n,).
            t: time [s].
            params: parameters; by default those of the mechanism.

        Raises:
            ValueError: if no body has this name, or an argument has the wrong shape.

        Example:
            >>> from jaxmech.parts import ground, planar_body, revolute
            >>> bar = planar_body("bar", mass=1.0, inertia=1.0)
            >>> arm = Mechanism([bar], [revolute("hinge", ground, (0, 0), bar, (0, 0))])
            >>> print(arm.point("bar", (2, 0), [jnp.pi / 2]).round(3))
            [0. 2.]
        """
        q, t, params = self._pose(q, t, params)
        local = self._local(at)
        frame = self.kinematics.frames([self._body(body)], q, t, params)[0]
        return frame.point(Reader("the point", t, params).vector(local, self._size))

    def velocity(
        self, body: str, at: Any, q: Any, v: Any, t: Any = 0.0, params: Any = None
    ) -> Float[Array, " d"]:
        """The velocity of a point of a body, along the axes of the ground [m/s].

        Args:
            body: name of the body.
            at: the point along the axes of the body [m], d values as in joints, or an array (d,).
            q: all coordinates, shape (n,).
            v: all velocities, shape (n,) or (k,).
            t: time [s].
            params: parameters; by default those of the mechanism.

        Raises:
            ValueError: if no body has this name, or an argument has the wrong shape.

        Example:
            >>> from jaxmech.parts import ground, planar_body, revolute
            >>> bar = planar_body("bar", mass=1.0, inertia=1.0)
            >>> arm = Mechanism([bar], [revolute("hinge", ground, (0, 0), bar, (0, 0))])
            >>> print(arm.velocity("bar", (2, 0), [0.0], [3.0]))
            [0. 6.]
        """
        at_rest = jnp.zeros(self.system.n_velocities)
        return self._motion_of(body, at, (q, v, at_rest), t, params)[0]

    def acceleration(
        self, body: str, at: Any, q: Any, v: Any, qdd: Any, t: Any = 0.0, params: Any = None
    ) -> Float[Array, " d"]:
        """The acceleration of a point of a body, along the axes of the ground [m/s^2].

        Args:
            body: name of the body.
            at: the point along the axes of the body [m], d values as in joints, or an array (d,).
            q: all coordinates, shape (n,).
            v: all velocities, shape (n,) or (k,).
            qdd: all accelerations, shape (n,) or (k,), such as those of `observe`.
            t: time [s].
            params: parameters; by default those of the mechanism.

        Raises:
            ValueError: if no body has this name, or an argument has the wrong shape.

        Example:
            >>> from jaxmech.parts import ground, planar_body, revolute
            >>> bar = planar_body("bar", mass=1.0, inertia=1.0)
            >>> arm = Mechanism([bar], [revolute("hinge", ground, (0, 0), bar, (0, 0))])
            >>> print(arm.acceleration("bar", (2, 0), [0.0], [3.0], [0.5]))
            [-18.   1.]
        """
        return self._motion_of(body, at, (q, v, qdd), t, params)[1]

    def _motion_of(
        self, body: str, point: Any, motion: tuple[Any, Any, Any], t: Any, params: Any
    ) -> tuple[Array, Array]:
        (q, v, qdd), carrier, local = motion, self._body(body), self._local(point)
        _, qdd, *_ = self._arguments(q, qdd, t, params, ("q", "qdd"))
        q, u, t, params = self._arguments(q, v, t, params)
        v = self.system.dynamics.speeds(q, u, t, params)
        qdd = self.system.dynamics.speed_rates(q, u, qdd.astype(q.dtype), t, params)

        def velocity(q: Array, v: Array, t: Array) -> Array:
            motion_at_t = self.kinematics.moving([carrier], q, v, t, params)[0]
            read = Reader("the point", t, params)
            return jnp.asarray(point_with_velocity(motion_at_t, local, read)[1])

        return jax.jvp(velocity, (q, v, t), (v, qdd, jnp.ones_like(t)))

    def _pose(self, q: Any, t: Any, params: Any) -> tuple[Array, Array, Any]:
        """The checked arguments of functions that do not depend on velocities."""
        q, _, t, params = self._arguments(q, jnp.zeros(self.system.n_velocities, int), t, params)
        return q, t, params

    def _state(self, q: Any, v: Any, t: Any, params: Any) -> tuple[Array, Array, Array, Any]:
        """The checked arguments, with the rates of the coordinates for v."""
        q, v, t, params = self._arguments(q, v, t, params)
        return q, self.system.dynamics.speeds(q, v, t, params), t, params

    def _arguments(
        self, q: Any, v: Any, t: Any, params: Any, names: tuple[str, str] = ("q", "v")
    ) -> tuple[Array, Array, Array, Any]:
        """The checked arguments, by default with the parameters of the mechanism."""
        params = dict(self.params) if params is None else params
        return self.system.arguments(q, v, t, params, names)

    @property
    def _size(self) -> int:
        return self.bodies[0].dimension

    def _local(self, point: Any) -> Any:
        """The checked point: an array, which may be traced, or values that a `Reader` reads."""
        if _has_names(point):
            return vector("the point", "at", point, self._size)
        local = jnp.asarray(point) * 1.0
        if local.shape != (self._size,):
            raise ValueError(
                f"Argument `at` must be a point on the body, of shape ({self._size},), but has "
                f"shape {local.shape}; for many points use `jax.vmap`."
            )
        return local

    def load(self, body: str, q: Any, generalized: Any) -> Load:
        """The force [N] and the torque [N m] that a generalized force exerts on a body.

        Args:
            body: name of the body.
            q: all coordinates, shape (n,).
            generalized: generalized force, shape (n,), such as a reaction of `observe`.

        Returns:
            The force (d,), and the torque about the reference point, along the axes of the ground.

        Raises:
            ValueError: if no body has this name, an argument has the wrong shape, or the
                coordinates are those of joints, for which a generalized force does not determine
                the loads on single bodies.

        Example:
            >>> from jaxmech.parts import planar_body
            >>> body = planar_body("bar", mass=1.0, inertia=1.0)
            >>> bar = Mechanism([body], coordinates="bodies")
            >>> force, torque = bar.load("bar", [0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
            >>> print(force, torque)
            [1. 2.] 3.0
        """
        carrier, names, system = self._body(body), ("q", "generalized"), self.system
        if not isinstance(self.kinematics, BodyCoordinates):
            raise ValueError(
                "With the coordinates of joints, a generalized force does not tell the loads on "
                "single bodies; `observe(...).loads` has those of all joints by name."
            )
        q, generalized, t, _ = system.arguments(q, generalized, 0.0, None, names)
        if system.quasi is not None:  # the force on the coordinates of the same power
            rates = jnp.zeros_like(q)
            pull = jax.vjp(lambda rates: system.dynamics.from_speeds(q, rates, t, None), rates)[1]
            (generalized,) = pull(generalized)
        entries = (self.kinematics.entries(carrier, x) for x in (q, generalized))
        return carrier.load(*entries)

    def momentum(
        self, q: Any, v: Any, t: Any = 0.0, params: Any = None
    ) -> tuple[Float[Array, " d"], Float[Array, "..."]]:
        """The momentum and the angular momentum about the origin of all bodies.

        Args:
            q: all coordinates, shape (n,).
            v: all velocities, shape (n,) or (k,).
            t: time [s].
            params: parameters; by default those of the mechanism.

        Returns:
            Momentum (d,) [kg m/s], and angular momentum [kg m^2/s], a scalar in the plane and (3,)
            in space, along the axes of the ground.

        Example:
            >>> from jaxmech.parts import point_mass
            >>> bob = Mechanism([point_mass("bob", mass=2.0)])
            >>> p, h = bob.momentum([1.0, 0.0], [0.0, 3.0])
            >>> print(p, h)
            [0. 6.] 6.0
        """
        return total_momentum(self.kinematics, self._state(q, v, t, params))

    def energies(
        self, q: Any, v: Any, t: Any = 0.0, params: Any = None
    ) -> dict[str, Float[Array, ""]]:
        """The kinetic energies of the bodies, and the potential energies of all forces [J].

        Args:
            q: all coordinates, shape (n,).
            v: all velocities, shape (n,) or (k,).
            t: time [s].
            params: parameters; by default those of the mechanism.

        Example:
            >>> from jaxmech.parts import gravity, point_mass
            >>> bob = Mechanism([point_mass("bob", mass=2.0)], forces=[gravity(10.0)])
            >>> {name: float(value) for name, value in bob.energies([1.0, 0.5], [0, 3.0]).items()}
            {'bob': 9.0, 'gravity': 10.0}
        """
        return energies_of(self.kinematics, self.forces, self._state(q, v, t, params))

    def geometry(self, q: Any, t: Any, params: Any) -> dict[str, Any]:
        """The solids, dots and lines that represent the mechanism (`jaxmech.geometry`).

        Args:
            q: all coordinates, shape (n,).
            t: time [s].
            params: parameters.

        Example:
            >>> from jaxmech.parts import ground, planar_body, revolute
            >>> bar = planar_body("bar", mass=1.0, inertia=1.0)
            >>> hinge = revolute("hinge", ground, (0, 0), bar, (-1, 0))
            >>> drawn = Mechanism([bar], [hinge]).geometry([0.0], 0.0, {})
            >>> list(drawn)
            ['bar', 'bar.radius', 'hinge', 'hinge.ground', 'bar.center']
        """
        q, t, params = self._pose(q, t, params)
        kinds = Joint | AbstractForce | Gravity
        parts = [part for part in (*self.joints, *self.forces) if isinstance(part, kinds)]
        return shapes(self.kinematics, parts, self.scenery, q, t, params)

    def _body(self, name: str) -> AbstractBody:
        for body in self.bodies:
            if body.name == name:
                return body
        raise ValueError(
            f"Argument `body` must be one of {', '.join(b.name for b in self.bodies)}, "
            f"but is {name!r}."
        )


def _has_names(point: Any) -> bool:
    values = point if isinstance(point, Sequence) and not isinstance(point, str) else (point,)
    return any(isinstance(value, str) or callable(value) for value in values)


def _require_readable(mechanism: Mechanism) -> None:
    """Raise if a value of a part is missing in the default parameters; warn of misspelt names."""
    parts = *mechanism.bodies, *mechanism.joints, *mechanism.forces
    if not mechanism.params and not any(map(reads_parameters, parts)):
        return  # tracing would take long for many bodies

    def everything(params: Any) -> Any:
        system, t = mechanism.system, jnp.zeros(())
        q, v = jnp.zeros(system.n), jnp.zeros(system.n_velocities)
        return system.everything(q, v, t, params), mechanism.geometry(q, t, params)

    # Of the types that they have in a run, where the functions are then not traced again.
    params = as_dtype(dict(mechanism.params), jnp.result_type(float))
    jax.eval_shape(everything, params)
    warn_of_slips(params, everything)
