"""The motion of a run as a whole, from which a `Solution` is made, and what it is computed from.

`ReverseMode` and `ForwardMode` are the modes in which it can be differentiated.
"""

import abc
import math
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.compiler import batched_closure
from jaxmech.integrate.derivatives.adaptive_rule import adaptive_trajectory
from jaxmech.integrate.derivatives.run_rule import RolloutInputs
from jaxmech.integrate.derivatives.segment_rule import segment_trajectory
from jaxmech.integrate.events.event_set import EventSet
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
from jaxmech.utils.checks import is_known, require_positive_integer
from jaxmech.utils.jit_cache import jit_of

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
            sizes=(system.n, system.n_velocities, event_set.words),
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
