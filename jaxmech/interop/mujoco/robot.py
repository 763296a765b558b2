"""`Robot`: the mechanism of an MJCF or URDF file, and how to find things of the file in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.as_model import as_model
from jaxmech.interop.mujoco.coordinates import Conversion
from jaxmech.models import Model
from jaxmech.parts import Frame, Mechanism, matmul, product, rotation
from jaxmech.system import System


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
            return Frame(origin, rotation(turn), turn)
        frame = self.mechanism.frame(mounted.body, q, t, params)
        attitude = product(frame.attitude, turn)
        return Frame(frame.point(origin), matmul(frame.axes, rotation(turn)), attitude)
