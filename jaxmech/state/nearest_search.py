"""The formulas of the search for the nearest point of a surface, for traced and known numbers.

In coordinates w in which M is the identity, y = guess + T w, this is the point of the surface
level(y) = 0 nearest to the origin. Gauss-Newton steps reach the surface; a damped Newton method
then moves along it (Absil, Mahony and Sepulchre 2008, chapters 6 and 7). With C = A T, the
projector P onto the tangent space of the surface and the multipliers of C^T lambda = (1 - P) w, a
step d solves

    (B + mu) d = -P w,    B = P H P + 1 - P,    H = 1 - T^T (d2/dy2 lambda . level) T

and Gauss-Newton steps return to the surface. If the result is not nearer to the guess the step is
rejected and mu grows. So the distance never grows, and the final B decides whether it is a minimum.
"""

import abc
from typing import Any, NamedTuple

import numpy as np

from jaxmech.utils.arrays import AnyArray

RETURNS = 30  # largest number of Gauss-Newton steps to the surface
STEPS = 60  # largest number of Newton steps along it
LENGTHS = 0.5 ** np.arange(6)  # of a Gauss-Newton step


class Plan(NamedTuple):
    """A step to try from a point, in coordinates w.

    Attributes:
        step: the step, (n,).
        promised: decrease of half the squared distance.
        damping: mu.
        is_minimum: whether the point counts as a minimum.
        is_last: whether the search ends at the point.
    """

    step: AnyArray
    promised: AnyArray
    damping: AnyArray
    is_minimum: AnyArray
    is_last: AnyArray


class AbstractSearch(abc.ABC):
    """The search from one guess; subclasses say how numbers are computed.

    Attributes:
        guess: the guess, (n,).
        T: from coordinates w to changes of y, (n, n).
        root: the inverse of T.
        xp: `jax.numpy` or `numpy`.
    """

    guess: AnyArray
    T: AnyArray
    root: AnyArray
    xp: Any

    @property
    def eps(self) -> float:
        """Round-off of the type of the guess."""
        return float(np.finfo(self.guess.dtype).eps)

    @abc.abstractmethod
    def times(self, matrix: AnyArray, x: AnyArray) -> AnyArray:
        """The product of a matrix and a vector."""

    @abc.abstractmethod
    def diagonal(self, matrix: AnyArray) -> AnyArray:
        """The diagonal of a matrix."""

    @abc.abstractmethod
    def length(self, x: AnyArray) -> AnyArray:
        """The length of a vector."""

    @abc.abstractmethod
    def solved(
        self, B: AnyArray, damping: AnyArray, raised: AnyArray, slope: AnyArray, push: AnyArray
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Whether B is definite, and nearly so; and the step.

        The step solves (B + damping) d = -slope if B is definite; otherwise it solves
        (B + raised) d = -slope - push.
        """

    def size(self, y: AnyArray) -> AnyArray:
        """The length scale of round-off and tolerances."""
        away = self.length(self.times(self.root, y - self.guess))
        return away + self.length(self.times(self.root, y))

    def is_nearer(self, y: AnyArray, old: Any, new: Any, promised: AnyArray) -> AnyArray:
        """Whether a step from y has led nearer to the guess; points as in `surface_point`."""
        # Half the difference of the squared distances, without the cancellation of their
        # subtraction.
        nearer = (old.w - new.w) @ (old.w + new.w) / 2
        round_off = 10 * self.eps * self.length(old.w) * self.size(y)
        # Sufficient decrease (Armijo), up to round-off: at the minimum no step reduces it further.
        return new.reached & (nearer + round_off >= 1e-4 * promised)

    def planned(self, y: AnyArray, point: Any, accepted: AnyArray, previous: Plan) -> Plan:
        """The next step, and whether it is so small that y is the minimum."""
        xp = self.xp
        slope, size = self.times(point.P, point.w), self.size(y)
        # Gershgorin discs: no eigenvalue of B is below `lowest` or above `highest`.
        centers = self.diagonal(point.B)
        radii = xp.abs(point.B).sum(1) - xp.abs(centers)
        lowest, highest = xp.min(centers - radii), xp.max(xp.abs(centers) + radii)
        # Where B is definite near the minimum the damping dies out, and Newton's method is
        # quadratic.
        damping = xp.where(accepted, previous.damping / 8, 4 * previous.damping + highest / 16)
        damping = xp.where(damping < highest / 100, 0 * damping, damping)
        # The gradient vanishes at a saddle on a line of symmetry; a push moves y off it.
        push = 1e-2 * self.length(point.w) * self.times(point.P, xp.asarray(some_direction(y)))
        raised = damping + self.eps**0.5 - lowest
        definite, nearly, step = self.solved(point.B, damping, raised, slope, push)
        promised = -(slope @ step) - step @ self.times(point.B, step) / 2
        length = self.length(step)
        small = definite & (damping == 0) & (length <= self.eps**0.5 * size)
        slower = (length >= 0.5 * self.length(previous.step)) | ~accepted
        least = small & ((length <= 16 * self.eps * size) | slower)
        flat = ~definite & nearly & (self.length(slope) <= self.eps**0.5 * size)
        return Plan(step, xp.maximum(promised, 0.0), damping, small | flat, least | ~point.reached)


def some_direction(y: Any) -> np.ndarray:
    """A vector of fixed pseudo-random numbers, of the shape and type of y."""
    return np.random.default_rng(0).uniform(-1, 1, y.shape).astype(y.dtype)
