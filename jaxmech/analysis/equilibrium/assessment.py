"""Stability of an equilibrium or a steady motion, from its linearization."""

from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.stability.linearization import Linearization, is_negligible
from jaxmech.analysis.stability.spectrum import eigenvalues, null, on_host
from jaxmech.utils.arrays import HostArray

AXIS = 0.45  # power of round-off of a real part that is zero, also when repeated


class Stability(IntEnum):
    """Stability according to the linear equations; zero eigenvalues are counted apart.

    Example:
        >>> print(Stability.MARGINAL.meaning)
        all eigenvalues are on the imaginary axis or left of it; nonlinear terms decide
    """

    UNKNOWN = -1
    UNSTABLE = 0
    MARGINAL = 1
    STABLE = 2
    ASYMPTOTICALLY_STABLE = 3

    @property
    def meaning(self) -> str:
        """The meaning as one sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Stability.UNKNOWN: (
        "the linear equations change with time, or are not finite; if periodic, use `floquet`"
    ),
    Stability.UNSTABLE: "an eigenvalue has a positive real part",
    Stability.MARGINAL: (
        "all eigenvalues are on the imaginary axis or left of it; nonlinear terms decide"
    ),
    Stability.STABLE: "the potential energy has a strict minimum (Lagrange and Dirichlet)",
    Stability.ASYMPTOTICALLY_STABLE: "all eigenvalues but zeros have negative real parts",
}


class Assessment(NamedTuple):
    """The stability of a motion, in numbers.

    Attributes:
        stability: a `Stability`.
        index: number of negative eigenvalues of the projected Hessian (the symmetric part of the
            reduced stiffness); -1 where a nonholonomic constraint makes it rectangular.
        static: the index; where circulatory forces make the reduced stiffness unsymmetric, 1 or 0
            for a negative determinant or another. It changes where static equilibria branch.
        unstable: number of eigenvalues with a positive real part.
        zeros: number of zero eigenvalues.
        growth: the largest real part of an eigenvalue [1/s].
        free_directions: orthonormal directions in x without stiffness, then zero columns, (k, k).
    """

    stability: Any
    index: Any
    static: Any
    unstable: Any
    zeros: Any
    growth: Any
    free_directions: Any


def assess(lin: Linearization) -> Assessment:
    """The assessment of the linearization of one motion; it has no derivative.

    Example:
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> up = jm.analysis.linearize(model.system, [0.0, 1.0], [0.0, 0.0], model.params)
        >>> Stability(int(assess(up).stability)), int(assess(up).index)
        (<Stability.UNSTABLE: 0>, 1)
    """
    full, small, k = lin.full, lin.reduced, lin.reduced.Z.shape[1]
    A = jnp.where(is_negligible(lin.unsteadiness), lin.space.A, jnp.nan)
    # The size relative to which the reduced stiffness counts as zero.
    stiffness = sum(jnp.max(jnp.abs(x), initial=0.0) for x in (full.K, full.geometric))
    matrices = jax.lax.stop_gradient((A, small.M, small.C, small.K, stiffness, lin.rate))
    count, growth = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), A.dtype)
    free = jax.ShapeDtypeStruct((k, k), A.dtype)
    shapes = Assessment(count, count, count, count, count, growth, free)
    return on_host(_assess, shapes, *matrices, vmap_method="sequential")


def _assess(
    A: HostArray, M: HostArray, C: HostArray, K: HostArray, stiffness: HostArray, rate: HostArray
) -> Assessment:
    k, negligible = K.shape[1], null(A.dtype)
    free = np.zeros((k, k), A.dtype)

    def assessment(*counts: int, growth: float) -> Assessment:
        return Assessment(*np.array(counts, np.int32), np.asarray(growth, A.dtype), free)  # type: ignore[call-arg]

    if not np.isfinite(A).all():
        return assessment(Stability.UNKNOWN, -1, -1, 0, 0, growth=np.nan)
    values, zero = eigenvalues(A, M, K, float(rate))
    nonzero = values[~zero]
    # Round-off of the largest eigenvalue moves a slow one less, even if this one is repeated.
    size = np.sqrt(np.abs(nonzero) * np.abs(values).max(initial=0.0))
    axis = float(np.finfo(A.dtype).eps) ** AXIS * size
    unstable = int((nonzero.real > axis).sum())
    growth = float(values.real.max(initial=-np.inf))
    index, static, definite = -1, -1, False
    if K.shape[0] == k:
        curvatures, V = np.linalg.eigh((K + K.T) / 2)
        flat = np.abs(curvatures) <= negligible * stiffness
        index = int(((curvatures < 0) & ~flat).sum())
        free[:, : flat.sum()] = V[:, flat]
        definite = bool((curvatures[~flat] > 0).all()) and not flat.any()
        # A minimum of the potential energy proves stability only if the other forces are gyroscopic
        # or dissipative: no skew part of K (circulatory forces), and no negative damping.
        scale = negligible * max(float(stiffness), 1e-300)
        symmetric = bool(np.abs(K - K.T).max(initial=0.0) <= scale)
        definite &= symmetric
        static = index if symmetric else int(np.linalg.det(K) < 0)
        dissipation = np.linalg.eigvalsh((C + C.T) / 2) if k else np.zeros(0)
        definite &= bool(dissipation.min(initial=0.0) >= -negligible * np.abs(C).max(initial=0.0))
    stability = Stability.MARGINAL
    if unstable:
        stability = Stability.UNSTABLE
    elif nonzero.size and (nonzero.real < -axis).all():
        stability = Stability.ASYMPTOTICALLY_STABLE
    elif definite:
        stability = Stability.STABLE
    return assessment(stability, index, static, unstable, int(zero.sum()), growth=growth)
