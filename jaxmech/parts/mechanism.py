"""`Mechanism`: parts assembled into a `System`, and the functions of that system."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.constraints import AbstractConstraint, Holonomic
from jaxmech.parts.body import AbstractBody, Frame, Ground, Load, Start
from jaxmech.parts.force_elements import AbstractForce, AbstractLoad, AbstractPotential, Gravity
from jaxmech.parts.geometry import shapes
from jaxmech.parts.joint_base import Joint, Place, Places
from jaxmech.parts.validation import AnyForce, AnyJoint, require_consistent
from jaxmech.parts.values import Reader
from jaxmech.system import System
from jaxmech.utils.checks import require_kind
from jaxmech.utils.parameters import warn_of_slips


@dataclass(frozen=True)
class _Lagrangian:
    """Kinetic minus potential energy [J] of bodies, their weights and other potentials."""

    places: Places
    gravities: tuple[Gravity, ...]
    potentials: tuple[tuple[AbstractPotential, Places], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        total = jnp.zeros((), q.dtype)
        for place in self.places:
            body, own = place.body, place.own(q)
            read = Reader(f"body {body.name!r}", t, params)
            total = total + body.kinetic(own, place.own(v), read)
            for weight in self.gravities:
                moment = body.moment(own, read)
                total = total - weight.energy(moment, Reader("gravity", t, params))
        for force, places in self.potentials:
            frames = tuple(place.frame(q) for place in places)
            total = total - force.energy(frames, Reader(force.part, t, params))
        return total


@dataclass(frozen=True)
class _Forces:
    """The generalized force (n,) of loads, and of functions `force(q, v, t, params)`."""

    places: Places
    loads: tuple[tuple[AbstractLoad, Places], ...]
    others: tuple[Callable[..., Any], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        sums = {p.body.name: jnp.zeros_like(p.own(q)) for p in self.places}
        for force, places in self.loads:
            moving = tuple(place.moving(q, v) for place in places)
            loads = force.loads(moving, Reader(force.part, t, params))
            for place, load in zip(places, loads, strict=True):
                if place.body.letters:
                    own = place.body.generalized(place.own(q), load)
                    sums[place.body.name] = sums[place.body.name] + own
        total = jnp.concatenate([sums[place.body.name] for place in self.places])
        for other in self.others:
            force = other(q, v, t, params)
            if jnp.shape(force) != total.shape:
                raise ValueError(
                    f"Argument `forces` must hold functions that return shape {total.shape} (one "
                    f"number per coordinate), but one returned {jnp.shape(force)}."
                )
            total = total + force
        return total


@dataclass(frozen=True)
class _Norm:
    """The constraint (e . e - 1) / 2 = 0 on the quaternion of a body."""

    place: Place

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        e = self.place.own(jnp.asarray(q))[3:]
        return (e @ e - 1) / 2


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Bodies, joints and forces as one mechanical system.

    The coordinates are those of the bodies in order, `crank.x` and so on; the constraints are the
    unit quaternions, `crank.unit`, then the joints under their names.

    Args:
        bodies: bodies and point masses, all planar or all spatial; the ground is included.
        joints: joints, and `Holonomic`, `Nonholonomic` or `Acceleration` constraints on all
            coordinates.
        forces: forces, and functions `force(q, v, t, params)` of shape (n,).
        params: default parameters, with all names that parts use.

    Attributes:
        system: the `System`.

    Raises:
        ValueError: a name is missing or used twice, a joint has a body that is not among
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
    """

    bodies: Sequence[AbstractBody]
    joints: Sequence[AnyJoint] = ()
    forces: Sequence[AnyForce] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    system: System = field(init=False)

    def __post_init__(self) -> None:
        for name in ("bodies", "joints", "forces"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require_kind("params", self.params, Mapping, '{"m": 1.0}')
        require_consistent(self.bodies, self.joints, self.forces)
        places = _places(self.bodies)
        system = _system(self, places).with_declared(self.params)
        object.__setattr__(self, "system", system)
        _require_readable(self)

    def guess(self, starts: Mapping[str, Start]) -> tuple[Array, Array]:
        """Coordinates and velocities from the initial states of all bodies, for `assemble`.

        Args:
            starts: a `Start` for each body by name.

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
        names = [body.name for body in self.bodies]
        for name in (*starts, *names):
            if name not in names or name not in starts:
                raise ValueError(
                    f"Argument `starts` must have one start for each of {', '.join(names)}, but "
                    f"{'has one for' if name in starts else 'has none for'} {name!r}."
                )
        for name in names:
            require_kind(f"starts[{name!r}]", starts[name], Start, "Start((0.0, 0.0))")
        pairs = [body.start(starts[body.name]) for body in self.bodies]
        q, v = (jnp.concatenate(x) for x in zip(*pairs, strict=True))
        return q, v

    def frame(self, body: str, q: Any) -> Frame:
        """The frame of a body: its `origin`, its `axes` and its `attitude`.

        Args:
            body: name of the body.
            q: all coordinates, shape (n,).

        Raises:
            ValueError: no body has this name, or `q` has another shape.

        Example:
            >>> from jaxmech.parts import point_mass
            >>> print(Mechanism([point_mass("bob", mass=1.0)]).frame("bob", [1.0, 2.0]).origin)
            [1. 2.]
        """
        return self._place(body).frame(self.system.arguments(q, q, 0.0, None)[0])

    def load(self, body: str, q: Any, generalized: Any) -> Load:
        """The force [N] and the torque [N m] that a generalized force exerts on a body.

        Args:
            body: name of the body.
            q: all coordinates, shape (n,).
            generalized: generalized force, shape (n,), such as a reaction of `observe`.

        Returns:
            The force (d,), and the torque about the reference point, along the axes of the ground.

        Raises:
            ValueError: no body has this name, or an argument has another shape.

        Example:
            >>> from jaxmech.parts import planar_body
            >>> bar = Mechanism([planar_body("bar", mass=1.0, inertia=1.0)])
            >>> force, torque = bar.load("bar", [0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
            >>> print(force, torque)
            [1. 2.] 3.0
        """
        place, names = self._place(body), ("q", "generalized")
        q, generalized, *_ = self.system.arguments(q, generalized, 0.0, None, names)
        return place.body.load(place.own(q), place.own(generalized))

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
        places = _places(self.bodies)
        where = _where(places)
        parts = [p for p in (*self.joints, *self.forces) if isinstance(p, Joint | AbstractForce)]
        connections = [(part, where(part.bodies)) for part in parts]
        return shapes(places, connections, q, t, params)

    def _place(self, name: str) -> Place:
        for place in _places(self.bodies):
            if place.body.name == name:
                return place
        raise ValueError(
            f"Argument `body` must be one of {', '.join(b.name for b in self.bodies)}, "
            f"but is {name!r}."
        )


def _places(bodies: Sequence[AbstractBody]) -> Places:
    places, first = [], 0
    for body in bodies:
        places.append(Place(body, first))
        first += len(body.letters)
    return tuple(places)


def _where(places: Places) -> Callable[[tuple[AbstractBody, ...]], Places]:
    """A function that looks up the places of bodies, which may include the ground."""
    at = {place.body.name: place for place in places}
    return lambda bodies: tuple(
        Place(b, 0) if isinstance(b, Ground) else at[b.name] for b in bodies
    )


def _system(mechanism: Mechanism, places: Places) -> System:
    where = _where(places)
    constraints: list[AbstractConstraint] = [
        Holonomic(_Norm(place), name=f"{place.body.name}.unit")
        for place in places
        if place.body.has_norm
    ]
    for joint in mechanism.joints:
        constraints += (
            joint.constraints(where(joint.bodies)) if isinstance(joint, Joint) else [joint]
        )
    gravities = tuple(f for f in mechanism.forces if isinstance(f, Gravity))
    potentials = tuple(
        (f, where(f.bodies)) for f in mechanism.forces if isinstance(f, AbstractPotential)
    )
    loads = tuple((f, where(f.bodies)) for f in mechanism.forces if isinstance(f, AbstractLoad))
    others = tuple(f for f in mechanism.forces if not isinstance(f, AbstractForce | Gravity))
    return System(
        _Lagrangian(places, gravities, potentials),
        constraints,
        _Forces(places, loads, others) if loads or others else None,
        coordinates=tuple(f"{p.body.name}.{letter}" for p in places for letter in p.body.letters),
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
