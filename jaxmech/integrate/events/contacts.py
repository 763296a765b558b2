"""Functions that are zero, as the gap of bodies that touch, judged by their rates.

A gap that is zero to within round-off has no sign to compare. Where its rate takes it to the other
side, which the impact of other bodies can bring about in an instant, its event occurs at once.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.rounding import rounded
from jaxmech.integrate.scheme import Scheme
from jaxmech.system import Params


class Contacts(eqx.Module):
    """The functions of q and t, whose rates are known, of E events at a state; NaN for others."""

    g: Float[Array, " E"]  # the functions
    r: Float[Array, " E"]  # their rates in the direction of the run
    zero: Float[Array, " E"]  # size of a function that counts as zero
    still: Float[Array, " E"]  # size of a rate that counts as zero

    @staticmethod
    def of(
        event_set: EventSet, scheme: Scheme, q: Array, v: Array, t: Array, ahead: Array,
        params: Params, speeds: Array, accuracy: Array, opens: Bool[Array, " G"] | None = None,
    ) -> "Contacts":  # fmt: skip
        """The functions at a state of a run whose time changes with the sign of `ahead`.

        Round-off of q and v is that of the largest `speeds` so far; `accuracy` is that of t. Gaps
        that a jump `opens` are about to do so.
        """
        plain_params = event_set.plain(params)
        is_plain = event_set.of_positions(q, v, t, plain_params)
        velocities = scheme.system.dynamics.speeds(q, v, t, params)

        def values(q: Array, t: Array) -> Array:
            return event_set.functions(q, v, t, plain_params, is_plain)[np.flatnonzero(is_plain)]

        g, zero, still, _ = rounded(values, q, t, speeds, accuracy)
        rate = jax.jvp(values, (q, t), (jnp.sign(ahead) * velocities, jnp.sign(ahead)))[1]
        rows = jnp.pad(jnp.stack([g, rate, zero, still]), ((0, 0), (0, 1)), constant_values=jnp.nan)
        rows = rows[:, np.where(is_plain, np.cumsum(is_plain) - 1, -1)]
        if opens is not None and opens.size:
            first = len(event_set.own_events) + opens.size
            flags = jnp.pad(opens, (first, len(is_plain) - first - opens.size))
            rows = jnp.where(flags, np.array([[0.0], [-1.0], [0.0], [0.0]]), rows)
        return Contacts(*jax.lax.stop_gradient(rows.astype(q.dtype)))

    def touching(self, signs: Int[Array, " E"]) -> Bool[Array, " E"]:
        """Flags of the functions that are zero, or beyond it by an error, on the side of a sign."""
        return (signs != 0) & (signs * self.g <= self.zero)

    def closing(self, signs: Int[Array, " E"]) -> Bool[Array, " E"]:
        """Flags of those of them whose rate takes them to the other side."""
        return self.touching(signs) & (signs * self.r < -self.still)

    def signs(
        self, event_set: EventSet, signs: Int[Array, " E"], at_start: bool
    ) -> Int[Array, " E"]:
        """The signs, where those that are unknown and of zeros are decided.

        A contact that touches is on the side from which it can close. At the start so are impacts,
        whatever has led to them; later also other functions that are about to cross zero.
        """
        side = -jnp.asarray([event.direction for event in event_set.events], signs.dtype)
        presses = event_set.flags([event.is_contact for event in event_set.events])
        # Contacts of both sides: a gap is positive while bodies are apart.
        side = jnp.where(presses & (side == 0), 1, side)
        is_zero = jnp.abs(self.g) <= self.zero
        if at_start:
            return jnp.where(is_zero & presses, side, signs).astype(signs.dtype)
        leaves = presses | (side * self.r < -self.still)
        return jnp.where((signs == 0) & is_zero & leaves, side, signs).astype(signs.dtype)


def touching_at_start(
    event_set: EventSet, scheme: Scheme, events: EventState, q: Array, v: Array, t: Array,
    ahead: Array, params: Params,
) -> EventState:  # fmt: skip
    """The events at the start of a run, which bodies may begin in contact."""
    zero = jnp.zeros_like(t)
    contacts = Contacts.of(event_set, scheme, q, v, t, ahead, params, events.speeds, zero)
    signs = contacts.signs(event_set, events.signs, at_start=True)
    signs = jnp.where(event_set.enabled(events.active), signs, events.signs)
    presses = event_set.flags([event.is_contact for event in event_set.events])
    due = contacts.closing(signs) & presses & event_set.allowed(signs, events.active)
    return replace(events, signs=signs, due=due.any())
