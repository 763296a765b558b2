"""Conversion between the coordinates of a mechanism and MuJoCo's qpos and qvel.

Hinges, slides and free bodies have the same positions in both. The quaternion of a ball is that
of its body relative to the body before it; in qpos it is relative to the reference pose. Where q
has the rates of a quaternion, qvel has the angular velocity along the axes of the body.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts import conjugate, product, spin_in_body


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
            product(np.asarray(e.turn, x.dtype), x[e.qpos : e.qpos + 4]) for e in self.quaternions
        ]
        return self._joined(x[self._of("qpos")], quaternions)

    def qpos(self, q: Any) -> Array:
        """MuJoCo's positions, (nq,)."""
        x = _sized("q", q, len(self.names))
        parts = [x[self._in_q]]
        for e, k in zip(self.quaternions, self._firsts, strict=True):
            parts.append(product(conjugate(np.asarray(e.turn, x.dtype)), x[k : k + 4]))
        return jnp.concatenate(parts)[self._order("qpos", 4)]

    def v(self, q: Any, qvel: Any) -> Array:
        """The rates of the coordinates, (n,), at the coordinates q."""
        x, u = _sized("q", q, len(self.names)), _sized("qvel", qvel, self.size[1])
        rates = [
            product(x[k : k + 4], jnp.append(0.0, u[e.dof : e.dof + 3])) / 2
            for e, k in zip(self.quaternions, self._firsts, strict=True)
        ]
        return self._joined(u[self._of("dof")], rates)

    def qvel(self, q: Any, v: Any) -> Array:
        """MuJoCo's velocities, (nv,), at the coordinates q and their rates v."""
        n = len(self.names)
        x, rate = _sized("q", q, n), _sized("v", v, n)
        parts = [rate[self._in_q]]
        parts += [spin_in_body(x[k : k + 4], rate[k : k + 4]) for k in self._firsts]
        return jnp.concatenate(parts)[self._order("dof", 3)]

    def generalized(self, q: Array, force: Array) -> Array:
        """The force on the coordinates, (n,), that does the work of `force` (nv,) on qvel."""
        turning = [
            2 * product(q[k : k + 4], jnp.append(0.0, force[e.dof : e.dof + 3]))
            for e, k in zip(self.quaternions, self._firsts, strict=True)
        ]
        return self._joined(force[self._of("dof")], turning)

    def entries(self, dofs: Any) -> list[int]:
        """The indices in q of the coordinates with some entries of qvel."""
        scalars = [int(k) for s, k in zip(self.scalars, self._in_q, strict=True) if s.dof in dofs]
        firsts = zip(self.quaternions, self._firsts, strict=True)
        return scalars + [k + i for e, k in firsts if e.dof in dofs for i in range(4)]

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
