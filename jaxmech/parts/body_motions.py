"""`BodyMotions`: what the bodies of a mechanism do at a state, as functions of its coordinates."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.parts.body import AbstractBody, Frame
from jaxmech.parts.forces.elements import point_with_velocity
from jaxmech.parts.joint_loads import total_momentum
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader, vector
from jaxmech.system import System


class BodyMotions:
    """Positions, velocities, momenta and energies of the bodies of a `Mechanism`.

    The arguments of its functions are

        body: name of the body.
        at: a point along the axes of the body [m], d values as in joints, or an array (d,).
        q: all coordinates, shape (n,).
        v: all velocities, shape (n,) or (k,).
        t: time [s].
        params: parameters; by default those of the mechanism.

    They raise a ValueError if no body has this name, or an argument has the wrong shape.
    """

    bodies: Sequence[AbstractBody]
    forces: Sequence[Any]
    params: Mapping[str, Any]
    system: System
    kinematics: AbstractKinematics

    def frame(self, body: str, q: Any, t: Any = 0.0, params: Any = None) -> Frame:
        """The frame of a body: its `origin`, its `axes` and its `attitude`."""
        q, t, params = self._pose(q, t, params)
        return self.kinematics.frames([self._body(body)], q, t, params)[0]

    def point(
        self, body: str, at: Any, q: Any, t: Any = 0.0, params: Any = None
    ) -> Float[Array, " d"]:
        """The position of a point of a body, along the axes of the ground [m]."""
        q, t, params = self._pose(q, t, params)
        local = self._local(at)
        frame = self.kinematics.frames([self._body(body)], q, t, params)[0]
        return frame.point(Reader("the point", t, params).vector(local, self._size))

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

    def momentum(
        self, q: Any, v: Any, t: Any = 0.0, params: Any = None
    ) -> tuple[Float[Array, " d"], Float[Array, "..."]]:
        """The momentum and the angular momentum about the origin of all bodies.

        Returns:
            Momentum (d,) [kg m/s], and angular momentum [kg m^2/s], a scalar in the plane and (3,)
            in space, along the axes of the ground.
        """
        return total_momentum(self.kinematics, self._state(q, v, t, params))

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
