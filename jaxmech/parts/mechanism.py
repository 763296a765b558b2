"""`Mechanism`: parts assembled into a `System`, its functions, and what it prints."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.parts.body import AbstractBody, Frame, Ground, Start
from jaxmech.parts.equations import system_of
from jaxmech.parts.forces import AbstractForce, AbstractTerm, Gravity, point_with_velocity
from jaxmech.parts.joint_loads import total_momentum
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinematics import AbstractKinematics
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.solids import Visual
from jaxmech.parts.tree import kinematics_of, spins_of
from jaxmech.parts.values import Reader, Value, vector
from jaxmech.system import AbstractConstraint, DryFriction, System, Unilateral
from jaxmech.utils.checks import require_kind
from jaxmech.utils.text import DRAWINGS, capital
from jaxmech.utils.trees import as_dtype

AnyJoint = Joint | AbstractConstraint | Unilateral | DryFriction
AnyForce = AbstractForce | AbstractTerm | Gravity | Callable[..., Any]


@dataclass(frozen=True, eq=False, repr=False)
class Mechanism:
    """Bodies, joints and forces as one mechanical system.

    Its functions are positions, velocities and momenta of the bodies. Their arguments are the name
    of a `body`, a point `at` along its axes [m], d values as in joints or an array (d,), all
    coordinates q, shape (n,), all velocities v, shape (n,) or (k,), the time t [s], and params, by
    default those of the mechanism. They raise a ValueError if no body has this name, or an argument
    has the wrong shape.

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

    def frame(self, body: str, q: Any, t: Any = 0.0, params: Any = None) -> Frame:
        """The frame of a body: its `origin`, its `axes` and its `attitude`."""
        q, t, params = self._pose(q, t, params)
        return self.kinematics.frames([self._body(body)], q, t, params)[0]

    def point(
        self, body: str, at: Any, q: Any, t: Any = 0.0, params: Any = None
    ) -> Float[Array, " d"]:
        """The position of a point of a body, along the axes of the ground [m]."""
        q, t, params = self._pose(q, t, params)
        local = Reader("the point", t, params).vector(self._local(at), self.bodies[0].dimension)
        return self.frame(body, q, t, params).point(local)

    def velocity(
        self, body: str, at: Any, q: Any, v: Any, t: Any = 0.0, params: Any = None
    ) -> Float[Array, " d"]:
        """The velocity of a point of a body, along the axes of the ground [m/s]."""
        at_rest = jnp.zeros(self.system.n_velocities)
        return self._motion_of(body, at, (q, v, at_rest), t, params)[0]

    def acceleration(
        self, body: str, at: Any, q: Any, v: Any, qdd: Any, t: Any = 0.0, params: Any = None
    ) -> Float[Array, " d"]:
        """The acceleration of a point of a body, along the axes of the ground [m/s^2].

        All accelerations qdd, shape (n,) or (k,), are such as those of `observe`.

        Example:
            >>> from jaxmech.parts import ground, Mechanism, planar_body, revolute
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

    def _arguments(
        self, q: Any, v: Any, t: Any, params: Any, names: tuple[str, str] = ("q", "v")
    ) -> tuple[Array, Array, Array, Any]:
        """The checked arguments, by default with the parameters of the mechanism."""
        params = dict(self.params) if params is None else params
        return self.system.arguments(q, v, t, params, names)

    def _local(self, point: Any) -> Any:
        """The checked point: an array, which may be traced, or values that a `Reader` reads."""
        size = self.bodies[0].dimension
        values = point if isinstance(point, Sequence) and not isinstance(point, str) else (point,)
        if any(isinstance(value, str) or callable(value) for value in values):
            return vector("the point", "at", point, size)
        local = jnp.asarray(point) * 1.0
        if local.shape != (size,):
            raise ValueError(
                f"Argument `at` must be a point on the body, of shape ({size},), but has "
                f"shape {local.shape}; for many points use `jax.vmap`."
            )
        return local

    def momentum(
        self, q: Any, v: Any, t: Any = 0.0, params: Any = None
    ) -> tuple[Float[Array, " d"], Float[Array, "..."]]:
        """The momentum and the angular momentum about the origin of all bodies.

        Returns:
            Momentum (d,) [kg m/s], and angular momentum [kg m^2/s], a scalar in the plane and (3,)
            in space, along the axes of the ground.
        """
        q, v, t, params = self._arguments(q, v, t, params)
        v = self.system.dynamics.speeds(q, v, t, params)
        return total_momentum(self.kinematics, (q, v, t, params))

    def _body(self, name: str) -> AbstractBody:
        for body in self.bodies:
            if body.name == name:
                return body
        raise ValueError(
            f"Argument `body` must be one of {', '.join(b.name for b in self.bodies)}, "
            f"but is {name!r}."
        )


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
    for link in kinematics.links:
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


def require_consistent(
    bodies: Sequence[AbstractBody], joints: Sequence[AnyJoint], forces: Sequence[AnyForce]
) -> None:
    """Raise unless all arguments are parts of one mechanism."""
    any_force: Any = AbstractForce | AbstractTerm | Gravity | Callable
    for body in bodies:
        require_kind("bodies", body, AbstractBody, "planar_body(...)")
        if isinstance(body, Ground):
            raise TypeError(
                "Argument `bodies` must not hold `ground`, which is always there; leave it out."
            )
    for joint in joints:
        require_kind("joints", joint, AnyJoint, "revolute(...) or Holonomic(...)")
    for force in forces:
        if isinstance(force, AnyJoint):
            raise TypeError(
                f"Argument `forces` must not hold {force.name!r}, which keeps bodies from moving; "
                "put it into `joints`."
            )
        require_kind("forces", force, any_force, "gravity(...) or a function")
    _require_distinct("bodies", (body.name for body in bodies))
    _require_distinct("joints", (joint.name for joint in joints))
    _require_distinct("forces", (force.part for force in forces if hasattr(force, "part")))
    sizes = {body.dimension for body in bodies}
    if len(sizes) > 1:
        kinds = {2: "planar", 3: "spatial"}
        description = ", ".join(f"{body.name!r} is {kinds[body.dimension]}" for body in bodies)
        raise ValueError(
            f"Argument `bodies` must be all planar or all spatial, but {description}; use one kind."
        )
    for weight in forces:
        down = weight.down if isinstance(weight, Gravity) else None
        if isinstance(down, tuple) and {len(down)} != sizes:
            raise ValueError(
                f"Gravity must have a direction `down` of {sizes.pop()} components, as the bodies "
                f"have, but has {len(down)}; write one for each direction."
            )
    bodies_by_name = {body.name: body for body in bodies}
    parts = [part for part in (*joints, *forces) if isinstance(part, Joint | AbstractForce)]
    for part, body in ((x, body) for x in parts for body in x.bodies):
        if not isinstance(body, Ground) and bodies_by_name.get(body.name) != body:
            namesake = body.name in bodies_by_name
            remedy = "use the same object" if namesake else "add it there"
            raise ValueError(
                f"{capital(part.part)} must be between bodies of the mechanism, but its body "
                f"{body.name!r} is not {'the one of that name in' if namesake else 'in'} `bodies` "
                f"({', '.join(bodies_by_name)}); {remedy}."
            )


def _require_distinct(argument: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if not isinstance(name, str) or (not name and argument != "joints"):
            raise ValueError(f"Argument `{argument}` must have non-empty names, but has {name!r}.")
        if name and times > 1:
            raise ValueError(
                f"Argument `{argument}` must have distinct names, but {name!r} is given twice; "
                "rename one."
            )
        if argument == "bodies" and name == "ground":
            raise ValueError(
                "Argument `bodies` must not hold a body named 'ground', a name reserved for the "
                "ground; rename it."
            )


def require_possible(
    bodies: Iterable[AbstractBody], joints: Iterable[Any], params: Mapping[str, Any]
) -> None:
    """Raise for masses, sizes and curves that nothing can have, with these parameters."""
    t, values = jnp.zeros(()), dict(params)
    for body in bodies:
        body.require(Reader(body.part, t, values))
    for joint in joints:
        if isinstance(joint, Joint):
            joint.require(Reader(joint.part, t, values))


def reads_parameters(part: Any) -> bool:
    """Whether a part has a value that is the name of a parameter or a function."""
    if is_dataclass(part):
        name_fields = ("name", "part", "kind", "coordinate")  # names of other things
        return any(
            reads_parameters(getattr(part, field.name))
            for field in fields(part)
            if field.name not in name_fields
        )
    if isinstance(part, tuple):
        return any(map(reads_parameters, part))
    return isinstance(part, str) or callable(part)


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
        owners = [(x.part, getattr(x, "visual", ())) for x in mechanism.bodies]
        looks = [
            visual.solid(frame, frame.origin, Reader(owner, t, params), 1.0, 0.0)
            for owner, visuals in (*owners, ("the scenery", mechanism.scenery))
            for visual in visuals
        ]
        return system.function_values(q, v, t, params), looks

    # Of the types that they have in a run, where the functions are then not traced again.
    params = as_dtype(dict(mechanism.params), jnp.result_type(float))
    jax.eval_shape(everything, params)
