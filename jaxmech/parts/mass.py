"""`Mass`: the mass properties of a rigid body as they are given, and checks of them."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech.parts.values import (
    Reader,
    Value,
    Vector,
    are_numbers,
    non_negative,
    number,
    require_sign,
    vector,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known
from jaxmech.utils.text import capital

ROUNDING = 0.01  # of the largest moment, that data of a body may be off


@dataclass(frozen=True)
class Mass:
    """Mass properties as given; `inertia` is about P only if there is no `center`."""

    mass: Value
    inertia: Any  # a number in the plane; in space three principal moments or a matrix
    center: Vector | None = None
    static_moment: Vector | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all values are numbers, so that they are known without parameters."""
        rows = self.inertia if isinstance(self.inertia, tuple) else (self.inertia,)
        points = [point for point in (self.center, self.static_moment) if point is not None]
        values = self.mass, *rows, *points
        return all(isinstance(value, float) or are_numbers(value) for value in values)

    def require(self, size: int, read: Reader) -> None:
        """Raise for a known mass or inertia that no body can have.

        The principal moments about the centre of mass satisfy A + B >= C, since each is an integral
        over two of the three squares x^2, y^2 and z^2.
        """
        mass, static, inertia = self.about_reference(read, size)
        if not is_known((mass, static, inertia)):
            return
        require_sign(read.part, "mass", mass, zero=True)
        mass, static, inertia = (np.asarray(x, float) for x in (mass, static, inertia))
        if not np.isfinite(static).all() or not np.isfinite(inertia).all():
            raise ValueError(
                f"{capital(read.part)} must have finite mass properties, but its static moment is "
                f"{static.tolist()} and its inertia {inertia.tolist()}; correct them."
            )
        center = static / mass if mass else np.zeros(size)
        if size == 3:
            moved = (center @ center) * np.eye(3) - np.outer(center, center)
            _require_moments(read.part, inertia - mass * moved)
        elif inertia < (1 - ROUNDING) * mass * (center @ center):
            raise ValueError(
                f"{capital(read.part)} must have an `inertia` about the reference point of at "
                f"least the mass times the squared distance of its centre, "
                f"{mass * (center @ center):.4g} kg m^2, but has {inertia:.4g}; correct one of "
                "them."
            )

    @property
    def is_central(self) -> bool:
        """Whether the reference point is the centre of mass."""
        return self.center is None and self.static_moment is None

    def about_reference(self, read: Reader, size: int) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Mass (), static moment (d,) and inertia about the reference point, () or (3, 3)."""
        m = read.number(self.mass)
        inertia = read.number(self.inertia) if size == 2 else _matrix(self.inertia, read)
        if self.static_moment is not None:
            return m, read.vector(self.static_moment, size), inertia
        if self.center is None:
            return m, np.zeros(size, m.dtype), inertia
        c = read.vector(self.center, size)
        shift = c @ c
        if size == 3:
            shift = shift * np.eye(3, dtype=inertia.dtype) - c[:, None] * c[None, :]
        return m, m * c, inertia + m * shift


def _matrix(inertia: Any, read: Reader) -> AnyArray:
    if isinstance(inertia, tuple) and any(isinstance(row, tuple) for row in inertia):
        rows = [read.vector(row, 3) for row in inertia]
        return np.stack(rows) if all(map(are_numbers, inertia)) else jnp.stack(rows)
    if isinstance(inertia, tuple):
        array = read.vector(inertia, 3)
    else:
        array = read.array(inertia, (3,), (3, 3))
    return array if array.ndim == 2 else array[:, None] * np.eye(3, dtype=array.dtype)


def mass_of(
    name: str,
    size: int,
    mass: Value,
    inertia: Any,
    center: Vector | None,
    static_moment: Vector | None,
) -> Mass:
    """The checked mass properties of a body."""
    part = f"body {name!r}"
    if center is not None and static_moment is not None:
        raise ValueError(
            f"{capital(part)} must have a `center`, with `inertia` about it, or a "
            "`static_moment`, with `inertia` about the reference point, but has both; drop one."
        )
    planar = size == 2
    properties = Mass(
        non_negative(part, "mass", mass),
        non_negative(part, "inertia", inertia) if planar else _spatial(part, inertia),
        None if center is None else vector(part, "center", center, size),
        None if static_moment is None else vector(part, "static_moment", static_moment, size),
    )
    if properties.is_plain:
        properties.require(size, Reader(part, np.zeros(()), {}))
    return properties


def _require_moments(part: str, central: np.ndarray) -> None:
    moments = np.linalg.eigvalsh(central)
    tolerance = ROUNDING * np.abs(moments).max()
    listed = ", ".join(f"{moment:.4g}" for moment in moments)
    if moments[0] < -tolerance:
        fault = "none negative"
    elif moments[0] + moments[1] < moments[2] - tolerance:
        fault = "none above the sum of the other two"
    else:
        return
    raise ValueError(
        f"{capital(part)} must have an `inertia` whose principal moments about the centre of mass "
        f"are those of a body, {fault}, but they are {listed} kg m^2; correct the inertia, or the "
        "point that it is about."
    )


def _spatial(part: str, inertia: Any) -> Any:
    """Check an inertia: three principal moments, or a symmetric matrix of values."""
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
