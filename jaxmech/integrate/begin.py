"""The state in which a run begins, and whether it can begin there."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.consistency import finite_extents, levels_are_met, levels_of
from jaxmech.integrate.events.contacts import touching_at_start
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.scheme import Scheme
from jaxmech.linalg import max_abs
from jaxmech.status import Status
from jaxmech.system import Params


def begin_run(
    scheme: Scheme, watch: EventSet | None, q: Array, v: Array, t: Array, ahead: Array,
    params: Params, times: Array,
) -> tuple[Params, EventState | None, Int[Array, ""], Float[Array, " n"]]:  # fmt: skip
    """Parameters with switches, events, whether a run can begin, and the extents of coordinates.

    Time goes on in the direction of `ahead`; `times` is whether the save times are in order. The
    extents are those with all constraints switched on.
    """
    if watch is None:
        extents, is_finite = finite_extents(scheme.system, q, v, t, params)
        status = _start_status(scheme, q, v, t, params, times & is_finite, extents)
        return params, None, status, extents
    events, of_gaps = watch.start(scheme, q, v, t, params)
    all_params = watch.params(params, jnp.ones_like(events.active))
    extents, is_finite = finite_extents(scheme.system, q, v, t, all_params)
    params = watch.params(params, events.active)
    if watch.has_transitions:
        events = touching_at_start(watch, scheme, events, q, v, t, ahead, params)
    status = _start_status(scheme, q, v, t, params, times & is_finite, extents)
    is_apart = watch.gaps_are_met(scheme.system, q, t, all_params, extents)
    status = jnp.where(is_apart, status, jnp.asarray(Status.INCONSISTENT, jnp.int32))
    status = jnp.where(status == Status.OK, of_gaps, status)
    bad = (status == Status.OK) & jnp.isnan(events.values).any()
    status = jnp.where(bad, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), status)
    return params, events, status, extents


def _start_status(
    scheme: Scheme, q: Array, v: Array, t: Array, params: Params, is_finite: Array,
    extents: Float[Array, " n"],
) -> Int[Array, ""]:  # fmt: skip
    levels = levels_of(scheme.system, q, v, t, params)
    consistent = levels_are_met(scheme.system, levels, (q, v, t, params), extents)
    # An infinite Jacobian would make `near` true, since every level is below infinity.
    slopes = jnp.stack([jnp.abs(A).sum() for A in (levels.A_position, levels.A_velocity)])
    is_finite &= jnp.isfinite(
        jnp.concatenate([q, v, levels.position, levels.velocity, slopes])
    ).all()
    status = jnp.where(consistent, Status.OK, Status.INCONSISTENT)
    return jnp.where(is_finite, status, Status.NONFINITE).astype(jnp.int32)


def residuals(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array]:
    """Largest |phi|, and largest |dphi/dt| and |psi|, without derivatives."""
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    system, v = scheme.system.plain, scheme.system.speeds(q, v, t, params)
    position = system.position_level(q, t, params)
    velocity = system.velocity_level(q, v, t, params)
    return max_abs(position), max_abs(velocity)
