"""The state of an adaptive run, and its constant setting."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.derivatives.record import StepRecord
from jaxmech.integrate.error_estimate import StepErrors
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.methods.explicit_stages import EvaluatedState
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.steps import Tolerance
from jaxmech.integrate.trajectory import StepCounts
from jaxmech.status import Status
from jaxmech.system import Params


class StepEvents(eqx.Module):
    """The events in an accepted step."""

    events: EventState  # after the step; `replay` has those of this step
    happened: Bool[Array, ""]  # whether there were any events
    interrupted: Bool[Array, ""]  # whether the step ends at one
    which: Int[Array, ""]  # index of that event
    row: Int[Array, ""]  # row in which it is kept, -1 if it is not
    outcome: Float[Array, " D"]  # decisions about gaps at it
    share: Float[Array, ""]  # the fraction of the step up to it
    end: EvaluatedState  # where that part ends
    after: EvaluatedState  # from which the motion continues
    status: Int[Array, ""]  # `STOPPED` after a terminal event, or a failure

    @staticmethod
    def none(events: EventState, end: EvaluatedState, words: int) -> "StepEvents":
        """None in a step to an end, with `words` numbers for decisions about gaps."""
        no, zero = jnp.asarray(False), jnp.zeros((), jnp.int32)
        ok, unit = jnp.asarray(Status.OK, jnp.int32), jnp.ones((), end.q.dtype)
        none = jnp.zeros(words, end.q.dtype)
        return StepEvents(events, no, no, zero, zero - 1, none, unit, end, end, ok)


class RunState(eqx.Module):
    """The carry of the loop over attempts."""

    elapsed: Float[Array, ""]  # time since the start, not negative
    start: EvaluatedState
    memory: Array  # of controllers
    size: Float[Array, ""]  # of the next attempt
    error: Float[Array, ""]  # of the last step, for the controller
    is_repeat: Bool[Array, ""]  # whether the last attempt was rejected
    status: Int[Array, ""]  # a `Status`
    t_failed: Float[Array, ""]  # as in `Trajectory`
    saved: Int[Array, ""]  # index of the next save time
    counts: StepCounts
    limited: Int[Array, ""]  # steps at the limit of stability, about in a row
    free: Int[Array, ""]  # other steps in a row
    position: Float[Array, ""]  # residuals since the last save, as in `SavedStates`
    velocity: Float[Array, ""]
    rank: Int[Array, ""]  # the smallest so far
    errors: StepErrors
    events: EventState


class RunRows(eqx.Module):
    """The rows that a run writes."""

    saves: Array  # `SavedStates` at each save time, packed
    moves: StepRecord
    log: Array  # occurrences of events


class StepSpan(eqx.Module):
    """An attempted step: times since the start, its size, and whether it was accepted."""

    begin: Float[Array, ""]
    end: Float[Array, ""]
    size: Float[Array, ""]
    accepted: Bool[Array, ""]
    interrupted: Bool[Array, ""]  # by an event; a save at that time has the state after it


@dataclass(frozen=True, eq=False)
class RunSetting:
    """The inputs that stay fixed during a run.

    Attributes:
        elapsed: the save times from the start.
        span: the time from the start to the end, not negative.
        at_start: the number of save times at the start: one, or more if it is repeated.
    """

    scheme: Scheme
    tolerance: Tolerance
    t0: Array
    sign: Array
    elapsed: Array
    # Computed before the loop, which only reads single rows of the save times: they stay in memory.
    span: Array
    at_start: Array
    params: Params
    event_set: EventSet
    times: Array  # at which a step ends (K,), from the start; in order if many
    ends: Array  # the times by `sorted_ends`
    extents: Float[Array, " n"]  # of the coordinates

    @property
    def shortest(self) -> Array:
        """The size of a step below which adding it to the time no longer changes the time."""
        largest = jnp.maximum(jnp.abs(self.t0), jnp.abs(self.time(self.span)))
        return 4 * jnp.finfo(largest.dtype).eps * jax.lax.stop_gradient(largest)

    def time(self, elapsed: Array) -> Array:
        """The time at a given elapsed time."""
        return self.t0 + self.sign * elapsed

    def stop(self, elapsed: Array) -> Array:
        """The next time at which a step ends."""
        if not self.times.size:
            return self.span
        if not self.ends.size:
            return jnp.min(jnp.where(self.times > elapsed, self.times, self.span))
        following = jnp.searchsorted(self.times, elapsed, side="right")
        last = self.times.size - 1
        stop = self.times[jnp.minimum(following, last)]
        return jnp.where(following > last, self.span, jnp.minimum(stop, self.span))

    def observed_before(self, state: RunState) -> Array:
        """The number of recorded events so far that changed nothing."""
        if not self.event_set:
            return jnp.zeros((), jnp.int32)
        capacities = jnp.asarray(
            [0 if e.interrupts else e.keep for e in self.event_set.events], jnp.int32
        )
        return jnp.minimum(state.events.counts, capacities).sum()

    def packed(self, state: RunState) -> Array:
        """q, v, memory; with events or times also a shift of time, zero, and the switches."""
        q, v, events = state.start.q, state.start.v, state.events
        shift = jnp.zeros(int(bool(self.event_set) or self.times.size > 0), q.dtype)
        return jnp.concatenate([q, v, state.memory, shift, events.active.astype(q.dtype)])
