"""Mass, static moment and inertia about any reference point, and the kinetic energy they give.

With P the reference point and c the way from P to the centre of mass, along the axes of the body,

    S = m c                                 static moment [kg m]
    I = I_C + m (c . c - c c^T)             inertia about P [kg m^2], in the plane I_C + m c . c
    K = m v_P . v_P / 2 + v_P . (w x S) + w . I w / 2

This is the form with the matrices m, S_P, I_P of "Properties of the Lagrangian approach to
classical mechanics", section 5.5.1, K = v_P . (m v_P + S_P w) / 2 + w . (S_P^T v_P + I_P w) / 2:
its S_P w is w x S, so that S_P = -[S]x = [S]x^T, where [S]x a = S x a.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech.parts.values import Reader, Value, Vector, are_numbers, capital, number, vector
from jaxmech.parts.vectors import Numbers


@dataclass(frozen=True)
class Mass:
    """The mass properties of a body, as they were given.

    Attributes:
        mass: [kg].
        inertia: [kg m^2], a number in the plane; in space three principal moments or a matrix.
        center: the centre of mass, to which `inertia` then belongs, or None.
        static_moment: S about the reference point, to which `inertia` then belongs, or None.
    """

    mass: Value
    inertia: Any
    center: Vector | None = None
    static_moment: Vector | None = None

    @property
    def is_central(self) -> bool:
        """Whether the reference point is the centre of mass."""
        return self.center is None and self.static_moment is None

    def static(self, read: Reader, size: int) -> tuple[Numbers, Numbers]:
        """m and S, shapes () and (size,)."""
        m = read.number(self.mass)
        if self.static_moment is not None:
            return m, read.vector(self.static_moment, size)
        if self.center is not None:
            return m, m * read.vector(self.center, size)
        return m, np.zeros(size, m.dtype)

    def planar_inertia(self, read: Reader) -> Numbers:
        """I about the reference point, a scalar."""
        own = read.number(self.inertia)
        if self.center is None:
            return own
        c = read.vector(self.center, 2)
        return own + read.number(self.mass) * (c @ c)

    def spatial_inertia(self, read: Reader) -> Numbers:
        """I about the reference point, shape (3, 3)."""
        own = _matrix(self.inertia, read)
        if self.center is None:
            return own
        m, c = read.number(self.mass), read.vector(self.center, 3)
        return own + m * ((c @ c) * np.eye(3, dtype=own.dtype) - c[:, None] * c[None, :])


def mass_of(
    part: str,
    size: int,
    mass: Value,
    inertia: Any,
    center: Vector | None,
    static_moment: Vector | None,
) -> Mass:
    """The checked mass properties of a body in the plane (size 2) or in space (size 3).

    Example:
        >>> mass_of("body 'bar'", 2, 2, 0.5, (1, 0), None)
        Mass(mass=2.0, inertia=0.5, center=(1.0, 0.0), static_moment=None)
    """
    if center is not None and static_moment is not None:
        raise ValueError(
            f"{capital(part)} must have a `center`, with `inertia` about it, or a "
            "`static_moment`, with `inertia` about the reference point, but has both; drop one."
        )
    kept = number(part, "mass", mass)
    moments = number(part, "inertia", inertia) if size == 2 else _spatial(part, inertia)
    for argument, value in (("mass", kept), ("inertia", moments)):
        values = [v for v in np.ravel(np.array(value, object)) if isinstance(v, float)]
        if values and (value is kept or size == 2 or len(values) == 3) and min(values) < 0:
            raise ValueError(
                f"{capital(part)} must not have a negative `{argument}`, but it is {value!r}."
            )
    return Mass(
        kept,
        moments,
        None if center is None else vector(part, "center", center, size),
        None if static_moment is None else vector(part, "static_moment", static_moment, size),
    )


def _spatial(part: str, inertia: Any) -> Any:
    """Three principal moments, or a symmetric matrix of values."""
    if isinstance(inertia, str) or callable(inertia):
        return number(part, "inertia", inertia)
    if np.ndim(inertia) == 0 or len(inertia) != 3:
        raise ValueError(
            f"{capital(part)} must have three principal moments or a (3, 3) matrix as "
            f"`inertia`, but has {inertia!r}; for a body that cannot turn use `point_mass`."
        )
    if all(isinstance(row, str) or callable(row) or np.ndim(row) == 0 for row in inertia):
        return vector(part, "inertia", inertia, 3)
    rows = tuple(vector(part, "inertia", row, 3) for row in inertia)
    if all(map(are_numbers, rows)) and not np.allclose(rows, np.transpose(rows)):
        raise ValueError(
            f"{capital(part)} must have a symmetric matrix as `inertia`, but it is {rows!r}."
        )
    return rows


def _matrix(inertia: Any, read: Reader) -> Numbers:
    if isinstance(inertia, tuple) and any(isinstance(row, tuple) for row in inertia):
        rows = [read.vector(row, 3) for row in inertia]
        return np.stack(rows) if all(map(are_numbers, inertia)) else jnp.stack(rows)
    if isinstance(inertia, tuple):
        found = read.vector(inertia, 3)
    else:
        found = read.array(inertia, (3,), (3, 3))
    return found if found.ndim == 2 else found[:, None] * np.eye(3, dtype=found.dtype)
