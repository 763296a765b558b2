"""`Inertia`: mass properties of a body about its pivot, and how they add up along a tree."""

from typing import Any, NamedTuple

import numpy as np

from jaxmech.parts.dynamics.space import across, is_zero, matmul, off_diagonal
from jaxmech.parts.dynamics.turn import Turn
from jaxmech.parts.vectors import Numbers, apply, cross
from jaxmech.utils.repeated import repeated

# The entries of a symmetric matrix above its diagonal, in place of those below.
_ROWS = np.array([[0, 0, 0], [0, 1, 1], [0, 1, 2]])
_COLUMNS = np.array([[0, 1, 2], [1, 1, 2], [2, 2, 2]])
_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])  # y, z, x and z, x, y


class Inertia(NamedTuple):
    """Mass, static moment and inertia about a point, along the axes of a body.

    Attributes:
        mass: mass [kg], ().
        static: mass times the way from the point to the centre of mass [kg m], (3,).
        moments: inertia matrix about the point [kg m^2], (3, 3).
    """

    mass: Numbers
    static: Numbers
    moments: Numbers

    @classmethod
    def zero(cls, dtype: Any) -> "Inertia":
        """No inertia."""
        return cls(np.zeros((), dtype), np.zeros(3, dtype), np.zeros((3, 3), dtype))

    def plus(self, inertia: "Inertia") -> "Inertia":
        """The sum of two about the same point, along the same axes."""
        return Inertia(*map(_sum, self, inertia))

    @repeated
    def moved(self, turn: Turn, offset: Numbers) -> "Inertia":
        """The same along other axes, about a point from which `offset` leads to the present one."""
        moments = self.moments
        if not is_zero(moments):
            moments = turn.out(turn.out(moments).T)[_ROWS, _COLUMNS]
        if is_zero(self.mass) and is_zero(self.static):
            return self._replace(moments=moments)
        static = turn.out(self.static)
        if is_zero(offset):
            return Inertia(self.mass, static, moments)
        # The sum of m (x . x - x x^T) with x = offset + y, without that of m (y . y - y y^T).
        half = static + 0.5 * self.mass * offset
        products = half[:, None] * offset[None, :]
        diagonal = np.eye(3, dtype=products.dtype)
        squares = (products * diagonal).sum(1)
        sums = 2 * (squares[_NEXT] + squares[_LAST])
        parallel_axes = diagonal * sums[:, None] - (1 - diagonal) * (products + products.T)
        return Inertia(self.mass, static + self.mass * offset, _sum(moments, parallel_axes))

    def momenta(self, spins: Numbers) -> tuple[Numbers, Numbers]:
        """The momentum, and the angular momentum about the point, of k turns about it, (3, k)."""
        return -matmul(across(self.static), spins), matmul(self.moments, spins)

    @repeated
    def load(
        self, acceleration: Numbers, spin: Numbers, angular: Numbers, field: Numbers
    ) -> tuple[Numbers, Numbers]:
        """The force, and the torque about the point, that give the body an acceleration.

        Args:
            acceleration: that of the point, (3,).
            spin: angular velocity, (3,).
            angular: angular acceleration, (3,).
            field: `acceleration_field` of both, (3, 3).
        """
        force, torque = np.zeros((2, 3), self.static.dtype)
        if not is_zero(self.mass):
            force = self.mass * acceleration
        if not is_zero(self.static):
            force = _sum(force, apply(field, self.static))
            torque = cross(self.static, acceleration)
        if not is_zero(self.moments):
            torque = _sum(torque, _gyroscopic(self.moments, spin, angular, field))
        return force, torque


def _sum(a: Numbers, b: Numbers) -> Numbers:
    return a if is_zero(b) else b if is_zero(a) else a + b


def _gyroscopic(J: Numbers, spin: Numbers, angular: Numbers, field: Numbers) -> Numbers:
    """The torque J angular + spin x J spin, with sums that `field` has already."""
    moments = (J * np.eye(3, dtype=J.dtype)).sum(1)
    coupling = J[_NEXT, _LAST]
    squares, products = spin * spin, spin[_NEXT] * spin[_LAST]
    torque = moments * angular + (moments[_LAST] - moments[_NEXT]) * products
    torque = torque + coupling * (squares[_NEXT] - squares[_LAST])
    following, preceding = field[_NEXT, np.arange(3)], field[_LAST, np.arange(3)]
    return torque + coupling[_NEXT] * following - coupling[_LAST] * preceding


def acceleration_field(spin: Numbers, angular: Numbers) -> Numbers:
    """The matrix U, (3, 3), for U x = angular x x + spin x (spin x x).

    Example:
        >>> U = acceleration_field(np.array([0.0, 0.0, 2.0]), np.array([0.0, 0.0, 3.0]))
        >>> print(U @ np.array([1.0, 0.0, 0.0]) + 0)
        [-4.  3.  0.]
    """
    squares, products = spin * spin, spin[_NEXT] * spin[_LAST]
    sums = squares[_NEXT] + squares[_LAST]
    return off_diagonal(products) - np.eye(3, dtype=sums.dtype) * sums[:, None] + across(angular)
