"""Curves and ellipsoids that roll without slip.

    joint               equations on       equations on        multipliers
                        positions          velocities
    rolling_profile     1 (plane)          1                   normal force, friction [N]
    rolling_profiles    1 (plane)          1                   normal force, friction [N]
    rolling_ellipsoid   1 (space)          2                   normal force, friction [N]

Like other rolling contacts, they have two constraints, `name.contact` and `name.slip`, and forces
are those of a on b at the contact. They raise the same errors as `cams`.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.geometry import circle, line
from jaxmech.parts.body import AbstractBody, Frames, Moving, across, along, pointing, separation
from jaxmech.parts.contacts.base import AbstractContact
from jaxmech.parts.contacts.curves import CurvesGap, CurveSlip, FaceGap, RollerGap
from jaxmech.parts.contacts.profiles import Profile
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.joint_equations import AbstractVelocity, slip
from jaxmech.parts.joints.base import EquationJoint
from jaxmech.parts.joints.checks import pinned
from jaxmech.parts.values import (
    Reader,
    Value,
    Vector,
    direction,
    non_negative,
    require_sign,
    vector,
)
from jaxmech.parts.vectors import apply
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import require_function

TAKES = "s, t, params"


def cam(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile: Profile, radius: Value = 0.0,
) -> EquationJoint:  # fmt: skip
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
    return EquationJoint("cam", name, bodies, (gap,))


def flat_follower(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile: Profile, normal: Vector,
) -> EquationJoint:  # fmt: skip
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
    return EquationJoint(kind, name, bodies, (gap,))


@dataclass(frozen=True)
class EllipsoidGap(AbstractContact):
    """An ellipsoid of b, with the axes of b, touches a plane of a."""

    at_a: Vector
    normal: Vector
    at_b: Vector
    semiaxes: Vector

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The index of the body with the ellipsoid."""
        return (1,)

    def support(self, frames: Frames, read: Reader) -> tuple[AnyArray, Array]:
        """The height of the centre over the plane, and the way from there to the contact."""
        sizes = read.vector(self.semiaxes, 3)
        n = frames[1].components(pointing(frames[0], self.normal, read))
        n = n / jnp.sqrt(n @ n)  # of a quaternion that is not yet a unit
        height = jnp.sqrt((sizes * n) @ (sizes * n))
        return height, frames[1].direction(-sizes * sizes * n / height)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The height of the lowest point over the plane."""
        height, _ = self.support(frames, read)
        d = separation(frames, self.at_a, self.at_b, read)
        return (along(frames[0], self.normal, d, read) - height)[None]

    def require(self, read: Reader) -> None:
        """Raise unless the semi-axes are positive."""
        require_sign(read.part, "semiaxes", read.vector(self.semiaxes, 3))

    def shapes(self, drawing: Drawing) -> Shapes:
        """Three ellipses."""
        name, read, b = drawing.name, drawing.read, drawing.frames[1]
        center, sizes = b.point(read.vector(self.at_b, 3)), read.vector(self.semiaxes, 3)
        e = [sizes[k] * b.axes[:, k] for k in range(3)]
        pairs = ((0, 1), (1, 2), (2, 0))
        return {
            f"{name}.ellipse{k + 1}": circle(center, 1.0, line(e[i], e[j]))
            for k, (i, j) in enumerate(pairs)
        }


@dataclass(frozen=True)
class EllipsoidSlip(AbstractVelocity):
    """The ellipsoid does not slip; it may spin about the normal."""

    gap: EllipsoidGap

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity of b relative to a at the contact, along n1 and n2 of the plane."""
        a, b = motions[0].frame, motions[1].frame
        _, arm = self.gap.support((a, b), read)
        velocity = slip(motions, b.point(read.vector(self.gap.at_b, 3)) + arm)
        return apply(across(a, self.gap.normal, read), a.components(velocity))


def rolling_profile(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile: Profile, normal: Vector,
) -> EquationJoint:  # fmt: skip
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
    return EquationJoint(kind, name, bodies, (gap,), (CurveSlip(gap),))


def rolling_profiles(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    profile_a: Profile, profile_b: Profile,
) -> EquationJoint:  # fmt: skip
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
    return EquationJoint(kind, name, bodies, (gap,), (CurveSlip(gap),))


def rolling_ellipsoid(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *,
    normal: Vector, semiaxes: Vector,
) -> EquationJoint:  # fmt: skip
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
    return EquationJoint(kind, name, bodies, (gap,), (EllipsoidSlip(gap),))
