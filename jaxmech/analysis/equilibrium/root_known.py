"""The search of `root` for one start whose numbers are known, on the host.

Compiled functions evaluate the equations and their Jacobian, numpy does the algebra. As one program
the search holds a factorization and 30 evaluations of the equations.
"""

from collections.abc import Callable

import numpy as np

from jaxmech.analysis.equilibrium.root import DAMPING, ITERATIONS, LENGTHS
from jaxmech.analysis.states import Numbers
from jaxmech.linalg import rows_on_host


def root_known(
    values: Callable[[Numbers], Numbers],
    linear: Callable[[Numbers], tuple[Numbers, Numbers]],
    start: Numbers,
) -> Numbers:
    """`root` for a start whose numbers are known.

    Args:
        values: the equations.
        linear: the equations and their Jacobian.
        start: shape (n,).

    Example:
        >>> def circle(z):
        ...     return np.array([z @ z - 4.0, z[0] - z[1]])
        >>> def slopes(z):
        ...     return np.array([2 * z, [1.0, -1.0]])
        >>> z = root_known(circle, lambda z: (circle(z), slopes(z)), np.array([3.0, 1.0]))
        >>> print(z)
        [1.41421356 1.41421356]
    """
    with np.errstate(all="ignore"):
        z, size = start, _missed(values(start))
        for _ in range(ITERATIONS):
            if not size > 0:
                break
            trials = _trials(z, size, *linear(z))
            sizes = [_missed(values(trial)) for trial in trials]
            best = int(np.argmin(sizes))
            if not sizes[best] < size:
                break
            z, size = trials[best], sizes[best]
        return z


def _trials(z: Numbers, size: float, F: Numbers, J: Numbers) -> list[Numbers]:
    """Parts of the steps for all dampings."""
    trials = []
    for damping in np.array(DAMPING, z.dtype):
        damped = np.sqrt(damping * size, dtype=z.dtype) * np.eye(len(F), dtype=z.dtype)
        rows = rows_on_host(np.concatenate([J, damped], axis=1))
        step = rows.min_norm_solve(F)[0][: z.size]
        trials += [z - length * step for length in np.array(LENGTHS, z.dtype)]
    return trials


def _missed(value: Numbers) -> float:
    return float(np.sqrt((value * value).sum())) if np.isfinite(value).all() else float("inf")
