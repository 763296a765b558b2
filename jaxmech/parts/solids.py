"""`Visual`, what a body looks like, and solids of uniform density with it.

The functions return the mass, the moments of inertia about the centre of mass, in the axes of
symmetry, and the `Visual` by which a solid is drawn, as keyword arguments of `planar_body` and
`spatial_body`. All dimensions are values: numbers, names of parameters, or functions of
(t, params).

    solid_box       m (y^2 + z^2) / 12, and so on
    solid_cylinder  m (3 r^2 + h^2) / 12 across, m r^2 / 2 about its axis z
    solid_sphere    2 m r^2 / 5
    slender_rod     m l^2 / 12 across, 0 about its axis x
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import BY_BODY, Solid, hull, scaled
from jaxmech.meshes import Triangles
from jaxmech.parts.body import Frame
from jaxmech.parts.values import Reader, Value, Vector, number, vector
from jaxmech.parts.vectors import plane_rotation, rotation

_THIN = 0.08  # thickness of a rod relative to its length


@dataclass(frozen=True, eq=False, repr=False)
class Visual:
    """A solid on a body, made by `Visual.box` and the like.

    Sizes may be parameters by name, or functions of (t, params), which are evaluated at the start.
    A body in the plane shows its solids from above, and has a thickness of its own.

    Attributes:
        kind: what it is, as named in messages.
        form: the mesh at a size of 1, or points of which the hull is drawn.
        sizes: factors along the axes of the mesh, or the radius of the hull [m].
        at: where its origin is on the body [m]; None for the centre of mass.
        turn: its attitude on the body, a quaternion, or an angle in the plane; None for none.
        color: red, green and blue from 0 to 1, or a letter or name of matplotlib; None for the
            colour that `animate` and `view` choose for the body.
    """

    kind: str
    form: Triangles
    sizes: tuple[Value, ...]
    at: Vector | None = None
    turn: Any = None
    color: tuple[float, ...] | None = None

    def __repr__(self) -> str:
        return f"Visual.{self.kind}({self.sizes!r})"

    @classmethod
    def box(cls, sizes: Sequence[Value], **look: Any) -> "Visual":
        """A box with lengths along x, y and in space z [m]; `look` has `at`, `turn`, `color`."""
        return cls("box", meshes.box(), _sizes("box", sizes), **look)

    @classmethod
    def cylinder(cls, radius: Value, height: Value = 1.0, **look: Any) -> "Visual":
        """A cylinder about z [m]; in the plane a disc."""
        return cls(
            "cylinder", meshes.cylinder(), _sizes("cylinder", (radius, radius, height)), **look
        )

    @classmethod
    def sphere(cls, radius: Value, **look: Any) -> "Visual":
        """A sphere [m]."""
        return cls("sphere", meshes.sphere(), _sizes("sphere", (radius,) * 3), **look)

    @classmethod
    def ellipsoid(cls, semiaxes: Sequence[Value], **look: Any) -> "Visual":
        """An ellipsoid with semiaxes along x, y and z [m]."""
        return cls("ellipsoid", meshes.sphere(), _sizes("ellipsoid", semiaxes), **look)

    @classmethod
    def capsule(cls, radius: float, height: float, **look: Any) -> "Visual":
        """A cylinder about z with round ends, which come in addition to its height [m]."""
        ends = np.array([[0.0, 0.0, -height / 2], [0.0, 0.0, height / 2]])
        vertices, faces = hull(ends, radius)
        return cls("capsule", Triangles(np.asarray(vertices), faces), (1.0,) * 3, **look)

    @classmethod
    def outline(cls, points: Any, thickness: Value = 1.0, **look: Any) -> "Visual":
        """An outline through points (k, 2) in the plane of x and y [m], extruded along z.

        Raises:
            ValueError: if there are fewer than three points.
        """
        corners = np.asarray(points, float)
        if corners.ndim != 2 or corners.shape[1] != 2 or len(corners) < 3:
            raise ValueError(
                f"Argument `points` must have a shape (k, 2) with k >= 3, but has {corners.shape}."
            )
        if np.array_equal(corners[0], corners[-1]):
            corners = corners[:-1]
        size = _sizes("outline", (1.0, 1.0, thickness))
        return cls("outline", meshes.extruded(corners), size, **({"at": (0.0,) * 3} | look))

    @classmethod
    def mesh(cls, file: str | Path | Triangles, *, scale: Any = 1.0, **look: Any) -> "Visual":
        """A triangle mesh: a `jaxmech.meshes.Triangles`, or a file that `trimesh` reads.

        Args:
            file: the mesh or the file; its origin is the reference point of the body.
            scale: length of a unit of the file [m], a number or three.
            look: `at`, `turn` and `color`.

        Raises:
            ImportError: if `trimesh` is needed and not installed.
        """
        form = file if isinstance(file, Triangles) else read_mesh(file)
        sizes = tuple(np.broadcast_to(np.asarray(scale, float), 3).tolist())
        return cls("mesh", form, sizes, **({"at": (0.0,) * 3} | look))

    def solid(self, frame: Frame, center: Any, read: Reader, thickness: Any, level: Any) -> Solid:
        """The solid in the frame of a body; in the plane it has a thickness and a level."""
        d = len(frame.origin)
        scale = jnp.stack([*map(read.number, self.sizes)][:3] + [1.0] * (3 - len(self.sizes)))
        vertices = scaled(self.form.vertices, scale)
        at = center if self.at is None else read.vector(self.at[:d], d)
        color = BY_BODY if self.color is None else self.color
        if d == 2:
            axes = plane_rotation(read.number(0.0 if self.turn is None else self.turn))
            depth = np.ptp(self.form.vertices[:, 2]) * scale[2]
            flat = jnp.asarray(at)[None] + vertices[:, :2] @ axes.T
            height = level + vertices[:, 2] * thickness / depth
            vertices = jnp.concatenate([flat, height[:, None]], axis=1)
        else:
            if self.turn is not None:
                vertices = vertices @ rotation(read.vector(self.turn, 4)).T
            vertices = jnp.asarray(at)[None] + vertices
        return Solid(frame.origin, frame.axes, vertices, self.form.faces, color)


def rod(length: Value) -> Visual:
    """A thin box along x."""
    if callable(length) or isinstance(length, str):

        def thickness(t: Any, params: Any) -> Any:
            return _THIN * Reader("rod", jnp.asarray(t), params).number(length)

        return Visual.box((length, thickness, thickness))
    return Visual.box((length, _THIN * length, _THIN * length))


def read_mesh(file: str | Path) -> Triangles:
    """The mesh of a file that `trimesh` reads.

    Raises:
        ImportError: if `trimesh` is not installed.
        ValueError: if the file has no triangles.
    """
    try:
        import trimesh
    except ImportError as error:
        raise ImportError(
            "Files of meshes need `trimesh`, which is not installed: pip install trimesh."
        ) from error
    mesh = trimesh.load_mesh(str(file))
    if not len(getattr(mesh, "faces", ())):
        raise ValueError(f"Argument `file` must hold triangles, but {file} has none.")
    return Triangles(np.asarray(mesh.vertices, float), np.asarray(mesh.faces, int))


def visuals_of(name: str, visual: Any) -> tuple[Visual, ...]:
    """Check what a body looks like: a `Visual`, several, or None."""
    if visual is None:
        return ()
    several = tuple(visual) if isinstance(visual, Iterable) else (visual,)
    for each in several:
        if not isinstance(each, Visual):
            raise TypeError(
                f"Body {name!r} must have a `Visual` or several as `visual`, but has {each!r}; "
                "make one by `Visual.box` and the like."
            )
    return several


def _sizes(kind: str, sizes: Sequence[Value]) -> tuple[Value, ...]:
    if len(sizes) not in (2, 3):
        raise ValueError(f"A {kind} must have two or three sizes, but has {len(sizes)}.")
    return vector(kind, "sizes", tuple(sizes), len(sizes))


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
