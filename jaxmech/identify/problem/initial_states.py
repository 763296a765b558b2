"""The directions in which the initial state of a recording may change in a fit.

Recorded are start variables and their rates (`jaxmech.assemble.begin`). With a `start` they may
change in every direction, without one along the constraints.
"""

import numpy as np
from jaxtyping import Array

from jaxmech.assemble import Start, begin
from jaxmech.stabilization import constraint_jacobians
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of


def bases(
    system: System, start: Start | None, q0: Array, v0: Array, t: Array, params: Params
) -> tuple[np.ndarray, np.ndarray]:
    """The directions in which start variables and their rates may change, (k, i) and (k, j)."""
    if start is not None:
        whole = np.eye(q0.size)
        return whole, whole
    along_q, along_v = (_null_space(np.asarray(A)) for A in _rows(system, q0, v0, t, params))
    return along_q, along_v


@jit_of("system")
def _rows(system: System, q0: Array, v0: Array, t: Array, params: Params) -> tuple[Array, Array]:
    q, v = begin(system, None, q0, v0, t, params)
    return constraint_jacobians(system, q, v, t, params)


def _null_space(A: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the directions that A does not see, (n, n - rank)."""
    if not A.shape[0]:
        return np.eye(A.shape[1])
    _, sizes, Vt = np.linalg.svd(A)
    rank = int((sizes > 1e-8 * sizes.max(initial=0.0)).sum())
    return Vt[rank:].T
