"""The search for the events within one step: a bracket about the next of them, and its trials.

The time of an event is bracketed by false position with halved weights (the Illinois method; Dowell
and Jarratt, BIT 11, 1971, 168-174) and bisection.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import ExtremumSearch
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.step import StepInfo


class StepSearch(eqx.Module):
    """The search for the events within a step from u = 0 to u = 1."""

    base_q: Float[Array, " n"]  # the state that the trials step from
    base_v: Float[Array, " k"]
    base_u: Float[Array, ""]  # its position in the step
    q: Float[Array, " n"]  # the state at `high`
    v: Float[Array, " k"]
    values: Float[Array, " E"]  # the functions there
    info: StepInfo  # checks of the step up to there
    low: Float[Array, ""]  # no event occurs before
    high: Float[Array, ""]  # an event occurs before
    at_low: Float[Array, " E"]  # the functions at `low`, weighted
    at_high: Float[Array, " E"]  # the functions at `high`, weighted
    side: Int[Array, ""]  # the end that was moved last, 1 for `high` and -1 for `low`
    tries: Int[Array, ""]  # trials for this event so far
    u: Float[Array, ""]  # end of the next trial
    searching: Bool[Array, ""]  # whether an event is known to exist
    crossed: Bool[Array, " E"]  # events that are known to occur before `high`
    opened: Bool[Array, " E"]  # functions that were not zero at some trial from the base
    events: EventState
    count: Int[Array, ""]  # events in this step so far that changed the motion
    at_once: Int[Array, ""]  # those that have followed at the time of the last of them
    end_q: Float[Array, " n"]  # the state at the last event, before its transition
    end_v: Float[Array, " k"]
    interrupted: Bool[Array, ""]  # whether the motion changed at that event
    ends_step: Bool[Array, ""]  # whether the step ends there
    is_done: Bool[Array, ""]  # whether the step is over
    dips: ExtremumSearch

    @staticmethod
    def begin(
        event_set: EventSet, q: Array, v: Array, events: EventState, dips: ExtremumSearch,
        happens: Array,
    ) -> "StepSearch":  # fmt: skip
        """The search at the start of a step; over at once unless `happens` holds."""
        zero, unit = jnp.zeros((), q.dtype), jnp.ones((), q.dtype)
        true, false, zero_count = jnp.asarray(True), jnp.asarray(False), jnp.zeros((), jnp.int32)
        nowhere = jnp.zeros(len(event_set.events), bool)
        return StepSearch(
            base_q=q,
            base_v=v,
            base_u=zero,
            q=q,
            v=v,
            values=events.values,
            info=StepInfo(true, zero_count, zero_count, true),
            low=zero,
            high=unit,
            at_low=events.values,
            at_high=events.values,
            side=zero_count,
            tries=zero_count,
            u=dips.after(zero),
            searching=false,
            crossed=nowhere,
            opened=nowhere,
            events=events,
            count=zero_count,
            at_once=zero_count,
            end_q=q,
            end_v=v,
            interrupted=false,
            ends_step=false,
            is_done=~happens,
            dips=dips,
        )

    def narrowed(
        self, q: Array, v: Array, values: Array, info: StepInfo, crossed: Array, ends: Array,
        past: Array,
    ) -> "StepSearch":  # fmt: skip
        """The search after a trial, which `ends` the step, or may have gone `past` an event."""
        is_upper, down = ~ends & past, ~ends & ~past
        new = ends | is_upper
        q, v, new_values, info, crossed = jax.tree.map(
            lambda x, y: jnp.where(new, x, y),
            (q, v, values, info, crossed),
            (self.q, self.v, self.values, self.info, self.crossed),
        )
        # The weight of an end that stays twice in a row is halved, so that both ends move.
        again_up, again_down = is_upper & (self.side == 1), down & (self.side == -1)
        at_low = jnp.where(down, values, jnp.where(again_up, self.at_low / 2, self.at_low))
        at_high = jnp.where(is_upper, values, jnp.where(again_down, self.at_high / 2, self.at_high))
        return replace(
            self,
            q=q,
            v=v,
            values=new_values,
            info=info,
            crossed=crossed,
            at_low=at_low,
            at_high=at_high,
            low=jnp.where(down, self.u, self.low),
            high=jnp.where(new, self.u, self.high),
            side=jnp.where(is_upper, 1, jnp.where(down, -1, 0)).astype(jnp.int32),
            tries=self.tries + 1,
            searching=~ends,
        )

    def next_end(self, tolerance: Array) -> Array:
        """The end of the next trial in the bracket."""
        middle = (self.low + self.high) / 2
        # Unknown values, and those of the wrong sign beside an event that has just occurred, are
        # bisected.
        usable = (
            (self.at_low * self.at_high < 0)
            & jnp.isfinite(self.at_low)
            & jnp.isfinite(self.at_high)
        )
        share = self.at_low / jnp.where(usable, self.at_low - self.at_high, 1.0)
        roots = jnp.where(usable, self.low + (self.high - self.low) * share, middle)
        root = jnp.min(jnp.where(self.crossed, roots, jnp.inf))
        edge = 0.9 * tolerance
        inside = jnp.clip(root, self.low + edge, self.high - edge)
        # Every third trial bisects, so that no function can make the search longer than 3 log2
        # trials.
        bisect = (self.tries % 3 == 0) | ~jnp.isfinite(root) | (self.high - self.low < 2 * edge)
        return jnp.where(bisect, middle, inside)

    def restarted(
        self, q: Array, v: Array, values: Array, info: StepInfo, interrupts: Array
    ) -> "StepSearch":
        """The search after an event, whose base is a new state if the event `interrupts`."""

        def base(x: Array, y: Array) -> Array:
            return jnp.where(interrupts, x, y)

        dips = self.dips.without(interrupts)
        return replace(
            self,
            base_q=base(q, self.base_q),
            base_v=base(v, self.base_v),
            base_u=base(self.high, self.base_u),
            q=q,
            v=v,
            values=values,
            info=info,
            low=self.high,
            high=jnp.ones_like(self.high),
            at_low=values,
            at_high=values,
            side=jnp.zeros_like(self.side),
            tries=jnp.zeros_like(self.tries),
            u=dips.after(self.high),
            dips=dips,
            searching=jnp.zeros_like(self.searching),
            crossed=jnp.zeros_like(self.crossed),
            opened=self.opened & ~interrupts,
            end_q=self.q,
            end_v=self.v,
        )
