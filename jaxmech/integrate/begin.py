"""The state in which a run begins, and whether it can begin there."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxmech.integrate.events.contacts import touching_at_start
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.scheme import Scheme
from jaxmech.stabilization import constraint_jacobians, near, reach
from jaxmech.status import Status
from jaxmech.system import Params


def begun(
    scheme: Scheme, watch: Watch | None, q: Array, v: Array, t: Array, ahead: Array,
    params: Params, times: Array,
) -> tuple[Params, EventState | None, Int[Array, ""]]:  # fmt: skip
    """Parameters with switches, events, and whether a run can begin.

    Time goes on in the direction of `ahead`; `times` is whether the save times are in order.
    """
    if watch is None:
        return params, None, _start_status(scheme, q, v, t, params, times)
    events = watch.start(scheme, q, v, t, params)
    params = watch.params(params, events.active)
    if watch.has_transitions:
        events = touching_at_start(watch, events, q, v, t, ahead, params)
    status = _start_status(scheme, q, v, t, params, times)
    bad = (status == Status.OK) & jnp.isnan(events.values).any()
    return params, events, jnp.where(bad, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), status)


def _start_status(
    scheme: Scheme, q: Array, v: Array, t: Array, params: Params, times: Array
) -> Int[Array, ""]:
    """OK, INCONSISTENT or NONFINITE."""
    system = scheme.system
    A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
    position = system.position_level(q, t, params)
    velocity = system.velocity_level(q, v, t, params)
    consistent = near(position, A_position, q) & near(velocity, A_velocity, v)
    # An infinite Jacobian would make `near` true, since every level is below infinity.
    reached = jnp.stack([reach(A_position, q).sum(), reach(A_velocity, v).sum()])
    finite = times & jnp.isfinite(jnp.concatenate([q, v, position, velocity, reached])).all()
    status = jnp.where(consistent, Status.OK, Status.INCONSISTENT)
    return jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)


def residuals(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array]:
    """Largest |phi|, and largest |dphi/dt| and |psi|, without derivatives."""
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    position = scheme.system.position_level(q, t, params)
    velocity = scheme.system.velocity_level(q, v, t, params)
    return jnp.max(jnp.abs(position), initial=0.0), jnp.max(jnp.abs(velocity), initial=0.0)
