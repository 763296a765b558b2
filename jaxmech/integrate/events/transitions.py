"""The state after the transition of an event: jumps and rebounds, within the constraints."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.event import Event
from jaxmech.integrate.scheme import Scheme
from jaxmech.linalg import LDL, metric
from jaxmech.state import metric_mass
from jaxmech.status import Status
from jaxmech.system import Params, constraint_jacobians, motion_share, near, rate, sizes_of_levels
from jaxmech.utils.probing import depends_on

_ITERATIONS = 2  # for velocities on constraints that are not linear in them


class After(NamedTuple):
    """A state after an event."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    status: Int[Array, ""]
    active: Bool[Array, " C"]  # constraints with a switch that are on
    outcome: Float[Array, " D"]  # decisions about gaps
    speeds: Float[Array, " n"]  # the largest speeds so far
    multipliers: Float[Array, " G"] | None = None  # of the gaps, if it was decided about them

    @staticmethod
    def unchanged(q: Array, v: Array, active: Array, words: int, speeds: Array) -> "After":
        """The state at an event that leaves it as it is."""
        ok = jnp.asarray(int(Status.OK), jnp.int32)
        return After(q, v, ok, active, jnp.zeros(words, q.dtype), speeds)


def after_transition(
    scheme: Scheme, event: Event, q: Array, v: Array, t: Array, plain: Params, old: Params,
    new: Params, extents: Float[Array, " n"] | None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """q and v after the transition of an event, and a status.

    `plain` are the parameters of the user, `old` and `new` those with the switches before and after
    it. Given extents, the status tells whether the state satisfies the constraints.
    """
    transition, system = event.transition, scheme.system
    assert transition is not None
    if transition.fn is not None:
        q, v = _new_state(event, transition.fn(q, v, t, plain), q, v)
    if transition.restitution is not None:
        restitution = transition.restitution
        e = jnp.asarray(restitution(plain) if callable(restitution) else restitution, q.dtype)
        v = _rebound(scheme, event, e, q, v, t, plain, old)
    A_position, A_velocity = constraint_jacobians(system, q, v, t, new)
    if system.velocities:
        A_position = system.dynamics.position_jacobian(q, t, new)
    status = jnp.asarray(int(Status.OK), jnp.int32)
    if extents is not None:
        level, share = system.dynamics.position_level(q, t, new), motion_share(q.dtype)
        sizes = sizes_of_levels(system, q, v, t, new)[0]
        met = near(level, A_position, q, extents, share, sizes)
        status = jnp.where(met, status, int(Status.NOT_ON_CONSTRAINT)).astype(jnp.int32)
    if len(A_velocity):
        mass = metric(metric_mass(system, q, v, t, new), A_velocity, LDL())
        for _ in range(_ITERATIONS):
            v = v - mass.min_norm_solve(system.dynamics.velocity_level(q, v, t, new))[0]
    return q, v, status


def _rebound(
    scheme: Scheme, event: Event, e: Array, q: Array, v: Array, t: Array, plain: Params,
    params: Params,
) -> Array:  # fmt: skip
    # The velocities after an impact, by an impulse along dg/dq within the constraints.
    system = scheme.system

    def gap(q: Array, t: Array) -> Array:
        return event.value(q, v, t, plain)[None]

    if depends_on(lambda v: event.value(q, v, t, plain), (v,)):
        raise ValueError(
            f"Event {event.name!r} must be a gap that depends on q, t and params only, because "
            "its transition has a restitution, but it depends on v; give the jump of v by "
            "`Transition(fn)`."
        )
    A = constraint_jacobians(system, q, v, t, params)[1]
    # The impulse and those of the joints at once, so that the joints hold after the impact.
    slope, speeds = jax.jacfwd(gap)(q, t), system.dynamics.speeds(q, v, t, params)
    slope = system.dynamics.kinematics.rows(slope, q, t, params)
    rows = jnp.concatenate([A, slope])
    wrong = jnp.concatenate([
        system.dynamics.velocity_level(q, v, t, params), (1 + e) * rate(gap, q, speeds, t)
    ])  # fmt: skip
    mass = metric(metric_mass(system, q, v, t, params), rows, LDL())
    return v - mass.min_norm_solve(wrong)[0]


def _new_state(event: Event, result: Any, q: Array, v: Array) -> tuple[Array, Array]:
    shapes = f"{q.shape}" if q.shape == v.shape else f"{q.shape} and {v.shape}"
    requirement = f"The transition of event {event.name!r} must return q and v of shape {shapes}"
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ValueError(f"{requirement}, but returned {result!r}.")
    new_q, new_v = (jnp.asarray(x) for x in result)
    for x, old in ((new_q, q), (new_v, v)):
        if x.shape != old.shape:
            raise ValueError(f"{requirement}, but returned shape {x.shape}.")
    return new_q.astype(q.dtype), new_v.astype(q.dtype)
