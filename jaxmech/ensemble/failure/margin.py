"""The margin of a motion against failure, as a JAX function of its draws.

A margin is positive in a safe motion and at most 0 in a failure. The extreme value of a quantity is
that of the dense output at the peak of the parabola through the largest value at a step and its two
neighbours. Its derivative is the one at a fixed time, since the time of an extreme value does not
matter to first order.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import batched_closure
from jaxmech.config import Subject
from jaxmech.config.errors import refuse
from jaxmech.ensemble.members.observed import Observed, StudyEvent
from jaxmech.ensemble.members.quantities import quantity_entries
from jaxmech.ensemble.members.trajectory import StudyTrajectory, Tree
from jaxmech.ensemble.study import Failure, Study, Times
from jaxmech.integrate import FixedSteps
from jaxmech.laws import observed_at
from jaxmech.run import Solution
from jaxmech.utils.text import not_one_of

_LONG = 1e6  # margin of a motion without a single value, in units of the threshold


@dataclass(frozen=True, eq=False)
class Margin:
    """The margin of one trajectory of a study, whose steps are chosen."""

    study: Study  # with functions in place of their names
    subject: Subject  # its system
    failure: Failure

    @cached_property
    def member(self) -> StudyTrajectory:
        """The trajectory, saved at every step, without the event that is the failure."""
        study, steps = self.study, self.study.steps
        if isinstance(steps, FixedSteps) and self.failure.when == "ever":
            assert steps.per_save is not None
            saves = (study.times.saves - 1) * steps.per_save + 1
            times = Times(start=study.times.start, end=study.times.end, saves=saves)
            study = replace(study, times=times, steps=replace(steps, per_save=1))
        events = {name: x for name, x in study.events.items() if name != self.failure.of}
        study = replace(study, events=events, statistics={}, store="all", failure=None)
        return StudyTrajectory(study, self.subject)

    def of(self, inputs: Tree, assembled: bool) -> tuple[Array, dict[str, Any]]:
        """The margin, and what else is known of the motion.

        That is whether it was `lost` numerically, whether its start was `met`, and its `motion`:
        initial coordinates, velocities and parameters.
        """
        member = self.member
        q, v, met = member.start(inputs, assembled)
        params = member.params(inputs)
        sol = member.motion(q, v, params)
        margin = self._along(sol, params)
        is_lost = ~member.is_good({"status": sol.status})
        forced = -1.0 if self.failure.unfinished == "failure" else 1.0
        # A trajectory that has failed before it is lost is a failure by any rule.
        margin = jnp.where(is_lost & (margin > 0), forced * self.scale, margin)
        return margin, {"lost": is_lost, "met": met, "motion": (q, v, params)}

    @property
    def scale(self) -> float:
        """A margin that is far from 0."""
        return _LONG * max(abs(self.failure.threshold or 0.0), 1.0)

    def _along(self, sol: Solution, params: Any) -> Array:
        excess = self._excess

        # In native code the derivative of `jnp.max` is right, by XLA it is lost at some states.
        rows, differ = (sol.q, sol.v, sol.memory, sol.ts), (True, True, True, False)

        def beyond(q: Array, v: Array, memory: Array, t: Array) -> Array:
            return excess(q, v, t, self.member.system.with_outputs(params, memory))

        at = batched_closure(beyond, *(x[0] for x in rows), differ=differ)
        if self.failure.when == "end":
            return -at(*(x[-1] for x in rows))
        values = jax.vmap(at)(*rows)
        if self.event is not None and self.event.direction == 0:
            start = jnp.where(values[0] > 0, -1.0, 1.0)
            values = start * values
            at = partial(_times, start, at)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        largest = _largest(values)
        if sol.run is None:  # the parameters are too many to be kept for dense output
            return -largest
        peak = sol.at(jax.lax.stop_gradient(_peak(sol.ts, values)))
        between = at(peak.q, peak.v, peak.memory, peak.t)
        return -jnp.where(between > largest, between, largest)

    @cached_property
    def event(self) -> StudyEvent | None:
        """The event that is the failure, if it is one."""
        return self.study.events.get(self.failure.of)

    @cached_property
    def _excess(self) -> Callable[..., Array]:
        """The quantity by how much it is beyond the threshold, as a function of a state."""
        study, failure, system = self.study, self.failure, self.subject.system
        names = quantity_entries(system)
        event, sign = self.event, -float(failure.margin_sign)
        if event is not None:
            fn = event.event(failure.of, names, study.observe).fn
            sign, level = float(event.direction or 1), 0.0
        else:
            assert failure.threshold is not None
            level, of_state = failure.threshold, StudyEvent(of=failure.of)
            is_state = failure.of in names
            fn = of_state.event("", names, {}).fn if is_state else study.observe[failure.of].size
        quantity = Observed(fn)

        def excess(q: Array, v: Array, t: Array, params: Any) -> Array:
            reactions = None
            if quantity.needs_reactions:
                reactions = observed_at(system, study.formulation, q, v, t, params)
            return _largest((sign * (quantity.at(q, v, t, params, reactions) - level)).ravel())

        return excess


def require_quantity(failure: Failure, study: Study, subject: Subject) -> None:
    """Raise a StudyError unless the failure is one of this study."""
    known = (*quantity_entries(subject.system), *study.observe, *study.events)
    if failure.of not in known:
        kind = "a coordinate, a velocity, an observed quantity or an event"
        raise refuse(("failure", "of"), not_one_of(failure.of, known, kind))
    if failure.of in study.events:
        if failure.threshold is not None or failure.when == "end":
            message = "must be an event alone, which has a `level`, without a threshold or `when`"
            raise refuse(("failure", "of"), message)
        return
    if failure.threshold is None:
        raise refuse(("failure", "above"), f"or `below` must be given for {failure.of}")
    quantity = study.observe.get(failure.of)
    sides = ("all", "min") if failure.above is None else ("all", "max", "largest")
    if quantity is not None and quantity.keep not in sides:
        message = f"must have a value at all times, but {failure.of} has keep = {quantity.keep!r}"
        raise refuse(("failure", "of"), f"{message}; observe it without `keep` too")
    if quantity is not None and quantity.keep != "all" and failure.when == "end":
        message = f'must be "ever", since {failure.of} has keep = {quantity.keep!r}'
        raise refuse(("failure", "when"), message)


def _largest(values: Array) -> Array:
    # Not `max`, whose derivative compares numbers with those that XLA may have rounded otherwise
    # (fused multiply-add): where none is equal to the largest one, the derivative is lost.
    return values[jnp.argmax(values)]


def _times(sign: Array, at: Callable[..., Array], *state: Array) -> Array:
    return sign * at(*state)


def _peak(ts: Array, values: Array) -> Array:
    """The time of the peak of the parabola through the largest value and its neighbours."""
    k = jnp.argmax(values)
    first = jnp.clip(k - 1, 0, max(len(ts) - 3, 0))
    if len(ts) < 3:
        return ts[k]
    t0, t1, t2 = (ts[first + i] for i in range(3))
    f0, f1, f2 = (values[first + i] for i in range(3))
    rise, fall = (f1 - f0) / (t1 - t0), (f2 - f1) / (t2 - t1)
    bend = (fall - rise) / (t2 - t0)
    middle = (t0 + t1) / 2 - rise / (2 * jnp.where(bend < 0, bend, -1.0))
    inside = (bend < 0) & (t0 < middle) & (middle < t2)
    return jnp.where(inside, middle, ts[k])
