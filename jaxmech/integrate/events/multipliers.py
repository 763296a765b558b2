"""What the functions of the events of gaps and frictions read: multipliers, reserves and slips."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.events.coulomb import norm, pairs_of, with_pairs
from jaxmech.integrate.events.friction import (
    TURNED,
    Rubbing,
    by_slip,
    directions_of,
    discs_of,
    least_norm,
    load_margin,
    pressing,
)
from jaxmech.integrate.events.gaps import Gaps
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.switches import plain, with_shared_rows
from jaxmech.system import Params


def loads(
    gaps: Gaps, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " E"]:
    """The functions of all events of contacts at a state, but for the gaps themselves.

    They are the multipliers of gaps, what frictions that stick could still hold, and the speeds of
    those that slide; zero where nothing acts.
    """
    count = gaps.equations
    if not gaps.frictions:
        # The law is evaluated once more only where a gap is closed.
        closed = partial(_of_closed, gaps, scheme, q, v, t, params)
        return scheme.if_closed(params, count, closed, lambda: jnp.zeros(count, q.dtype))
    system, frictions, own = scheme.system, gaps.frictions, len(gaps.frictions)
    acts, discs = params.active[-len(gaps.switches) :][:count], discs_of(frictions)

    def of_law() -> Array:
        eom, law = scheme.law(q, v, t, params)
        multipliers = law.multipliers
        rubbing = Rubbing.at(frictions, params, multipliers, count)
        values = jnp.concatenate([multipliers[-count:-own], rubbing.reserves(discs)])
        if len(multipliers) == 1 or gaps.apart:
            return values
        redundant = jnp.asarray(True) if law.independent is None else ~law.independent[-count:]
        # What presses where bodies slide has the multipliers of the law, of minimum norm.
        presses = (pressing(frictions, count - own, q.dtype) > 0) & ~rubbing.sticks[:, None]
        presses = jnp.pad(presses.any(0) | ~rubbing.sticks.any(), (0, own))

        def shared() -> Array:
            smallest = least_norm(eom.A, multipliers)

            def held() -> Array:
                found = load_margin(frictions, system, eom, smallest, (q, v, t, params))
                return found.value * found.units

            alone = smallest[-count:]
            margins = jax.lax.cond(rubbing.sticks.any(), held, lambda: alone)
            return jnp.where(presses, alone, margins)

        return jax.lax.cond((acts & redundant).any(), shared, lambda: values)

    # Where no gap is closed and nothing sticks, speeds are all that matters.
    values = jax.lax.cond(acts.any(), of_law, lambda: jnp.zeros(count, q.dtype))
    speeds = system.dynamics.speeds(q, v, t, params)
    slips = jnp.stack([f.constraint.fn(q, speeds, t, plain(params)) for f in frictions])
    along = directions_of(frictions, params, q.dtype) * slips
    if discs:
        pairs = pairs_of(along, discs).sum(1) - TURNED * norm(pairs_of(slips, discs))
        along = with_pairs(along, discs, pairs[:, None])
    by_event = [by_slip(frictions, x) for x in (values[-own:], along)]
    return jnp.concatenate([values[:-own], *by_event])


def _of_closed(
    gaps: Gaps, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " G"]:
    """The multipliers of the gaps, by the law in which gaps share rows."""
    slots = np.array(gaps.slots)
    closed = params.active[-len(slots) :]
    shared = replace(scheme, system=with_shared_rows(scheme.system, len(slots)))
    members = slots[None] == np.arange(slots.max() + 1)[:, None]
    pushes = _smallest(shared, q, v, t, params, (members & closed[None]).any(1))
    earlier = (slots[:, None] == slots[None]) & np.tri(len(slots), k=-1, dtype=bool)
    is_first = closed & ~(earlier & closed[None]).any(1)
    return jnp.where(is_first, jnp.stack([pushes[slot] for slot in gaps.slots]), 0.0)


def _smallest(
    scheme: Scheme, q: Array, v: Array, t: Array, params: Params, closed: Bool[Array, " G"]
) -> Float[Array, " G"]:
    """The multipliers of the last rows.

    They have minimum norm if any of those that are `closed` depends on other rows.
    """
    eom, law = scheme.law(q, v, t, params)
    count = len(closed)

    def smallest() -> Array:
        return least_norm(eom.A, law.multipliers)[-count:]

    if law.independent is None:
        return smallest()
    pushes = law.multipliers[-count:]
    if len(law.multipliers) > 1:
        is_redundant = (closed & ~law.independent[-count:]).any()
        pushes = jax.lax.cond(is_redundant, smallest, lambda: pushes)
    return pushes
