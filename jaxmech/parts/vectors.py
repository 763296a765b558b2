"""Branch-free products and rotations of vectors and quaternions, and spins.

A quaternion is (e0, e1, e2, e3), the scalar part e0 first; e and -e are the same attitude.

Each product is one multiplication by a table of 0, 1 and -1 and one sum: few operations to trace,
of which the compiler keeps only those whose factor is not 0.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.traces import repeated


def _quaternion_table() -> np.ndarray:
    """The table T with (a b)_k = sum T[k, i, j] a_i b_j, Hamilton's product."""
    table = np.zeros((4, 4, 4), np.int32)
    for i in range(4):
        table[i, 0, i] = table[i, i, 0] = 1
    for i, j, k in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        table[k, i, j], table[k, j, i] = 1, -1
        table[0, i, i] = -1
    return table


_PRODUCT = _quaternion_table()
CROSS = _PRODUCT[1:, 1:, 1:]  # (a x b)_k = sum CROSS[k, i, j] a_i b_j
_CONJUGATE = np.array([1, -1, -1, -1], np.int32)
# vec(a conj(b)), vec(conj(a) b) and (0, a) b.
_SPACE = (_PRODUCT * _CONJUGATE)[1:]
_BODY = (_PRODUCT * _CONJUGATE[:, None])[1:]
_IMAGINARY = _PRODUCT[:, 1:, :]
_RIGHT = _PRODUCT[:, :, 1:].transpose(0, 2, 1)  # e (0, w)
# R = vec(e (0, .) conj(e)): R[r, c] = sum _ROTATION[r, c, i, j] e_i e_j.
_ROTATION = np.einsum("rkj,kic->rcij", _SPACE, _PRODUCT[:, :, 1:]).astype(np.int32)
_QUARTER = np.array([[0, -1], [1, 0]], np.int32)


def bilinear(table: np.ndarray, a: AnyArray, b: AnyArray) -> AnyArray:
    """Return sum table[k, i, j] a_i b_j."""
    products = a[:, None] * b[None, :]
    return (table.astype(products.dtype) * products[None]).sum((1, 2))


def apply(matrix: AnyArray, a: AnyArray) -> AnyArray:
    """Multiply a matrix and a vector as a product and a sum, which XLA fuses over a batch."""
    return (matrix * a[None, :]).sum(1)


def is_zero(x: AnyArray) -> bool:
    """Whether all numbers are plain zeros, with which nothing needs to be computed."""
    return isinstance(x, np.ndarray | np.generic) and not np.any(x)


def matmul(a: AnyArray, b: AnyArray) -> AnyArray:
    """Multiply a matrix with a vector or a matrix as products and a sum."""
    if is_zero(a) or is_zero(b):
        return np.zeros(a.shape[:1] + b.shape[1:], b.dtype)
    if b.ndim == 1:
        return apply(a, b)
    return (a[:, :, None] * b[None]).sum(1)


def cross(a: AnyArray, b: AnyArray) -> AnyArray:
    """The vector product."""
    return bilinear(CROSS, a, b)


def cross_matrix(a: AnyArray) -> AnyArray:
    """The matrix of the vector product a x, (3, 3)."""
    return (CROSS.astype(a.dtype) * a[None, :, None]).sum(1)


def moment(arm: AnyArray, force: AnyArray) -> AnyArray:
    """The vector product, in the plane its component out of it."""
    return quarter_turn(arm) @ force if arm.shape == (2,) else cross(arm, force)


def quarter_turn(a: AnyArray) -> AnyArray:
    """Rotate a vector in the plane by a quarter turn to the left."""
    return apply(_QUARTER.astype(a.dtype), a)


def product(a: AnyArray, b: AnyArray) -> AnyArray:
    """Hamilton's product of two quaternions."""
    return bilinear(_PRODUCT, a, b)


def conjugate(e: AnyArray) -> AnyArray:
    """The quaternion of the inverse rotation."""
    return _CONJUGATE.astype(e.dtype) * e


def spin_in_space(e: AnyArray, rate: AnyArray) -> AnyArray:
    """The angular velocity along the axes of the ground, 2 vec(e' conj(e))."""
    return 2 * bilinear(_SPACE, rate, e)


def spin_in_body(e: AnyArray, rate: AnyArray) -> AnyArray:
    """The angular velocity along the axes of the body, 2 vec(conj(e) e')."""
    return 2 * bilinear(_BODY, e, rate)


def quaternion_rate(e: AnyArray, spin: AnyArray) -> AnyArray:
    """The derivative e' from the angular velocity along the axes of the ground, (0, w) e / 2."""
    return bilinear(_IMAGINARY, spin, e) / 2


def right_products(e: AnyArray) -> AnyArray:
    """The matrix (4, 3) of e (0, w) for w (3,); half of it gives e' for a body's spin."""
    return (_RIGHT.astype(e.dtype) * e[None, None]).sum(2)


def quaternion(axis: Any, angle: Any) -> Array:
    """The quaternion of a rotation about an axis.

    Args:
        axis: direction, shape (3,), of any length except zero.
        angle: angle [rad], positive by the right-hand rule.
    """
    u, half = 1.0 * jnp.asarray(axis), 0.5 * jnp.asarray(angle)
    return jnp.append(jnp.cos(half), jnp.sin(half) * u / jnp.sqrt(u @ u))


def rotation(e: AnyArray) -> AnyArray:
    """The matrix (3, 3) that turns components along the axes of a body into those in space.

    It is quadratic in e, so that it is a rotation only where e is a unit.
    """
    squares = e[:, None] * e[None, :]
    return (_ROTATION.astype(e.dtype) * squares[None, None]).sum((2, 3))


@repeated
def rotation_about(u: AnyArray, angle: AnyArray) -> Array:
    """The matrix (3, 3) of a rotation about a unit vector, by the formula of Rodrigues."""
    along = u[:, None] * u[None, :]
    identity = np.eye(3, dtype=u.dtype)
    return jnp.cos(angle) * (identity - along) + jnp.sin(angle) * cross_matrix(u) + along


def quaternion_onto(u: AnyArray) -> AnyArray:
    """The quaternion that turns z into a unit vector, and x and y into its `normals`."""
    xp: Any = np if isinstance(u, np.ndarray) else jnp
    unity, zero = xp.ones_like(u[0]), xp.zeros_like(u[0])
    upper = xp.stack([1 + u[2], -u[1], u[0], zero])
    down = xp.stack([1 - u[2], u[1], -u[0], zero])
    half_turn = xp.stack([zero, unity, zero, zero])  # about x, which turns z into -z
    e = xp.where(u[2] >= 0, upper, product(down, half_turn))
    return e / xp.sqrt((e * e).sum())


def plane_rotation(angle: AnyArray) -> AnyArray:
    """The matrix (2, 2) of a rotation in the plane."""
    xp: Any = np if isinstance(angle, np.ndarray) else jnp
    identity, quarter = np.eye(2, dtype=angle.dtype), _QUARTER.astype(angle.dtype)
    return xp.cos(angle) * identity + xp.sin(angle) * quarter


def normals(u: AnyArray) -> AnyArray:
    """The normals of a unit vector as rows: one in the plane, (1, 2), two in space, (2, 3).

    In space n1 x n2 = u (Duff et al., "Building an Orthonormal Basis, Revisited", 2017).
    """
    if u.shape == (2,):
        return quarter_turn(u)[None]
    xp: Any = np if isinstance(u, np.ndarray) else jnp
    # One of two branches of the formula, so that it is never near its singularity u[2] = -sign.
    sign = xp.where(u[2] >= 0, 1, -1).astype(u.dtype)
    a = -1 / (sign + u[2])
    b = u[0] * u[1] * a
    n1 = xp.stack([1 + sign * u[0] * u[0] * a, sign * b, -sign * u[0]])
    return xp.stack([n1, xp.stack([b, sign + u[1] * u[1] * a, -u[1]])])
