"""What contacts have in common: a shape in pictures, and a check of their numbers."""

import abc
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.contacts.profiles import Profile
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.joint_equations import AbstractPosition
from jaxmech.parts.values import Reader
from jaxmech.utils.checks import is_known
from jaxmech.utils.text import capital

_SAMPLES = 1024  # of a curve that is checked


@dataclass(frozen=True)
class AbstractContact(AbstractPosition):
    """The equation on positions of a contact of curved bodies."""

    @property
    @abc.abstractmethod
    def drawn_bodies(self) -> tuple[int, ...]:
        """The indices of the bodies with a curve or surface."""

    @abc.abstractmethod
    def require(self, read: Reader) -> None:
        """Raise a ValueError for known sizes and curves that allow no contact."""

    @abc.abstractmethod
    def shapes(self, drawing: Drawing) -> Shapes:
        """The lines of curves and surfaces in pictures, by name."""


def point_of(profile: Profile, s: Any, read: Reader) -> Array:
    """The point of a profile, (2,)."""
    return read.array(lambda t, params: profile(s, t, params), (2,))


def around(profile: Profile, read: Reader, samples: Any) -> Array:
    """Points of a profile, (k, 2)."""
    return jax.vmap(lambda s: point_of(profile, s, read))(jnp.asarray(samples, read.dtype))


def seen_by(read: Reader, t: Any, params: Any) -> Reader:
    """The same reader at another time and with other parameters."""
    return replace(read, t=t, params=params)


def right_normal(profile: Profile, s: Array, read: Reader) -> tuple[Array, Array, Array]:
    """The point at s, the tangent, and the normal to its right; outward if counter-clockwise."""
    point, rate = jax.jvp(lambda s: point_of(profile, s, read), (s,), (jnp.ones_like(s),))
    tangent = rate / jnp.sqrt(rate @ rate)
    return point, tangent, jnp.stack([tangent[1], -tangent[0]])


def require_curve(
    profile: Profile, read: Reader, argument: str = "profile"
) -> tuple[np.ndarray, np.ndarray] | None:
    """Raise for a known profile that is not a smooth closed curve; its speeds and curvatures."""
    samples = jnp.asarray(np.linspace(0, 2 * np.pi, _SAMPLES + 1), read.dtype)
    values = jax.vmap(lambda s: _jet(profile, s, read))(samples)
    if not is_known(values):
        return None
    points, rates, bends = map(np.asarray, values)
    start = f"{capital(read.part)} must have a `{argument}` that is"
    for table, requirement in (
        (points, "finite"), (rates, "twice differentiable"), (bends, "twice differentiable"),
    ):  # fmt: skip
        if not np.isfinite(table).all():
            s = float(samples[np.argmin(np.isfinite(table).all(1))])
            raise ValueError(f"{start} {requirement}, but it is not at s = {s:.4g}; correct it.")
    small = float(jnp.finfo(read.dtype).eps) ** 0.5
    for table, label in ((points, "points"), (rates, "tangents")):
        if np.abs(table[-1] - table[0]).max() > 10 * small * np.abs(table - table.mean(0)).max():
            raise ValueError(
                f"{start} a closed smooth curve, with a period of 2 pi in s, but its {label} at 0 "
                f"and 2 pi are {table[0]} and {table[-1]}; make it periodic."
            )
    _require_no_corner(start, samples, points, rates, bends)
    speeds = np.hypot(*rates.T)
    return speeds, (rates[:, 0] * bends[:, 1] - rates[:, 1] * bends[:, 0]) / speeds**3


def _jet(profile: Profile, s: Array, read: Reader) -> tuple[Array, Array, Array]:
    """The point of a profile and its first two derivatives by s, (2,) each."""
    unit_step = jnp.ones((), read.dtype)

    def rate(s: Array) -> Array:
        return jax.jvp(lambda s: point_of(profile, s, read), (s,), (unit_step,))[1]

    return point_of(profile, s, read), *jax.jvp(rate, (s,), (unit_step,))


def _require_no_corner(
    start: str, samples: Array, points: np.ndarray, rates: np.ndarray, bends: np.ndarray
) -> None:
    speeds, size = np.hypot(*rates.T), np.ptp(points[:-1], axis=0).max()
    if size == 0 or speeds.min() < 1e-6 * speeds.max():
        s = float(samples[speeds.argmin()])
        raise ValueError(
            f"{start} a curve without corners or stops, but its derivative by s is zero at "
            f"s = {s:.4g}; choose another parameter along the curve."
        )
    # Between neighbours a tangent changes by the mean of the second derivatives, unless it jumps.
    means = (bends[1:] + bends[:-1]) * (np.pi / _SAMPLES)
    jumps = np.hypot(*(np.diff(rates, axis=0) - means).T)
    if jumps.max() > 0.05 * speeds.max():
        s = float(samples[jumps.argmax()])
        raise ValueError(
            f"{start} a curve without corners, but its tangent jumps near s = {s:.4g}; round the "
            "corner off."
        )


def require_convex(
    profile: Profile, read: Reader, argument: str, reason: str, remedy: str
) -> float | None:
    """Raise for a known profile that is not smooth and convex; its least curvature."""
    jet = require_curve(profile, read, argument)
    if jet is None:
        return None
    speeds, curvatures = jet
    sense = np.sign((speeds * curvatures)[:-1].sum())
    if (sense * curvatures).min() <= 0:
        s = 2 * np.pi * int((sense * curvatures).argmin()) / (len(curvatures) - 1)
        raise ValueError(
            f"{capital(read.part)} must have a convex `{argument}`, {reason}, but it is hollow or "
            f"straight at s = {s:.4g}; {remedy}."
        )
    return float((sense * curvatures).min())
