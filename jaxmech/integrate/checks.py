"""Checks of the law of motion in a step, and the corresponding status."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.contacts import touching_at_start
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Law
from jaxmech.linalg import LDL, matvec, max_abs
from jaxmech.status import Status
from jaxmech.system import EquationsOfMotion, Params, finite_extents, levels_are_met, levels_of


def begin_run(
    scheme: Scheme, event_set: EventSet, q: Array, v: Array, t: Array, ahead: Array,
    params: Params, times: Array,
) -> tuple[Params, EventState, Int[Array, ""], Float[Array, " n"]]:  # fmt: skip
    """Parameters with switches, events, whether a run can begin, and the extents of coordinates.

    Time goes on in the direction of `ahead`; `times` is whether the save times are in order. The
    extents are those with all constraints switched on.
    """
    if event_set.gaps:

        def start(carry: None, _: None) -> tuple[None, tuple[EventState, Array]]:
            events, status = event_set.start(scheme, q, v, t, params)
            # Native code folds products with zero where NaN would show.
            is_finite = jnp.isfinite(q.sum() + v.sum())
            status = jnp.where(is_finite, status, jnp.asarray(Status.NONFINITE, jnp.int32))
            return carry, (events, status)

        # As a loop that runs once it is native code as a whole, and not loop by loop, with XLA
        # between them.
        _, once = jax.lax.scan(start, None, None, length=1)
        events, of_contact = jax.tree.map(lambda x: x[0], once)
    else:
        events, of_contact = event_set.start(scheme, q, v, t, params)
    all_params = event_set.params(params, jnp.ones_like(events.active))
    extents, is_finite = finite_extents(scheme.system, q, v, t, all_params)
    user_params, params = params, event_set.params(params, events.active)
    if event_set.has_transitions:
        events = touching_at_start(event_set, scheme, events, q, v, t, ahead, params)
    levels = levels_of(scheme.system, q, v, t, params)
    consistent = levels_are_met(scheme.system, levels, (q, v, t, params), extents)
    # An infinite Jacobian would make `near` true, since every level is below infinity.
    slopes = jnp.stack([jnp.abs(A).sum() for A in (levels.A_position, levels.A_velocity)])
    numbers = jnp.concatenate([q, v, levels.position, levels.velocity, slopes])
    status = jnp.where(consistent, Status.OK, Status.INCONSISTENT)
    is_finite &= times & jnp.isfinite(numbers).all()
    status = jnp.where(is_finite, status, Status.NONFINITE).astype(jnp.int32)
    if not event_set:
        return params, events, status, extents
    is_apart = event_set.contact.are_met(scheme.system, q, t, user_params, events.active, extents)
    status = jnp.where(is_apart, status, jnp.asarray(Status.INCONSISTENT, jnp.int32))
    status = jnp.where(status == Status.OK, of_contact, status)
    lawful = event_set.gaps.are_lawful(event_set.plain(params), q.dtype)
    status = jnp.where(lawful, status, jnp.asarray(Status.CONTACT_VALUE, jnp.int32))
    bad = (status == Status.OK) & jnp.isnan(events.values).any()
    status = jnp.where(bad, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), status)
    return params, events, status, extents


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
    no = jnp.asarray(False)

    def check() -> tuple[Array, Array]:
        lost = jax.lax.cond(is_start, lambda: _lost_rank(eom.A, law.rank), lambda: no)
        return lost | _contradicts(eom, law, v, independent), lost

    are_dependent = law.rank < eom.b.size
    failed, lost = jax.lax.cond(is_end & are_dependent, check, lambda: (no, no))
    code = jnp.where(lost, int(Status.ILL_CONDITIONED), int(Status.CONTRADICTORY))
    return failed, code.astype(jnp.int32)


def _lost_rank(A: Array, rank: Array) -> Bool[Array, ""]:
    # Whether more rows are independent, by more than eps^(1/4) of their length, than were kept.
    # Lengths are those of A itself: in the metric of M, a light body between heavy ones makes
    # independent rows parallel to within the square root of the ratio of the masses.
    squared = float(jnp.finfo(A.dtype).eps) ** 0.5
    return LDL(tolerance=squared).factor(A).rank > rank


def _contradicts(eom: EquationsOfMotion, law: Law, v: Array, independent: Array) -> Bool[Array, ""]:
    # Whether A qdd misses b by more than eps^(1/4) of the accelerations involved.
    tolerance = float(jnp.finfo(eom.b.dtype).eps) ** 0.25
    miss = jnp.abs(matvec(eom.A, law.qdd) - eom.b)
    size = jnp.max(jnp.abs(law.qdd)) + jnp.max(jnp.abs(law.free))
    rows = jnp.abs(eom.A).sum(1)
    # The terms of b are squared velocities times entries of A, of which other rows of a joint may
    # have larger ones: in a steady motion, or for a row of zeros, b is their round-off.
    largest = jnp.max(rows, initial=0.0) * (size + jnp.max(v * v))
    rounding = 16 * float(jnp.finfo(eom.b.dtype).eps) * largest
    too_much = tolerance * (rows * size + jnp.abs(eom.b)) + rounding
    # Independent rows cannot contradict each other. The last stage lies only near the constraints,
    # so it counts only if it has more dependent rows than the first.
    return (miss > too_much).any() & (law.rank < independent.sum())


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


def unless(good: Array | None, status: Status) -> list[tuple[Array, Status]]:
    """The status of a failed check; empty for a law without the check."""
    return [] if good is None else [(~good.all(), status)]


def first_that_holds(*cases: tuple[Array, Status | Array]) -> Int[Array, ""]:
    """The status of the first condition that holds, else OK."""
    status = jnp.asarray(Status.OK, jnp.int32)
    for condition, code in reversed(cases):
        status = jnp.where(condition, jnp.asarray(code, jnp.int32), status)
    return status
