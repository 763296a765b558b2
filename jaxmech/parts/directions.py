"""Points and directions that are fixed to bodies, along the axes of the ground or of a body."""

from jaxtyping import Array

from jaxmech.parts.body import Frame
from jaxmech.parts.values import Reader, Vector, unit
from jaxmech.parts.vectors import apply, normals
from jaxmech.utils.arrays import AnyArray

Frames = tuple[Frame, ...]


def separation(frames: Frames, at_a: Vector, at_b: Vector, read: Reader) -> AnyArray:
    """The vector from the point on a to the point on b, along the axes of the ground, (d,)."""
    a, b = frames
    size = a.origin.shape[0]
    return b.point(read.vector(at_b, size)) - a.point(read.vector(at_a, size))


def pointing(frame: Frame, local: Vector, read: Reader) -> AnyArray:
    """A unit vector fixed to a body, along the axes of the ground, (d,)."""
    return frame.direction(unit(read, local, frame.origin.shape[0]))


def across(frame: Frame, axis: Vector, read: Reader) -> AnyArray:
    """The normals of an axis of a body, along the axes of the body, (1, 2) or (2, 3)."""
    return normals(unit(read, axis, frame.origin.shape[0]))


def along(frame: Frame, axis: Vector, direction: AnyArray, read: Reader) -> AnyArray:
    """The component of a direction along an axis of a body."""
    return unit(read, axis, frame.origin.shape[0]) @ frame.components(direction)


def turn_about(frames: Frames, axis_a: Vector, axis_b: Vector, read: Reader) -> tuple[Array, Array]:
    """Cosine and sine of the angle from the first normal of a's axis to that of b's."""
    a, b = frames
    w = b.direction(across(b, axis_b, read)[0])
    cosine, sine = apply(across(a, axis_a, read), a.components(w))
    return cosine, sine
