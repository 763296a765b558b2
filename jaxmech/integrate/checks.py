"""Checks of the law of motion in a step, and the corresponding status."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Law
from jaxmech.linalg import LDL, matvec, max_abs
from jaxmech.status import Status
from jaxmech.system import EquationsOfMotion, Params

Failures = list[tuple[Array, Status | Array]]  # flags and statuses, of which the first counts


def residuals(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array]:
    """Largest |phi|, and largest |dphi/dt| and |psi|, without derivatives."""
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    system, v = scheme.system.plain, scheme.system.dynamics.speeds(q, v, t, params)
    position = system.dynamics.position_level(q, t, params)
    velocity = system.dynamics.velocity_level(q, v, t, params)
    return max_abs(position), max_abs(velocity)


def check_dependent_rows(
    eom: EquationsOfMotion, law: Law, v: Array, independent: Array, is_start: Array, is_end: Array
) -> tuple[Array, Array]:
    """Whether the rows taken as dependent make the accelerations wrong, and the status for that.

    The check applies only to such rows, at the first and the last stage of a step.
    """
    eom, law, v = jax.lax.stop_gradient((eom, law, v))
    no, eps = jnp.asarray(False), float(jnp.finfo(eom.b.dtype).eps)

    def loses_rank() -> Array:
        # Whether more rows are independent, by more than eps^(1/4) of their length, than were kept.
        # Lengths are those of A itself: in the metric of M, a light body between heavy ones makes
        # independent rows parallel to within the square root of the ratio of the masses.
        return LDL(tolerance=eps**0.5).factor(eom.A).rank > law.rank

    def check() -> tuple[Array, Array]:
        lost = jax.lax.cond(is_start, loses_rank, lambda: no)
        # Whether A qdd misses b by more than eps^(1/4) of the accelerations involved.
        miss = jnp.abs(matvec(eom.A, law.qdd) - eom.b)
        size = jnp.max(jnp.abs(law.qdd)) + jnp.max(jnp.abs(law.free))
        rows = jnp.abs(eom.A).sum(1)
        # The terms of b are squared velocities times entries of A, of which other rows of a joint
        # may have larger ones: in a steady motion, or for a row of zeros, b is their round-off.
        largest = jnp.max(rows, initial=0.0) * (size + jnp.max(v * v))
        too_much = eps**0.25 * (rows * size + jnp.abs(eom.b)) + 16 * eps * largest
        # Independent rows cannot contradict each other. The last stage lies only near the
        # constraints, so it counts only if it has more dependent rows than the first.
        contradicts = (miss > too_much).any() & (law.rank < independent.sum())
        return lost | contradicts, lost

    are_dependent = law.rank < eom.b.size
    failed, lost = jax.lax.cond(is_end & are_dependent, check, lambda: (no, no))
    code = jnp.where(lost, int(Status.ILL_CONDITIONED), int(Status.CONTRADICTORY))
    return failed, code.astype(jnp.int32)


def finite_states(
    states: tuple[Array, ...], otherwise: tuple[Array, ...]
) -> tuple[tuple[Array, ...], Bool[Array, ""]]:
    """The states with other numbers where they are not finite, and whether all are finite.

    An attempt that fails is repeated, so its NaN reaches no result, and native code would have to
    compute all products with zero that follow: the law of motion of four spatial bodies has four
    times as many operations then. Of numbers that are known to be finite they are folded.
    """
    flags = [jnp.isfinite(x) for x in states]
    numbers = zip(flags, states, otherwise, strict=True)
    finite = tuple(jnp.where(flag, x, y) for flag, x, y in numbers)
    return finite, jnp.concatenate([jnp.ravel(flag) for flag in flags]).all()


@jax.custom_jvp
def checked_states(q: Array, v: Array, is_over: Array) -> tuple[Array, Array]:
    """The states if they are finite or the run is over, otherwise NaN, as are their derivatives.

    So a derivative shows what is not finite in a step that is made again, and native code need not
    compute products with zero for this purpose.
    """
    is_good = _is_good(q, v, is_over)
    return jnp.where(is_good, q, jnp.nan), jnp.where(is_good, v, jnp.nan)


@checked_states.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
    dtype = primals[0].dtype
    unit = jnp.where(_is_good(*primals), jnp.ones((), dtype), jnp.asarray(jnp.nan, dtype))
    return checked_states(*primals), (tangents[0] * unit, tangents[1] * unit)


def _is_good(q: Array, v: Array, is_over: Array) -> Array:
    return jnp.concatenate([jnp.isfinite(q), jnp.isfinite(v)]).all() | is_over


def failures(
    eom: EquationsOfMotion, law: Law, v: Array, independent: Array, is_start: Array,
    is_end: Array, complete: Array | None = None,
) -> Failures:  # fmt: skip
    """The possible failures of a law of motion, and of a chart that should `complete` its state."""
    listed: Failures = [(~law.definite, Status.SINGULAR_MASS)]
    checks = (law.converged, Status.NONIDEAL_FAILED), (complete, Status.PROJECTION_FAILED)
    listed += [(~good.all(), status) for good, status in checks if good is not None]
    return [*listed, check_dependent_rows(eom, law, v, independent, is_start, is_end)]


def first_that_holds(*cases: tuple[Array, Status | Array]) -> Int[Array, ""]:
    """The status of the first condition that holds, else OK."""
    status = jnp.asarray(Status.OK, jnp.int32)
    for condition, code in reversed(cases):
        status = jnp.where(condition, jnp.asarray(code, jnp.int32), status)
    return status
