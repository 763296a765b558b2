"""`Inertia`: mass properties of a body about its pivot, and how they add up along a tree."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmech.parts.vectors import CROSS, apply, cross, cross_matrix, is_zero, matmul
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.traces import repeated


class Turn(NamedTuple):
    """The rotation `fixed` @ `rotation` from the axes of a body to those of the body before it.

    A hinge about the third axis is a sparse `rotation`, and whatever its axis is on the bodies, the
    rotation `fixed` to it does not depend on the angle.

    Attributes:
        fixed: matrix (3, 3).
        rotation: matrix (3, 3).
    """

    fixed: AnyArray
    rotation: AnyArray

    def out(self, x: AnyArray) -> AnyArray:
        """Components along the axes of the body before, of vectors (3,) or (3, k)."""
        return _times(self.fixed, _times(self.rotation, x))

    def back(self, x: AnyArray) -> AnyArray:
        """Components along the axes of the body, of vectors (3,) or (3, k)."""
        return _times(self.rotation.T, _times(self.fixed.T, x))


def _times(matrix: AnyArray, x: AnyArray) -> AnyArray:
    is_unit = isinstance(matrix, np.ndarray) and np.array_equal(matrix, np.eye(3))
    return x if is_unit else matmul(matrix, x)


def rounded(matrix: AnyArray) -> AnyArray:
    """A matrix of plain numbers with exact zeros and ones in place of their round-off."""
    if not isinstance(matrix, np.ndarray):
        return matrix
    integers = np.round(matrix)
    near = np.abs(matrix - integers) < 4 * np.finfo(matrix.dtype).eps
    return np.where(near, integers, matrix)


def in_space(x: AnyArray) -> AnyArray:
    """A vector (2,), a spin () or a matrix (2, 2) of the plane in space; others unchanged."""
    xp: Any = np if isinstance(x, np.ndarray | np.generic) else jnp
    if x.shape == (2,):
        return xp.concatenate([x, np.zeros(1, x.dtype)])
    if x.shape == ():
        return xp.concatenate([np.zeros(2, x.dtype), x[None]])
    if x.shape == (2, 2):
        rows = xp.concatenate([x, np.zeros((2, 1), x.dtype)], axis=1)
        return xp.concatenate([rows, np.eye(3, dtype=x.dtype)[2:]])
    return x


_AXES = np.arange(3, dtype=np.int32)  # jax 0.9.2 would mix 64 bits with those kept from float32
# The entries of a symmetric matrix above its diagonal, in place of those below.
_ROWS, _COLUMNS = np.minimum.outer(_AXES, _AXES), np.maximum.outer(_AXES, _AXES)
_NEXT, _LAST = (_AXES + 1) % 3, (_AXES + 2) % 3  # y, z, x and z, x, y


class Inertia(NamedTuple):
    """Mass, static moment and inertia about a point, along the axes of a body.

    Attributes:
        mass: mass [kg], ().
        static: mass times the way from the point to the centre of mass [kg m], (3,).
        moments: inertia matrix about the point [kg m^2], (3, 3).
    """

    mass: AnyArray
    static: AnyArray
    moments: AnyArray

    @classmethod
    def zero(cls, dtype: Any) -> "Inertia":
        return cls(np.zeros((), dtype), np.zeros(3, dtype), np.zeros((3, 3), dtype))

    def plus(self, inertia: "Inertia") -> "Inertia":
        """The sum of two about the same point, along the same axes."""
        return Inertia(*map(_sum, self, inertia))

    @repeated
    def moved(self, turn: Turn, offset: AnyArray) -> "Inertia":
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

    def momenta(self, spins: AnyArray) -> tuple[AnyArray, AnyArray]:
        """The momentum, and the angular momentum about the point, of k turns about it, (3, k)."""
        return -matmul(cross_matrix(self.static), spins), matmul(self.moments, spins)

    @repeated
    def load(
        self, acceleration: AnyArray, spin: AnyArray, angular: AnyArray, field: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
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
        if is_zero(self.moments):
            return force, torque
        # J angular + spin x J spin, with sums that `field` has already.
        moments = (self.moments * np.eye(3, dtype=self.moments.dtype)).sum(1)
        coupling = self.moments[_NEXT, _LAST]
        squares, products = spin * spin, spin[_NEXT] * spin[_LAST]
        turning = moments * angular + (moments[_LAST] - moments[_NEXT]) * products
        turning = turning + coupling * (squares[_NEXT] - squares[_LAST])
        following, preceding = field[_NEXT, np.arange(3)], field[_LAST, np.arange(3)]
        turning = turning + coupling[_NEXT] * following - coupling[_LAST] * preceding
        return force, _sum(torque, turning)


def _sum(a: AnyArray, b: AnyArray) -> AnyArray:
    return a if is_zero(b) else b if is_zero(a) else a + b


def acceleration_field(spin: AnyArray, angular: AnyArray) -> AnyArray:
    """The matrix U, (3, 3), for U x = angular x x + spin x (spin x x)."""
    squares, products = spin * spin, spin[_NEXT] * spin[_LAST]
    sums = squares[_NEXT] + squares[_LAST]
    # The symmetric matrix whose entry j, k is that product i, with i, j, k all different.
    off_diagonal = (np.abs(CROSS).astype(products.dtype) * products[None, :, None]).sum(1)
    diagonal = np.eye(3, dtype=sums.dtype) * sums[:, None]
    return off_diagonal - diagonal + cross_matrix(angular)
