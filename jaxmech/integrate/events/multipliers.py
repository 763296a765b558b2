"""The multipliers of gaps, which tell when they open, and what frictions need to know."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.events.friction import Rubbing
from jaxmech.integrate.events.gaps import Gaps
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.switches import plain, with_shared_rows
from jaxmech.linalg import LDL, matvec
from jaxmech.system import Params


class GapMultipliers(NamedTuple):
    """What the functions of the events of gaps and frictions read."""

    multipliers: dict[str, Array]
    rubbing: Rubbing | None = None  # of frictions
    slips: Array | None = None  # their velocities

    @staticmethod
    def by_name(gaps: Gaps, pushes: Array) -> "GapMultipliers":
        """Those of gaps alone, the first of the `pushes`."""
        names = gaps.switches[: gaps.count]
        return GapMultipliers({name: pushes[k][None] for k, name in enumerate(names)})

    @staticmethod
    def at(
        gaps: Gaps, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
    ) -> "GapMultipliers":
        """Those at a state, zero of open gaps."""
        count = gaps.equations
        if not gaps.frictions:
            # The law is evaluated once more only where a gap is closed.
            is_closed, zeros = params.active[-count:].any(), jnp.zeros(count, q.dtype)
            pushes = jax.lax.cond(
                is_closed, lambda: _of_closed(gaps, scheme, q, v, t, params), lambda: zeros
            )
            return GapMultipliers.by_name(gaps, pushes)
        closed = params.active[-len(gaps.switches) :][:count]
        pushes, multipliers = _smallest(scheme, q, v, t, params, closed)
        frictions, user = gaps.frictions, plain(params)
        rubbing = Rubbing.at(frictions, params, pushes, multipliers)
        speeds = scheme.system.dynamics.speeds(q, v, t, params)
        slips = [f.constraint.fn(q, speeds, t, user) for f in frictions]
        named = GapMultipliers.by_name(gaps, pushes)
        return named._replace(rubbing=rubbing, slips=jnp.stack(slips))


def _of_closed(
    gaps: Gaps, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " G"]:
    """The multipliers of the gaps, by the law in which gaps share rows."""
    slots = np.array(gaps.slots)
    closed = params.active[-len(slots) :]
    shared = replace(scheme, system=with_shared_rows(scheme.system, len(slots)))
    rows = jnp.stack([closed[slots == slot].any() for slot in range(slots.max() + 1)])
    pushes = _smallest(shared, q, v, t, params, rows)[0][slots]
    before = np.array([np.flatnonzero(slots == slot)[0] for slot in slots])
    is_first = (before == np.arange(len(slots))) | ~closed[before]
    return jnp.where(closed & is_first, pushes, 0.0)


def _smallest(
    scheme: Scheme, q: Array, v: Array, t: Array, params: Params, closed: Bool[Array, " G"]
) -> tuple[Float[Array, " G"], Float[Array, " m"]]:
    """The multipliers of the last rows, and of all.

    The last ones have minimum norm if any of them that is `closed` depends on other rows.
    """
    eom, law = scheme.law(q, v, t, params)
    count = len(closed)

    def smallest() -> Array:
        forces = matvec(eom.A.T, law.multipliers)
        return LDL().factor(eom.A.T).min_norm_solve(forces)[0][-count:]

    if law.independent is None:
        return smallest(), law.multipliers
    pushes = law.multipliers[-count:]
    if len(law.multipliers) > 1:
        is_redundant = (closed & ~law.independent[-count:]).any()
        pushes = jax.lax.cond(is_redundant, smallest, lambda: pushes)
    return pushes, law.multipliers
