"""`Turn`: the attitude of a body relative to the one before it, as a product of two rotations."""

from typing import NamedTuple

import numpy as np

from jaxmech.parts.dynamics.space import matmul
from jaxmech.parts.vectors import Numbers


class Turn(NamedTuple):
    """The rotation `fixed` @ `rotation` from the axes of a body to those of the body before it.

    A hinge about the third axis is a sparse `rotation`, and whatever its axis is on the bodies, the
    rotation `fixed` to it does not depend on the angle.

    Attributes:
        fixed: matrix (3, 3).
        rotation: matrix (3, 3).
    """

    fixed: Numbers
    rotation: Numbers

    def out(self, x: Numbers) -> Numbers:
        """Components along the axes of the body before, of vectors (3,) or (3, k)."""
        return _times(self.fixed, _times(self.rotation, x))

    def back(self, x: Numbers) -> Numbers:
        """Components along the axes of the body, of vectors (3,) or (3, k)."""
        return _times(self.rotation.T, _times(self.fixed.T, x))


def _times(matrix: Numbers, x: Numbers) -> Numbers:
    is_unit = isinstance(matrix, np.ndarray) and np.array_equal(matrix, np.eye(3))
    return x if is_unit else matmul(matrix, x)


def rounded(matrix: Numbers) -> Numbers:
    """A matrix of plain numbers with exact zeros and ones in place of their round-off.

    Example:
        >>> print(rounded(np.array([[1 - 1e-16, 2e-16], [0.5, 0.0]])))
        [[1.  0. ]
         [0.5 0. ]]
    """
    if not isinstance(matrix, np.ndarray):
        return matrix
    integers = np.round(matrix)
    near = np.abs(matrix - integers) < 4 * np.finfo(matrix.dtype).eps
    return np.where(near, integers, matrix)
