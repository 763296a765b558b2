"""Curves and ellipsoids that roll without slip.

    joint               equations on       equations on        multipliers
                        positions          velocities
    rolling_profile     1 (plane)          1                   normal force, friction [N]
    rolling_profiles    1 (plane)          1                   normal force, friction [N]
    rolling_ellipsoid   1 (space)          2                   normal force, friction [N]

Like other rolling contacts, they have two constraints, `name.contact` and `name.slip`, and forces
are those of a on b at the contact. They raise the same errors as `cams`.
"""

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.contacts.cams import TAKES
from jaxmech.parts.contacts.curve_pairs import CurvesGap, CurvesSlip
from jaxmech.parts.contacts.curves import FaceGap, FaceSlip
from jaxmech.parts.contacts.ellipsoids import EllipsoidGap, EllipsoidSlip
from jaxmech.parts.contacts.profiles import Profile
from jaxmech.parts.joint_base import Joint, pinned
from jaxmech.parts.values import Vector, direction, vector
from jaxmech.utils.checks import require_function


def rolling_profile(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile: Profile, normal: Vector,
) -> Joint:  # fmt: skip
    """A convex curve that rolls without slip on a line; in the plane.

    Args:
        name: name of the joint.
        a: the body with the line, or `ground`.
        at_a: a point of the line on a [m].
        b: the body with the curve.
        at_b: origin of the profile on b [m].
        profile: closed curve `profile(s, t, params)` (2,) [m] along the axes of b, for s from 0 to
            2 pi, everywhere convex.
        normal: normal of the line, on a, towards the curve.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech.parts import ground, planar_body
        >>> body, o = planar_body("egg", mass=1.0, inertia=0.1), (0, 0)
        >>> ellipse = lambda s, t, p: (p["a"] * jnp.cos(s), p["b"] * jnp.sin(s))
        >>> rolling_profile("road", ground, o, body, o, profile=ellipse, normal=(0, 1)).kind
        'rolling profile'
    """
    kind = "rolling profile"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(2,), turning=True)
    require_function("profile", profile, TAKES)
    gap = FaceGap(profile, *points, direction(part, "normal", normal, 2), 0)
    return Joint(kind, name, bodies, (gap,), (FaceSlip(gap),))


def rolling_profiles(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile_a: Profile, profile_b: Profile,
) -> Joint:  # fmt: skip
    """A convex curve that rolls without slip on a curve; in the plane.

    Args:
        name: name of the joint.
        a: the first body, or `ground`.
        at_a: origin of its profile on a [m].
        b: the body with the convex curve.
        at_b: origin of its profile on b [m].
        profile_a: closed curve `profile_a(s, t, params)` (2,) [m] along the axes of a, for s from 0
            to 2 pi. The curve of b is to its right: outside if the first curve is
            counter-clockwise, inside if it is clockwise. Its hollows must be less curved than any
            point of `profile_b`.
        profile_b: the same along the axes of b, everywhere convex, in either sense.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech.parts import ground, planar_body
        >>> body, o = planar_body("egg", mass=1.0, inertia=0.1), (0, 0)
        >>> egg = lambda s, t, p: (p["a"] * jnp.cos(s), p["b"] * jnp.sin(s))
        >>> bowl = lambda s, t, p: (jnp.cos(s), -jnp.sin(s))
        >>> rolling_profiles("bowl", ground, o, body, o, profile_a=bowl, profile_b=egg).kind
        'rolling profiles'
    """
    kind = "rolling profiles"
    _, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(2,), turning=True)
    require_function("profile_a", profile_a, TAKES)
    require_function("profile_b", profile_b, TAKES)
    gap = CurvesGap(profile_a, points[0], profile_b, points[1])
    return Joint(kind, name, bodies, (gap,), (CurvesSlip(gap),))


def rolling_ellipsoid(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    normal: Vector, semiaxes: Vector,
) -> Joint:  # fmt: skip
    """An ellipsoid that rolls without slip on a plane and may spin about its normal; in space.

    Args:
        name: name of the joint.
        a: the body with the plane, or `ground`.
        at_a: a point of the plane on a [m].
        b: the body with the ellipsoid.
        at_b: centre of the ellipsoid on b [m].
        normal: normal of the plane, on a, towards the ellipsoid.
        semiaxes: semi-axes of the ellipsoid along the axes of b [m].

    Example:
        >>> from jaxmech.parts import ground, spatial_body
        >>> stone, o = spatial_body("stone", mass=1.0, inertia=(0.1, 0.2, 0.2)), (0, 0, 0)
        >>> up, sizes = (0, 0, 1), (0.2, 0.03, "c")
        >>> rolling_ellipsoid("table", ground, o, stone, o, normal=up, semiaxes=sizes).kind
        'rolling ellipsoid'
    """
    kind = "rolling ellipsoid"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(3,), turning=True)
    n, sizes = direction(part, "normal", normal, 3), vector(part, "semiaxes", semiaxes, 3)
    gap = EllipsoidGap(points[0], n, points[1], sizes)
    return Joint(kind, name, bodies, (gap,), (EllipsoidSlip(gap),))
