"""`Robot`: the mechanism of an MJCF or URDF file, and how to find things of the file in it.

Hinges, slides and free bodies have the same positions in both. The quaternion of a ball is that
of its body relative to the body before it; in qpos it is relative to the reference pose. Where q
has the rates of a quaternion, qvel has the angular velocity along the axes of the body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.as_model import as_model
from jaxmech.models import Model
from jaxmech.parts import Frame, Mechanism, vectors
from jaxmech.system import System


@dataclass(frozen=True)
class Scalar:
    """A coordinate that is an entry of qpos, and its rate one of qvel."""

    coordinate: str
    qpos: int
    dof: int


@dataclass(frozen=True)
class Quaternion:
    """Four coordinates, from the one of the given name on, that are a quaternion in qpos.

    `turn` is the attitude of the body at the reference pose.
    """

    coordinate: str
    qpos: int
    dof: int
    turn: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Conversion:
    """The entries of q, by their indices, and those of qpos and qvel to which they belong.

    Attributes:
        names: the names of the coordinates.
        scalars: entries that are the same numbers.
        quaternions: entries that are quaternions.
    """

    names: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    quaternions: tuple[Quaternion, ...]

    @property
    def size(self) -> tuple[int, int]:
        """The sizes of qpos and qvel."""
        n, k = len(self.scalars), len(self.quaternions)
        return n + 4 * k, n + 3 * k

    def q(self, qpos: Any) -> Array:
        """The coordinates, (n,)."""
        x = _sized("qpos", qpos, self.size[0])
        quaternions = [
            vectors.product(np.asarray(e.turn, x.dtype), x[e.qpos : e.qpos + 4])
            for e in self.quaternions
        ]
        return self._joined(x[self._of("qpos")], quaternions)

    def qpos(self, q: Any) -> Array:
        """MuJoCo's positions, (nq,)."""
        x = _sized("q", q, len(self.names))
        parts = [x[self._in_q]]
        for e, k in zip(self.quaternions, self._firsts, strict=True):
            parts.append(
                vectors.product(vectors.conjugate(np.asarray(e.turn, x.dtype)), x[k : k + 4])
            )
        return jnp.concatenate(parts)[self._order("qpos", 4)]

    def v(self, q: Any, qvel: Any) -> Array:
        """The rates of the coordinates, (n,), at the coordinates q."""
        x, u = _sized("q", q, len(self.names)), _sized("qvel", qvel, self.size[1])
        rates = [
            vectors.product(x[k : k + 4], jnp.append(0.0, u[e.dof : e.dof + 3])) / 2
            for e, k in zip(self.quaternions, self._firsts, strict=True)
        ]
        return self._joined(u[self._of("dof")], rates)

    def qvel(self, q: Any, v: Any) -> Array:
        """MuJoCo's velocities, (nv,), at the coordinates q and their rates v."""
        n = len(self.names)
        x, rate = _sized("q", q, n), _sized("v", v, n)
        parts = [rate[self._in_q]]
        parts += [vectors.spin_in_body(x[k : k + 4], rate[k : k + 4]) for k in self._firsts]
        return jnp.concatenate(parts)[self._order("dof", 3)]

    def generalized(self, q: Array, force: Array) -> Array:
        """The force on the coordinates, (n,), that does the work of `force` (nv,) on qvel."""
        turning = [
            2 * vectors.product(q[k : k + 4], jnp.append(0.0, force[e.dof : e.dof + 3]))
            for e, k in zip(self.quaternions, self._firsts, strict=True)
        ]
        return self._joined(force[self._of("dof")], turning)

    @property
    def _in_q(self) -> np.ndarray:
        return np.array([self.names.index(s.coordinate) for s in self.scalars], int)

    @property
    def _firsts(self) -> tuple[int, ...]:
        return tuple(self.names.index(e.coordinate) for e in self.quaternions)

    def _of(self, kind: str) -> np.ndarray:
        return np.array([getattr(s, kind) for s in self.scalars], int)

    def _order(self, kind: str, size: int) -> np.ndarray:
        """Where each entry of qpos or qvel is, if scalars come first."""
        starts = [getattr(e, kind) + np.arange(size) for e in self.quaternions]
        return np.argsort(np.concatenate([self._of(kind), *starts]))

    def _joined(self, scalars: Array, quaternions: list[Array]) -> Array:
        starts = [k + np.arange(4) for k in self._firsts]
        order = np.argsort(np.concatenate([self._in_q, *starts]))
        return jnp.concatenate([scalars, *quaternions])[order]


def _sized(name: str, values: Any, size: int) -> Array:
    x = 1.0 * jnp.asarray(values)
    if x.shape != (size,):
        raise ValueError(
            f"Argument `{name}` must have shape ({size},), but has shape {x.shape}; for a batch "
            "use `jax.vmap`."
        )
    return x


class BodyPose(NamedTuple):
    """A frame that is fixed to a body of a mechanism.

    Attributes:
        body: name of the body, or "ground".
        position: origin of the frame on the body [m], (3,).
        attitude: quaternion of the frame relative to the body, (4,).
    """

    body: str
    position: tuple[float, ...]
    attitude: tuple[float, ...]


class Keyframe(NamedTuple):
    """A state of a keyframe: coordinates and velocities (n,), and the inputs as parameters."""

    q: Array
    v: Array
    ctrl: Mapping[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class Robot:
    """The mechanism of an MJCF or URDF file.

    The result of `from_mjcf`.

    Attributes:
        mechanism: the mechanism, in the coordinates of its joints.
        ignored: the names of what could not come along, by kind, such as "contact".
        keyframes: the states of keyframes by name.
        bodies: where the bodies of the file are, by name; those that do not move relative to
            another one have become a part of it.
        sites: where the sites are, by name.
        joints: the coordinates of each joint, by its name.
        conversion: from and to MuJoCo's qpos and qvel.
        reference: MuJoCo's qpos of the reference pose.
    """

    mechanism: Mechanism
    ignored: Mapping[str, tuple[str, ...]]
    keyframes: Mapping[str, Keyframe]
    bodies: Mapping[str, BodyPose]
    sites: Mapping[str, BodyPose]
    joints: Mapping[str, tuple[str, ...]]
    conversion: Conversion
    reference: np.ndarray

    def __repr__(self) -> str:
        lines = [repr(self.mechanism).replace("Mechanism", "Robot", 1)]
        ignored = {f"ignored {kind}": names for kind, names in self.ignored.items()}
        titled = {"sites": self.sites, "keyframes": self.keyframes, **ignored}
        lines += [f"{title}: {', '.join(names)}" for title, names in titled.items() if names]
        return "\n".join(lines)

    @property
    def model(self) -> Model:
        """A `Model` for studies, fits and commands such as `jaxmech check`.

        Its start variables are the coordinates, and the velocities under names such as
        `elbow.angle.rate` and `ball.spin_x`; the state is the nearest one on the constraints.
        """
        summary = "a mechanism from an MJCF or URDF file"
        return as_model(self.mechanism, *self.start, name="robot", summary=summary)

    @property
    def system(self) -> System:
        """The system of the mechanism."""
        return self.mechanism.system

    @property
    def params(self) -> Mapping[str, Any]:
        """The default parameters of the mechanism."""
        return self.mechanism.params

    @property
    def start(self) -> tuple[Array, Array]:
        """The reference pose at rest: coordinates (n,) and velocities."""
        q = self.q(self.reference)
        return q, jnp.zeros(self.mechanism.system.n_velocities, q.dtype)

    def q(self, qpos: Any) -> Array:
        """The coordinates (n,) of MuJoCo's positions `qpos` (nq,)."""
        return self.conversion.q(qpos)

    def v(self, q: Any, qvel: Any) -> Array:
        """The velocities of MuJoCo's `qvel` (nv,) at coordinates q (n,)."""
        system, params = self.mechanism.system, self.mechanism.params
        return system.dynamics.from_speeds(
            jnp.asarray(q), self.conversion.v(q, qvel), jnp.zeros(()), params
        )

    def qpos(self, q: Any) -> Array:
        """MuJoCo's positions (nq,) of coordinates (n,)."""
        return self.conversion.qpos(q)

    def qvel(self, q: Any, v: Any) -> Array:
        """MuJoCo's velocities (nv,) of coordinates (n,) and velocities."""
        system, params = self.mechanism.system, self.mechanism.params
        speeds = system.dynamics.speeds(jnp.asarray(q), jnp.asarray(v), jnp.zeros(()), params)
        return self.conversion.qvel(q, speeds)

    def frame(self, name: str, q: Any, t: Any = 0.0, params: Any = None) -> Frame:
        """The frame of a site or of a body of the file, of a site if both have the name.

        Args:
            name: name in the file.
            q: coordinates, (n,).
            t: time [s].
            params: parameters, by default those of the mechanism.

        Raises:
            ValueError: if neither a site nor a body has this name.
        """
        mounted = {**self.bodies, **self.sites}.get(name)
        if mounted is None:
            raise ValueError(
                f"Argument `name` must be that of a site ({', '.join(self.sites) or 'none'}) or of "
                f"a body ({', '.join(self.bodies)}), but is {name!r}."
            )
        turn, origin = np.asarray(mounted.attitude), np.asarray(mounted.position)
        if mounted.body == "ground":
            return Frame(origin, vectors.rotation(turn), turn)
        frame = self.mechanism.frame(mounted.body, q, t, params)
        attitude = vectors.product(frame.attitude, turn)
        return Frame(
            frame.point(origin), vectors.matmul(frame.axes, vectors.rotation(turn)), attitude
        )
