"""`Spins`: velocities of a mechanism, with spins in place of the rates of its quaternions.

The rate of a quaternion e is e (0, w) / 2 for the spin w along the axes of the body; the other
velocities are the rates of their coordinates. So there are as many velocities as freedoms of the
tree, and no direction in which a quaternion changes its length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.vectors import right_products
from jaxmech.utils.units import RATE

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
        columns, first = list[Array](), 0
        for block in blocks:
            above = jnp.zeros((first, block.shape[1]), q.dtype)
            below = jnp.zeros((n - first - len(block), block.shape[1]), q.dtype)
            columns.append(jnp.concatenate([above, block, below]))
            first += len(block)
        return jnp.concatenate(columns, axis=1)


def spins_of(kinematics: AbstractKinematics, velocities: str) -> Spins | None:
    """The velocities of a mechanism; None for the rates of its coordinates."""
    if velocities not in ("rates", "spins"):
        raise ValueError(
            f'Argument `velocities` must be "rates" or "spins", but is {velocities!r}.'
        )
    return Spins(kinematics) if velocities == "spins" and kinematics.norms else None
