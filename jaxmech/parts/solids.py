"""Solids of uniform density, for `planar_body` and `spatial_body`.

Each function returns the mass, the moments of inertia about the centre of mass, in the axes of
symmetry, and the `Visual` by which it is drawn, as keyword arguments. All dimensions are values:
numbers, names of parameters, or functions of (t, params).

    solid_box       m (y^2 + z^2) / 12, and so on
    solid_cylinder  m (3 r^2 + h^2) / 12 across, m r^2 / 2 about its axis z
    solid_sphere    2 m r^2 / 5
    slender_rod     m l^2 / 12 across, 0 about its axis x
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.values import Reader, Value, number
from jaxmech.parts.visuals import Visual, rod


def solid_box(mass: Value, sizes: Sequence[Value]) -> dict[str, Any]:
    """A box.

    Args:
        mass: mass [kg].
        sizes: its lengths along x, y and z [m]; two of them for a plate in the plane.

    Raises:
        ValueError: if there are not two or three sizes.
    """
    if len(sizes) not in (2, 3):
        raise ValueError(f"Argument `sizes` must have two or three lengths, but has {len(sizes)}.")

    def moments(m: Any, *lengths: Any) -> list[Any]:
        squares = [m * length**2 / 12 for length in lengths]
        if len(squares) == 2:
            return [squares[0] + squares[1]]
        x, y, z = squares
        return [y + z, x + z, x + y]

    return _properties("box", mass, sizes, moments) | {"visual": Visual.box(sizes)}


def solid_cylinder(mass: Value, radius: Value, height: Value) -> dict[str, Any]:
    """A cylinder about z.

    Args:
        mass: mass [kg].
        radius: radius [m].
        height: height along z [m].
    """

    def moments(m: Any, r: Any, h: Any) -> list[Any]:
        across = m * (3 * r**2 + h**2) / 12
        return [across, across, m * r**2 / 2]

    visual = Visual.cylinder(radius, height)
    return _properties("cylinder", mass, (radius, height), moments) | {"visual": visual}


def solid_sphere(mass: Value, radius: Value) -> dict[str, Any]:
    """A sphere.

    Args:
        mass: mass [kg].
        radius: radius [m].
    """
    properties = _properties("sphere", mass, (radius,), lambda m, r: [2 * m * r**2 / 5] * 3)
    return properties | {"visual": Visual.sphere(radius)}


def slender_rod(mass: Value, length: Value, *, planar: bool = False) -> dict[str, Any]:
    """A slender rod along x.

    Args:
        mass: mass [kg].
        length: length along x [m].
        planar: whether it is for a `planar_body`.
    """

    def moments(m: Any, length: Any) -> list[Any]:
        across = m * length**2 / 12
        return [across] if planar else [0.0 * across, across, across]

    return _properties("rod", mass, (length,), moments) | {"visual": rod(length)}


def _properties(
    solid: str, mass: Value, lengths: Sequence[Value], moments: Callable[..., list[Any]]
) -> dict[str, Any]:
    """The mass and the moments, numbers if all values are; one moment is that of a planar body."""
    numbers = number(solid, "mass", mass), *(number(solid, "size", value) for value in lengths)
    if all(isinstance(value, float) for value in numbers):
        inertias = moments(*numbers)
        return {
            "mass": numbers[0],
            "inertia": inertias[0] if len(inertias) == 1 else tuple(inertias),
        }

    def inertia(t: Any, params: Any) -> Array:
        read = Reader(solid, jnp.asarray(1.0 * jnp.asarray(t)), params)
        inertias = moments(*map(read.number, numbers))
        return (
            jnp.asarray(inertias[0])
            if len(inertias) == 1
            else jnp.stack([*map(jnp.asarray, inertias)])
        )

    return {"mass": numbers[0], "inertia": inertia}
