"""`Equilibrium`: a state of rest or of steady motion, with its stability from its linearization."""

from enum import IntEnum
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.analysis.stability.linearization import Linearization, is_negligible
from jaxmech.analysis.stability.spectrum import null, on_host, spectrum_of
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import is_known

AXIS = 0.45  # power of round-off of a real part that is zero, also when repeated


class Stability(IntEnum):
    """Stability according to the linear equations; zero eigenvalues are counted apart."""

    UNKNOWN = -1  # the linear equations change with time, or are not finite
    UNSTABLE = 0  # an eigenvalue has a positive real part
    MARGINAL = 1  # all are on the imaginary axis or left of it; nonlinear terms decide
    STABLE = 2  # the potential energy has a strict minimum (Lagrange and Dirichlet)
    ASYMPTOTICALLY_STABLE = 3  # all eigenvalues but zeros have negative real parts


class Assessment(NamedTuple):
    """The stability of a motion, in numbers.

    Attributes:
        stability: a `Stability`.
        index: number of negative eigenvalues of the projected Hessian (the symmetric part of the
            reduced stiffness); -1 where a nonholonomic constraint makes it rectangular.
        unstable: number of eigenvalues with a positive real part.
        zeros: number of zero eigenvalues.
        growth: the largest real part of an eigenvalue [1/s].
    """

    stability: Any
    index: Any
    unstable: Any
    zeros: Any
    growth: Any


def assess(lin: Linearization) -> Assessment:
    """The assessment of the linearization of one motion; it has no derivative."""
    full, small = lin.full, lin.reduced
    A = jnp.where(is_negligible(lin.unsteadiness), lin.space.A, jnp.nan)
    # The size relative to which the reduced stiffness counts as zero.
    stiffness = sum(jnp.max(jnp.abs(x), initial=0.0) for x in (full.K, full.geometric))
    matrices = jax.lax.stop_gradient((A, small.M, small.C, small.K, stiffness, lin.rate))
    count, growth = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), A.dtype)
    shapes = Assessment(count, count, count, count, growth)
    return on_host(_assess, shapes, *matrices, vmap_method="sequential")


def _assess(
    A: HostArray, M: HostArray, C: HostArray, K: HostArray, stiffness: HostArray, rate: HostArray
) -> Assessment:
    k, negligible = K.shape[1], null(A.dtype)

    def assessment(*counts: int, growth: float) -> Assessment:
        return Assessment(*np.array(counts, np.int32), np.asarray(growth, A.dtype))  # type: ignore[call-arg]

    if not np.isfinite(A).all():
        return assessment(Stability.UNKNOWN, -1, 0, 0, growth=np.nan)
    found = spectrum_of(A, M, K, float(rate))
    values, zero = found.eigenvalues, found.zero
    nonzero = values[~zero]
    # Round-off of the largest eigenvalue moves a slow one less, even if this one is repeated.
    size = np.sqrt(np.abs(nonzero) * np.abs(values).max(initial=0.0))
    axis = float(np.finfo(A.dtype).eps) ** AXIS * size
    unstable = int((nonzero.real > axis).sum())
    growth = float(values.real.max(initial=-np.inf))
    index, definite = -1, False
    if K.shape[0] == k:
        curvatures = np.linalg.eigvalsh((K + K.T) / 2)
        flat = np.abs(curvatures) <= negligible * stiffness
        index = int(((curvatures < 0) & ~flat).sum())
        definite = bool((curvatures[~flat] > 0).all()) and not flat.any()
        # A minimum of the potential energy proves stability only if the other forces are gyroscopic
        # or dissipative: no skew part of K (circulatory forces), and no negative damping.
        scale = negligible * max(float(stiffness), 1e-300)
        symmetric = bool(np.abs(K - K.T).max(initial=0.0) <= scale)
        definite &= symmetric
        dissipation = np.linalg.eigvalsh((C + C.T) / 2) if k else np.zeros(0)
        definite &= bool(dissipation.min(initial=0.0) >= -negligible * np.abs(C).max(initial=0.0))
    stability = Stability.MARGINAL
    if unstable:
        stability = Stability.UNSTABLE
    elif nonzero.size and (nonzero.real < -axis).all():
        stability = Stability.ASYMPTOTICALLY_STABLE
    elif definite:
        stability = Stability.STABLE
    return assessment(stability, index, unstable, int(zero.sum()), growth=growth)


class EquilibriumStatus(IntEnum):
    """The outcome of the search for an equilibrium."""

    FOUND = 0
    UNBALANCED = 1
    UNMET = 2
    NONFINITE = 3

    @property
    def message(self) -> str:
        """A phrase that describes the outcome."""
        return _MESSAGES[self]


_MESSAGES = {
    EquilibriumStatus.FOUND: "forces are in balance and the constraints are satisfied",
    EquilibriumStatus.UNBALANCED: "forces are not in balance anywhere near the guess",
    EquilibriumStatus.UNMET: "the constraints cannot all be satisfied near the guess",
    EquilibriumStatus.NONFINITE: "the functions of the system are not finite",
}


class Equilibrium(eqx.Module):
    """A state of rest or of steady motion; under `jax.vmap` with a leading batch axis.

    Attributes:
        q: coordinates, shape (n,).
        v: velocities, shape (n,); those of the system, also where they are quasi-velocities, unlike
            `reactions` and `linearization`, which are in the rates of the coordinates.
        multipliers: multipliers of minimum norm by constraint name, shape (k,).
        reactions: by constraint name, A_k^T lambda_k, the generalized force on the system, (n,);
            also by `fixed x` for a coordinate x that is held.
        residual: the largest unbalanced force relative to the largest force at play, or the largest
            violation of a constraint relative to its row.
        status: an `EquilibriumStatus`, 0 if the equilibrium was found.
        linearization: the linear equations about the equilibrium, for `modes`.
        assessment: the stability in numbers.
        coordinates: names of the coordinates.
        states: names of the states of first order, the last entries of v.
        velocities: names of all entries of v.
    """

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    multipliers: dict[str, Float[Array, " _"]]
    reactions: dict[str, Float[Array, " n"]]
    residual: Float[Array, ""]
    status: Int[Array, ""]
    linearization: Linearization
    assessment: Assessment
    coordinates: tuple[str, ...] = eqx.field(static=True)
    states: tuple[str, ...] = eqx.field(static=True, default=())
    velocities: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def converged(self) -> Bool[Array, "..."]:
        """Whether the equilibrium was found."""
        return self.status == EquilibriumStatus.FOUND

    @property
    def stability(self) -> Int[Array, "..."]:
        """The stability, a `Stability`."""
        return self.assessment.stability

    @property
    def index(self) -> Int[Array, "..."]:
        """Number of negative eigenvalues of the projected Hessian of the energy; -1 if it has none.

        In a steady motion the Hessian is that of the comoving frame, with the given rates kept.
        With a nonholonomic constraint there is no such Hessian.
        """
        return self.assessment.index

    def __repr__(self) -> str:
        is_array = isinstance(self.q, jax.Array | np.ndarray)
        if not is_array or not is_known(self.q):
            return f"Equilibrium(coordinates={self.coordinates}, without values)"
        if self.q.ndim != 1:
            count = int(np.sum(self.converged))
            return f"Equilibrium: {self.q.shape[:-1]} of them, {count} found"
        return "\n".join(_card(self))


def _card(equilibrium: Equilibrium) -> list[str]:
    mechanical = len(equilibrium.coordinates) - len(equilibrium.states)
    count = len(equilibrium.velocities) - len(equilibrium.states)
    is_motion = bool(np.any(np.asarray(equilibrium.v)[:count]))
    rates = dict(zip(equilibrium.velocities, equilibrium.v, strict=True))
    verdict = Stability(int(equilibrium.stability)).name
    title = "in steady motion" if is_motion else "at rest"
    lines = [f"Equilibrium: {title}, {verdict}"]
    integrals = zip(equilibrium.coordinates[mechanical:], equilibrium.q[mechanical:], strict=True)
    names = equilibrium.coordinates[:mechanical] + tuple(name for name, x in integrals if x)
    width = max(map(len, (*names, *rates)))
    for name in names:
        entry = equilibrium.coordinates.index(name)
        x, rate = equilibrium.q[entry], rates.pop(name, 0.0)
        line = f"  {name:<{width}}  {_short(x)}"
        lines.append(line + (f", changing at {_short(rate)} per second" if rate else ""))
    for name, x in rates.items():  # of states, and quasi-velocities
        lines.append(f"  {name:<{width}}  {_short(x)}")
    for name, force in equilibrium.reactions.items():
        size = _short(jnp.linalg.norm(force))
        lines.append(f"  {name:<{width}}  {size} (norm of the generalized force)")
    if not bool(equilibrium.converged):
        status = EquilibriumStatus(int(equilibrium.status))
        lines.append(f"  not found: {status.message} (residual {float(equilibrium.residual):.2g})")
    return lines


def _short(x: Array | float) -> str:
    return f"{0.0 if abs(float(x)) < 1e-12 else float(x):.6g}"
