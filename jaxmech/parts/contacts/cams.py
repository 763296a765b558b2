"""Cams: a closed curve of a body that lifts a roller, a point or a flat face of another.

Each has one equation, a gap that stays closed, whose multiplier is the force [N] of a on b along
the normal, positive where it pushes. A follower that would lift off is held, with a negative
multiplier. The follower and the cam need their own joints to guide them.

Each function raises a TypeError for an argument that is not a body, a function or a value, and a
ValueError for bodies, points or directions that do not fit. Curves and sizes are checked with the
parameters of the mechanism.
"""

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.contacts.curves import FaceGap, RollerGap
from jaxmech.parts.contacts.profiles import Profile
from jaxmech.parts.joint_base import Joint, pinned
from jaxmech.parts.values import Value, Vector, direction, non_negative
from jaxmech.utils.checks import require_function

TAKES = "s, t, params"


def cam(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile: Profile, radius: Value = 0.0,
) -> Joint:  # fmt: skip
    """A cam with a follower that ends in a roller or in a point; in the plane.

    Args:
        name: name of the joint.
        a: the cam, or `ground` for a track at rest.
        at_a: origin of the profile on a [m].
        b: the follower.
        at_b: the centre of the roller, or the point, on b [m].
        profile: closed curve `profile(s, t, params)` (2,) [m] along the axes of a, for s from 0 to
            2 pi, such as those of `polar_profile` and `spline_profile`. The follower is to its
            right: outside if the curve is counter-clockwise, inside if it is clockwise.
        radius: radius of the roller [m], by default 0, a point.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech.parts import planar_body, polar_profile
        >>> wheel, rod = (planar_body(name, mass=1.0, inertia=0.1) for name in ("wheel", "rod"))
        >>> heart = polar_profile(lambda angle, t, p: 0.03 + 0.01 * jnp.cos(angle))
        >>> cam("lift", wheel, (0, 0), rod, (0, 0), profile=heart, radius=0.005).kind
        'cam'
    """
    part, bodies, _, points = pinned("cam", name, (a, b), (at_a, at_b), sizes=(2,))
    require_function("profile", profile, TAKES)
    gap = RollerGap(profile, *points, non_negative(part, "radius", radius))
    return Joint("cam", name, bodies, (gap,))


def flat_follower(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile: Profile, normal: Vector,
) -> Joint:  # fmt: skip
    """A convex cam with a follower that ends in a flat face; in the plane.

    Args:
        name: name of the joint.
        a: the cam.
        at_a: origin of the profile on a [m].
        b: the follower.
        at_b: a point of the face on b [m].
        profile: as in `cam`, everywhere convex, in either sense.
        normal: normal of the face, on b, towards the cam.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech.parts import planar_body
        >>> wheel, rod = (planar_body(name, mass=1.0, inertia=0.1) for name in ("wheel", "rod"))
        >>> disk = lambda s, t, p: (0.01 + 0.03 * jnp.cos(s), 0.03 * jnp.sin(s))
        >>> flat_follower("lift", wheel, (0, 0), rod, (0, 0), profile=disk, normal=(0, -1)).kind
        'flat follower'
    """
    kind = "flat follower"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(2,), turning=True)
    require_function("profile", profile, TAKES)
    gap = FaceGap(profile, *points, direction(part, "normal", normal, 2), 1)
    return Joint(kind, name, bodies, (gap,))
