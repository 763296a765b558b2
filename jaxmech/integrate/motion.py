"""The motion of a run as a whole, from which a `Solution` is made, and its states between saves.

`ReverseMode` and `ForwardMode` are the modes in which it can be differentiated.

From the last known state before a time, which is a save or the state after a transition, the motion
is computed again, up to that time, by the method, the steps and the projection of the run. So a
state between saves is on the constraints, and as accurate as the states at the save times.
"""

import abc
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import batched_closure
from jaxmech.integrate.derivatives.adaptive_rule import adaptive_trajectory
from jaxmech.integrate.derivatives.run_rule import RolloutInputs
from jaxmech.integrate.derivatives.segment_rule import segment_trajectory
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.events.log import Events
from jaxmech.integrate.rollout import rollout
from jaxmech.integrate.run_params import after_samples, in_run, with_outputs
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import (
    NO_GRID,
    AnyInterval,
    StepGrid,
    interval_at,
    within,
)
from jaxmech.integrate.step_size import chosen_steps, refined
from jaxmech.integrate.steps import Adaptive, FixedSteps, Tolerance
from jaxmech.integrate.trajectory import SEGMENT, StepCounts, Trajectory
from jaxmech.system import Params, System, conserves_energy
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import as_numbers, is_known, require_positive_integer
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import actual

_NEAR = 4.0  # units of round-off of the largest time


@dataclass(frozen=True)
class AbstractDerivative(abc.ABC):
    """The modes of automatic differentiation in which a trajectory can be differentiated."""

    @abc.abstractmethod
    def trajectory(self, scheme: Scheme, x: RolloutInputs, event_set: EventSet) -> Trajectory:
        """The rollout with its derivative rule."""


@dataclass(frozen=True)
class ReverseMode(AbstractDerivative):
    """Both modes, efficient for `jax.grad` with respect to many parameters; the default.

    Args:
        segment: steps from one kept state to the next, a divisor of those per save interval; by
            default about the square root of the number of steps. Shorter segments need more memory,
            and in batches more time too: computing a step again is faster than loading it.

    Raises:
        ValueError: if `segment` is not a positive integer.
    """

    segment: int | None = None

    def __post_init__(self) -> None:
        if self.segment is not None:
            remedy = "leave it out for about the square root of all steps"
            require_positive_integer("segment", self.segment, remedy)

    def trajectory(self, scheme: Scheme, x: RolloutInputs, event_set: EventSet) -> Trajectory:
        """The rollout, whose derivatives recompute its steps."""
        if isinstance(scheme.steps, Adaptive):
            return adaptive_trajectory(scheme, event_set, self.segment or SEGMENT, x)
        steps = self._steps(scheme.per_save, len(x.ts) - 1)
        return segment_trajectory(scheme, event_set, steps, x)

    def _steps(self, per_save: int, saves: int) -> int:
        # The divisor of the steps per save nearest to the root of all steps.
        # All segments have one shape, so that they are compiled once; hence a divisor.
        divisors = [k for k in range(1, per_save + 1) if per_save % k == 0]
        if self.segment is None:
            root = math.sqrt(per_save * saves)
            return min(divisors, key=lambda steps: abs(math.log(steps / root)))
        if self.segment not in divisors:
            raise ValueError(
                f"Argument `segment` must divide the {per_save} steps per save interval, but is "
                f"{self.segment}; take one of {', '.join(map(str, divisors))}."
            )
        return self.segment


@dataclass(frozen=True)
class ForwardMode(AbstractDerivative):
    """Forward mode only, for `jax.jvp` and `jax.jacfwd`, which then cost one run less.

    Reverse mode works too, but keeps every intermediate value of every step.
    """

    def trajectory(self, scheme: Scheme, x: RolloutInputs, event_set: EventSet) -> Trajectory:
        """The rollout as plain JAX operations; with a tolerance or events, in both modes."""
        if event_set or isinstance(scheme.steps, Adaptive):
            return ReverseMode().trajectory(scheme, x, event_set)
        return rollout(scheme, x.q0, x.v0, x.ts, x.params, x.memory, times=x.times)[0]


@dataclass(frozen=True)
class Program:
    """A run without its numbers."""

    scheme: Scheme  # with its number of steps
    derivative: AbstractDerivative
    event_set: EventSet
    inserted: int  # how many of the times at which a step ends, the last ones, are no saves

    def trajectory(
        self, x: RolloutInputs, grid: StepGrid = NO_GRID
    ) -> tuple[Trajectory, StepGrid]:  # fmt: skip
        """The trajectory of a run with these inputs, and the grid of its fixed steps.

        The saves of the trajectory are those of the grid, if it has any.
        """
        system, event_set, ts, times = self.scheme.system, self.event_set, x.ts, x.times
        first: AnyInterval = jax.tree.map(lambda rows: rows[0], grid.intervals)
        first = first or interval_at(times, ts[0], ts[0], ts[-1])
        params = with_outputs(system, within(first, x.params), x.memory)
        params = event_set.params(params, event_set.active())
        system = event_set.system(in_run(system) if times.size else system)
        scheme = replace(self.scheme, system=system).at(x.q0, x.v0, ts[0], params)
        if not isinstance(scheme.steps, FixedSteps):
            return self.derivative.trajectory(scheme, x, event_set), grid
        if self.inserted and not grid.rows.size:
            grid = StepGrid.of(ts, times[times.size - self.inserted :])
        held = grid.intervals or jax.lax.stop_gradient(times)
        x = replace(x, ts=grid.ts if grid.rows.size else ts, times=held)
        trajectory = self.derivative.trajectory(scheme, x, event_set)
        counts = StepCounts.of_fixed(scheme.method, scheme.per_save, x.ts, trajectory.t_failed)
        return replace(trajectory, counts=counts), grid


class Run(eqx.Module):
    """What the motion of a solution was computed from, besides its states."""

    params: Params
    tolerance: Tolerance | None  # of adaptive steps
    times: Float[AnyArray, " K"]  # at which a step ends
    program: Program = eqx.field(static=True)

    @property
    def size(self) -> int:
        """How many numbers there are, of which a batch would have a copy for each trajectory."""
        return sum(map(np.size, jax.tree.leaves((self.params, self.times))))


def solve_motion(
    scheme: Scheme, derivative: AbstractDerivative, event_set: EventSet, q0: Array, v0: Array,
    ts: Array, params: Params, memory: Any, saves: Any,
) -> tuple[Run, dict[str, Any]]:  # fmt: skip
    """A run, and what it computes as the fields of a `Solution`.

    The `saves` are the ts, as known numbers where they are known.

    Where steps have no number yet, it is chosen from the motion.
    """
    system, is_fixed = scheme.system, isinstance(scheme.steps, FixedSteps)
    steps, times, inserted = chosen_steps(scheme, q0, v0, ts, params, event_set, saves)
    is_grid_known = inserted and is_fixed and is_known((saves, times))
    grid = StepGrid.known(saves, times, inserted) if is_grid_known else NO_GRID
    times = jnp.asarray(times)
    memory = system.memory_at(ts, params, memory)
    steps, tolerance = replace(steps, times=()), None
    is_chosen = isinstance(scheme.steps, FixedSteps) and scheme.steps.per_save is None
    if isinstance(steps, Adaptive):
        tolerance = steps.tolerance(q0.dtype)  # an argument of the program of all of them
        steps = replace(steps, rtol=1.0, atol=1.0, max_step=None)

    x = RolloutInputs(q0, v0, ts, params, tolerance, times, memory)
    program = Program(replace(scheme, steps=steps), derivative, event_set, inserted)
    fields = _motion(program, x, grid)
    if is_chosen:
        errors = fields["integration_error"], fields["resolution"]
        if more_steps := refined(program.scheme, event_set, *errors):
            # Impacts need more than their trial.
            program = replace(program, scheme=replace(scheme, steps=more_steps))
            fields = _motion(program, x, grid)
    return Run(params, tolerance, times, program), fields


@jit_of("program", is_frame=True)
def _motion(program: Program, x: RolloutInputs, grid: StepGrid) -> dict[str, Any]:
    system, event_set, ts, params = program.scheme.system, program.event_set, x.ts, x.params
    trajectory, grid = program.trajectory(x, grid)
    saves = trajectory.saves.selected(grid.rows) if grid.rows.size else trajectory.saves
    events = None
    if event_set:
        state, log, t_end = trajectory.events, trajectory.occurrences, ts[-1]
        for k, event in enumerate(event_set.events):
            if event.terminal:
                t_end = jnp.where(state.stopped_by == k, log[event_set.rows[k], 0], t_end)
        events = Events(
            log=log,
            counts=state.counts,
            missed=state.missed,
            stopped_by=state.stopped_by,
            t_end=jnp.where(jnp.isnan(trajectory.t_failed), t_end, trajectory.t_failed),
            switches=saves.active,
            names=tuple(event.name for event in event_set.events),
            rows=event_set.rows,
            has_transition=tuple(event.transition is not None for event in event_set.events),
            switched=event_set.names,
            sizes=(system.n, system.n_velocities, event_set.gaps.words),
            has_copies=bool(event_set.gaps),
        )
    rows = saves.q, saves.v, saves.memory, ts
    after = with_samples(system, rows, (ts[0], ts[-1]), params, x.times, events, grid.at_saves)

    def energy_of(q: Array, v: Array, memory: Array, t: Array, params: Params) -> Array:
        return system.dynamics.energy(q, v, t, with_outputs(system, params, memory))

    # XLA would compile its operations one by one.
    energy_at = batched_closure(energy_of, x.q0, x.v0, x.memory, ts[0], params)
    energy = jax.vmap(energy_at, (0, 0, 0, 0, None))(saves.q, saves.v, after, ts, params)
    start = x.q0, x.v0, ts[0], with_outputs(system, params, x.memory)
    energy_drift = jnp.full((), jnp.nan, energy.dtype)
    if conserves_energy(system, *start) and not event_set.has_transitions:
        drift = jnp.abs(energy - energy[0])  # NaN at times that were not reached
        # The first is NaN only if all are. `jnp.nanmax` takes five operations of XLA more.
        largest = jnp.where(jnp.isnan(drift), 0.0, drift).max()
        energy_drift = jnp.where(jnp.isnan(energy[0]), jnp.nan, largest)
    counts = trajectory.counts
    return {
        "q": saves.q,
        "v": saves.v,
        "memory": after,
        "status": trajectory.status,
        "t_failed": trajectory.t_failed,
        "energy": energy,
        "energy_drift": energy_drift,
        "position_residual": saves.position_residual,
        "velocity_residual": saves.velocity_residual,
        "rank": trajectory.rank,
        "step": counts.longest,
        "integration_error": trajectory.error,
        "resolution": trajectory.resolution,
        "accepted": counts.accepted,
        "rejected": counts.rejected,
        "evaluations": counts.evaluations,
        "t_stiff": counts.t_stiff,
        "events": events,
    }


def with_samples(
    system: System, rows: tuple[Array, Array, Array, Float[Array, " T"]],
    ends: tuple[Array, Array], params: Params, times: Float[AnyArray, " K"],
    events: Events | None, intervals: AnyInterval = None,
) -> Float[Array, " T c"]:  # fmt: skip
    """The memory of the rows q, v, memory and t of a run between its `ends`, after controllers.

    Nothing is computed at the last time, or after a terminal event. `intervals` are those that
    follow the rows, where they are known.
    """
    q, v, memory, t = rows
    if system.sampling is None or not times.size:
        return memory
    # Times that are computed in two ways differ by round-off.
    near = _NEAR * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(ends[0]), jnp.abs(ends[1]))
    intervals = intervals or interval_at(times, t + near, *ends)

    def sampled(
        memory: Array, q: Array, v: Array, t: Array, interval: AnyInterval, params: Params
    ) -> Array:
        return after_samples(system, memory, q, v, t, within(interval, params))

    each = memory, q, v, t, intervals
    at_time = batched_closure(sampled, *jax.tree.map(lambda x: x[0], each), params)
    after: Array = jax.vmap(at_time, (0, 0, 0, 0, 0, None))(*each, params)
    return after if events is None else jnp.where((t <= events.t_end)[:, None], after, memory)


class _Knots(eqx.Module):
    """States, or one, to compute the motion from: those after transitions, and the saves."""

    elapsed: Float[Array, " *N"]  # times from the start, in the direction of the run
    q: Float[Array, " *N n"]
    v: Float[Array, " *N k"]
    memory: Float[Array, " *N c"]  # of controllers
    active: Bool[Array, " *N C"]  # constraints with a switch that are on


def states_at(
    run: Run, saves: tuple[Array, ...], t_failed: Array, events: Events | None, t: Any
) -> tuple[Array, Array, Array, Array]:
    """Times t, and q, v and memory there, of one trajectory with these saves: times and states.

    Where values are known, other times are errors; elsewhere the states are NaN.
    """
    ts = saves[0]
    t = jnp.asarray(as_numbers("t", t, half=True)).astype(ts.dtype)
    known = actual((ts, t.ravel()), sys.maxsize)
    if known is not None:
        low, high = known[0].min(1, keepdims=True), known[0].max(1, keepdims=True)
        is_outside = ~((low <= known[1]) & (known[1] <= high))
        for member, number in np.argwhere(is_outside)[:1]:
            raise ValueError(
                f"Argument `t` must lie in the run, from {low[member, 0]:g} s to "
                f"{high[member, 0]:g} s, but {known[1][member, number]:g} s does not; simulate up "
                "to that time."
            )
    numbers = run.params, run.tolerance, run.times
    new_states, is_lost = _states(run.program, numbers, saves, t_failed, events, t.ravel())
    known = actual((is_lost, t.ravel()), sys.maxsize)
    if known is not None and known[0].any():
        raise ValueError(
            f"Argument `t` must not be later than the last transition that is kept, but t = "
            f"{known[1][known[0]][0]:g} s is; give the events of the run a larger `keep`."
        )
    q, v, memory = (x.reshape(*t.shape, x.shape[-1]) for x in new_states)
    return t, q, v, memory


@jit_of("program", is_frame=True)
def _states(
    program: Program, numbers: tuple[Params, Tolerance | None, Array], saves: tuple[Array, ...],
    t_failed: Array, events: Events | None, t: Array,
) -> tuple[tuple[Array, Array, Array], Array]:  # fmt: skip
    """q, v and memory at times t (K,), and whether transitions before them are not known."""
    (params, tolerance, times), (ts, q, v, memory) = numbers, saves
    system, event_set = program.scheme.system, program.event_set
    sign, first = jax.lax.stop_gradient(jnp.sign(ts[-1] - ts[0])), ts[0]
    knots = _knots(event_set, events, ts, (q, v, memory), sign)
    last, kept = sign * (ts[-1] - first), [jnp.full_like(first, jnp.inf)]
    if events is not None:
        last = sign * (events.t_end - first)
        for record in (events[e.name] for e in event_set.events if e.transition is not None):
            is_full = record.count > len(record.t)
            kept.append(jnp.where(is_full, sign * (record.t[-1] - first), jnp.inf))
    known_until = jax.lax.stop_gradient(jnp.stack(kept).min())
    switched = replace(program.scheme, system=event_set.system(system))
    between = replace(program, scheme=switched, event_set=NO_EVENTS)

    def moved(knot: _Knots, span: Array) -> tuple[Array, Array, Array]:
        """The end of a motion from a knot in which no event changes it."""
        active_params = event_set.params(params, knot.active)
        inputs = RolloutInputs(knot.q, knot.v, span, active_params, tolerance, times, knot.memory)
        saves = between.trajectory(inputs)[0].saves
        return saves.q[-1], saves.v[-1], saves.memory[-1]

    def state_at(t: Array) -> tuple[tuple[Array, Array, Array], Array]:
        # After a terminal event the state stays as it is.
        elapsed = jnp.minimum(sign * (t - first), last)
        before = jnp.where(knots.elapsed < elapsed, knots.elapsed, -jnp.inf)
        knot = jax.tree.map(lambda x: x[jnp.argmax(before)], knots)
        is_start = elapsed <= 0
        begin = jnp.where(is_start, jnp.zeros_like(first), knot.elapsed)
        to = jnp.where(is_start, sign * (ts[1] - first), elapsed)
        span = first + sign * jnp.stack([begin, to])
        knot = jax.tree.map(lambda x, y: jnp.where(is_start, y, x), knot, start)
        is_lost = elapsed > known_until
        failed = (sign * (t - t_failed) > 0) | is_lost | ~(sign * (t - first) >= 0)
        failed |= sign * (ts[-1] - t) < 0
        state = knot.q, knot.v, knot.memory
        ends = jax.tree.map(partial(jnp.where, is_start), state, moved(knot, span))
        return jax.tree.map(lambda x: jnp.where(failed, jnp.nan, x), ends), is_lost

    start = jax.tree.map(lambda x: x[len(knots.elapsed) - len(ts)], knots)
    if system.sampling is not None and event_set.has_transitions:
        knots = _with_memory(knots, len(ts), first, sign, moved)
    (new_q, new_v, memory), is_lost = jax.vmap(state_at)(t)
    rows = new_q, new_v, memory, t
    memory = with_samples(system, rows, (ts[0], ts[-1]), params, times, events)
    return (new_q, new_v, memory), is_lost


def _with_memory(
    knots: _Knots, saves: int, first: Array, sign: Array,
    moved: Callable[[_Knots, Array], tuple[Array, Array, Array]],
) -> _Knots:  # fmt: skip
    """The knots with what controllers keep after transitions, the first ones before the saves.

    Records of events do not have it: it is that at the end of the motion from the knot before.
    """
    count = len(knots.elapsed) - saves
    order = jnp.argsort(knots.elapsed, stable=True)  # a save at the time of a transition last
    start = jax.tree.map(lambda x: x[count], knots)

    def following(before: _Knots, number: Array) -> tuple[_Knots, Array]:
        knot = jax.tree.map(lambda x: x[number], knots)
        span = first + sign * jnp.stack([before.elapsed, knot.elapsed])
        is_unknown = (number < count) & jnp.isfinite(knot.elapsed)
        is_unknown &= knot.elapsed > before.elapsed
        memory = jax.lax.cond(is_unknown, lambda: moved(before, span)[2], lambda: before.memory)
        memory = jnp.where(number < count, memory, knot.memory)
        return replace(knot, memory=memory), memory

    _, memories = jax.lax.scan(following, start, order)
    return replace(knots, memory=memories[jnp.argsort(order)])


def _knots(
    event_set: EventSet, events: Events | None, ts: Array, states: tuple[Array, Array, Array],
    sign: Array,
) -> _Knots:  # fmt: skip
    """The states after the transitions that are kept, in their order, and then the saves.

    Other transitions are at infinity.
    """
    active = jnp.zeros((len(ts), 0), bool)
    if events is not None and events.active:
        # By name, since JAX sorts the keys of a dictionary.
        active = jnp.stack([events.active[name] for name in event_set.names], axis=-1)
    saves = _Knots(sign * (ts - ts[0]), *states, active)
    if events is None or not event_set.has_transitions:
        return saves
    records = [
        (k, events[e.name]) for k, e in enumerate(event_set.events) if e.transition is not None
    ]
    rows = [(record.t, record.q_after, record.v_after, record.outcome) for _, record in records]
    t, q, v, outcome = (jnp.concatenate(column) for column in zip(*rows, strict=True))
    index = np.concatenate([np.full(record.t.shape, k) for k, record in records])
    elapsed = jnp.where(jnp.isnan(t), jnp.inf, sign * (t - ts[0]))
    order = jnp.argsort(elapsed, stable=True)

    def switched(active: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        number, time, outcome = row
        active = jnp.where(jnp.isfinite(time), event_set.switched(number, active, outcome), active)
        return active, active

    ordered = jnp.asarray(index)[order], elapsed[order], outcome[order]
    _, after = jax.lax.scan(switched, active[0], ordered)
    memory = jnp.zeros((len(order), states[2].shape[1]), states[2].dtype)
    transitions = _Knots(ordered[1], q[order], v[order], memory, after)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), transitions, saves)
