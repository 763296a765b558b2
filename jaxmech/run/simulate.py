"""`simulate`: one trajectory, or a batch under `jax.vmap`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import batched_closure
from jaxmech.integrate import (
    MEMBERS,
    NO_GRID,
    AbstractDerivative,
    AbstractMethod,
    AbstractSteps,
    Adaptive,
    AnyInterval,
    Event,
    Events,
    EventSet,
    FixedSteps,
    ReverseMode,
    RolloutInputs,
    Run,
    Scheme,
    StepCounts,
    StepGrid,
    Tolerance,
    Trajectory,
    as_times,
    constraints_move,
    ending_at_jumps,
    event_set_of,
    events_of,
    interval_at,
    refined,
    step_times,
    with_gaps,
    with_number,
    with_outputs,
    with_samples,
    with_spans,
    within,
)
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.run.solution import (
    Solution,
    energy_drift,
    warn_of_coarse_steps,
    warn_of_missed_events,
)
from jaxmech.state import AbstractStabilization, Projection
from jaxmech.status import Status, succeeded
from jaxmech.system import (
    Params,
    Subject,
    System,
    conserves_energy,
    function_values,
    independent_equations,
    violations,
    with_params,
    without_mass,
)
from jaxmech.utils.checks import is_known, require_finite, require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.parameters import digests_of, warn_of_unread
from jaxmech.utils.precision import USE_FLOAT64
from jaxmech.utils.tracers import actual

# failures that round-off can cause
_OF_PRECISION = (
    Status.ILL_CONDITIONED,
    Status.MAX_STEPS,
    Status.NONIDEAL_FAILED,
    Status.NOT_CONVERGED,
    Status.PROJECTION_FAILED,
    Status.SINGULAR_MASS,
    Status.STEP_UNDERFLOW,
    Status.STIFF,
)


class SimulationError(RuntimeError):
    """A trajectory failed; `solution` holds the results up to the failure.

    Attributes:
        solution: the `Solution`, NaN from the failure on.
    """

    def __init__(self, message: str, solution: Solution) -> None:
        super().__init__(message)
        self.solution = solution


@with_standard_promotion
def simulate(
    system: Subject,
    q0: Any,
    v0: Any,
    ts: Any,
    params: Params = None,
    *,
    method: AbstractMethod | None = None,
    steps: AbstractSteps | None = None,
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
    derivative: AbstractDerivative = ReverseMode(),
    events: Event | Sequence[Event] = (),
    inactive: str | Sequence[str] = (),
    memory: Any = None,
    throw: bool = True,
) -> Solution:
    """Simulate the motion of a constrained system from a consistent state.

    A pure function of a single trajectory: `jax.vmap` runs a batch, in which each trajectory has
    its own status, and derivatives of any order, in both modes, can be taken with respect to `q0`,
    `v0`, `ts` and `params`.

    Args:
        system: the system, with n coordinates.
        q0: coordinates at ts[0], shape (n,).
        v0: velocities at ts[0], shape (n,), or the k quasi-velocities, with the states of first
            order last.
        ts: save times [s], shape (T,), strictly increasing or decreasing.
        params: the parameters that the functions of the system expect.
        method: the integration method; by default `RK4()`, or `DormandPrince8()` with `Adaptive`
            steps.
        steps: the step size policy. By default all save intervals have the same number of steps,
            which is chosen from the motion (`jaxmech.analysis.choose_steps`). Under `jit`, where
            the motion is unknown, the default is one step, with a `StepWarning`;
            `FixedSteps(per_save=...)` sets the number. `Adaptive(rtol=...)` chooses steps by a
            tolerance, independently for each trajectory, also under `jit`. Steps end at the samples
            of a `Signal`, at the `times` of the policy and, where the values are known, at save
            times at which a function jumps; a `TimesWarning` names abrupt changes elsewhere.
        projection: stabilization against drift: `Projection()`, `Baumgarte(...)` or None.
        formulation: law of motion.
        derivative: `ReverseMode()`, or `ForwardMode()` if only `jax.jvp` is needed.
        events: each `Event` to locate along the motion; times and states are in
            `Solution.events`. After a terminal event the trajectory stands still: all later saves
            hold the state at the event, and the status is `STOPPED`.
        inactive: names of constraints that are off until a `Transition` switches them on, or for
            the whole run if none does.
        memory: what the controllers of a `controlled` system keep at ts[0], to continue a run:
            `Solution.memory` at its last time.
        throw: whether a failure raises a `SimulationError`; under `jit` and `vmap` it is only
            recorded in `status`.

    Returns:
        A `Solution` with q (T, n) and v, with a row like v0 for each time, in the precision of q0
        and v0, and with status and audit.

    Raises:
        ValueError: if a shape is wrong, a value is not finite, or the times are not monotonic.
        TypeError: if `system` is not a `System`, a policy is of the wrong kind, or an argument is
            not real.
        SimulationError: if the trajectory failed and `throw` is set; it holds the solution.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech import models
        >>> model = models.pendulum()
        >>> q0, v0 = model.initial()
        >>> sol = simulate(model.system, q0, v0, jnp.linspace(0, 1, 101), model.params)
        >>> print(sol.position_residual.max() < 1e-14, sol.rank)
        True 1
    """
    system, params = with_params(system, params)
    system = system.of_run(params)
    scheme = Scheme.of(system, method, steps, projection, formulation)
    require_kind("derivative", derivative, AbstractDerivative, "ReverseMode()")
    q0, v0, _, params = system.arguments(q0, v0, 0.0, params, ("q0", "v0"))
    if memory is not None and system.sampling is None:
        raise ValueError("Argument `memory` must be None for a system without controllers.")
    stated, ts = ts, as_times(ts, q0.dtype)
    saves = np.asarray(stated, ts.dtype) if is_known(stated) else ts  # known also under `jit`
    event_set = with_gaps(event_set_of(system, events, inactive), system, q0, ts, params)
    require_finite(q0=q0, v0=v0, ts=ts, params=params)
    if event_set:
        _require_forwards(event_set, ts)
    steps = ending_at_jumps(system, scheme.steps, q0, v0, ts, params)
    times, inserted = _step_times(system, steps, q0, v0, ts, params, saves)
    is_grid_known = inserted and isinstance(steps, FixedSteps) and is_known((saves, times))
    grid = StepGrid.known(saves, times, inserted) if is_grid_known else NO_GRID
    times = jnp.asarray(times)
    memory = system.memory_at(ts, params, memory)
    steps = steps.without_times()
    switched, switched_params = _with_switches(system, event_set, params)
    if system.declared and not events:  # these may read parameters of their own
        read = partial(function_values, system, q0, v0, ts[0])
        warn_of_unread(params, read, system.declared)
    of_trials = replace(scheme, system=switched, steps=steps)
    is_chosen = isinstance(steps, FixedSteps) and steps.per_save is None
    steps, tolerance = _chosen(of_trials, q0, v0, ts, switched_params, times, event_set)

    def run(scheme: Scheme) -> Solution:
        return _simulate(
            scheme, derivative, event_set, inserted, q0, v0, ts, params, tolerance, times, grid,
            memory,
        )  # fmt: skip

    scheme = replace(scheme, steps=steps)
    solution = run(scheme)
    if is_chosen and (steps := refined(scheme, event_set, solution.integration_error)):
        scheme = replace(scheme, steps=steps)  # impacts need more than their trial, without them
        solution = run(scheme)
    source = Run(params, tolerance, times, scheme, derivative, event_set, inserted)
    is_kept = source.is_small or is_known((q0, v0, ts, params))
    solution = replace(solution, digests=digests_of(params), run=source if is_kept else None)
    return _checked(switched, solution, throw, switched_params, event_set)


def _chosen(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, times: Array,
    event_set: EventSet,
) -> tuple[AbstractSteps, Tolerance | None]:  # fmt: skip
    """The policy of steps without tolerances and with a number of steps, and the tolerances."""
    steps = scheme.steps
    if isinstance(steps, Adaptive):
        return steps.without_tolerance(), steps.tolerance(q0.dtype)
    return with_number(scheme, q0, v0, ts, params, times, event_set), None


def _step_times(
    system: System, steps: AbstractSteps, q0: Array, v0: Array, ts: Array, params: Params,
    saves: Any,
) -> tuple[Any, int]:  # fmt: skip
    """The times at which a step ends, and how many of them, at their end, are no save times."""
    if steps.end_at_saves and system.sampling is None:
        return ts, 0
    times = step_times(system, steps.step_times(q0.dtype), ts, params, saves)
    if system.sampling is not None and not constraints_move(system, q0, v0, ts, params):
        return _saves_first(times, saves)
    # A corner of a constraint moves velocities, for which a save is repeated from its other side.
    are_saves = is_known((times, ts)) and np.isin(np.asarray(times), np.asarray(ts)).all()
    if are_saves and not constraints_move(system, q0, v0, ts, params):
        return times, 0
    return times, times.size


def _require_forwards(event_set: EventSet, ts: Array) -> None:
    values = actual(ts, MEMBERS)
    if event_set.gaps and values is not None and (np.diff(values, axis=1) < 0).any():
        raise ValueError(
            "Argument `ts` must increase where there are unilateral constraints, but decreases: a "
            "motion before an impact does not follow from the one after it."
        )


def _saves_first(times: Any, saves: Any) -> tuple[Any, int]:
    """The times with those first that are known save times, and the number of the others."""
    if not is_known((saves, times)):
        return times, times.size
    is_save = np.isin(np.asarray(times), np.asarray(saves, times.dtype))
    return np.concatenate([times[is_save], times[~is_save]]), int((~is_save).sum())


def _checked(
    system: System, solution: Solution, throw: bool, params: Params, event_set: EventSet
) -> Solution:
    """The solution, or an error or a warning if it is not good."""
    if throw and is_known(solution) and not succeeded(int(solution.status)):
        raise SimulationError(_explanation(system, solution, params, event_set), solution)
    warn_of_coarse_steps(solution)
    warn_of_missed_events(solution)
    return solution


def _with_switches(system: System, event_set: EventSet, params: Params) -> tuple[System, Params]:
    """Add switches to the system, and their initial positions to the parameters."""
    return event_set.system(system), event_set.params(params, event_set.active())


@jit_of("scheme", "derivative", "event_set", "inserted", is_frame=True)
def _simulate(
    scheme: Scheme, derivative: AbstractDerivative, event_set: EventSet, inserted: int,
    q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance | None,
    times: Array, grid: StepGrid, memory: Array,
) -> Solution:  # fmt: skip
    system = scheme.system
    first: AnyInterval = jax.tree.map(lambda x: x[0], grid.intervals)
    first = first or interval_at(times, ts[0], ts[0], ts[-1])
    switched, switched_params = _with_switches(
        with_spans(system, times), event_set,
        with_outputs(system, within(first, params), memory),
    )  # fmt: skip
    scheme = replace(scheme, system=switched).at(q0, v0, ts[0], switched_params)
    inputs = RolloutInputs(q0, v0, ts, params, tolerance, times, memory)
    if isinstance(scheme.steps, FixedSteps):
        if inserted and not grid.rows.size:
            grid = StepGrid.of(ts, times[times.size - inserted :])
        held = grid.intervals or jax.lax.stop_gradient(times)
        inputs = replace(inputs, ts=grid.ts if grid.rows.size else ts, times=held)
    trajectory = derivative.trajectory(scheme, inputs, event_set)
    saves = trajectory.saves.selected(grid.rows) if grid.rows.size else trajectory.saves
    found = None
    if event_set:
        found = events_of(
            event_set, system, trajectory.events, trajectory.occurrences, saves.active,
            ts[-1], trajectory.t_failed,
        )  # fmt: skip
    rows = saves.q, saves.v, saves.memory, ts
    after = with_samples(system, rows, (ts[0], ts[-1]), params, times, found, grid.at_saves)
    saves = replace(saves, memory=after)
    start = q0, v0, ts[0], with_outputs(system, params, memory)
    # XLA would compile its operations one by one.
    energy_at = batched_closure(partial(_energy, system), q0, v0, memory, ts[0], params)
    rows = saves.q, saves.v, saves.memory, ts
    energy = jax.vmap(energy_at, (0, 0, 0, 0, None))(*rows, params)
    counts = trajectory.counts
    if isinstance(scheme.steps, FixedSteps):
        counts = StepCounts.of_fixed(scheme.method, scheme.per_save, inputs.ts, trajectory.t_failed)
    is_conserved = conserves_energy(system, *start) and not event_set.has_transitions
    trajectory = replace(trajectory, saves=saves, counts=counts)
    return _solution(system, trajectory, ts, energy, is_conserved, found)


def _solution(
    system: System, trajectory: Trajectory, ts: Array, energy: Array, is_conserved: bool,
    found: Events | None,
) -> Solution:  # fmt: skip
    counts, saves = trajectory.counts, trajectory.saves
    drift = energy_drift(energy) if is_conserved else jnp.full((), jnp.nan, energy.dtype)
    return Solution(
        ts=ts,
        q=saves.q,
        v=saves.v,
        memory=saves.memory,
        status=trajectory.status,
        t_failed=trajectory.t_failed,
        energy=energy,
        energy_drift=drift,
        position_residual=saves.position_residual,
        velocity_residual=saves.velocity_residual,
        rank=trajectory.rank,
        step=counts.longest,
        integration_error=trajectory.error,
        accepted=counts.accepted,
        rejected=counts.rejected,
        evaluations=counts.evaluations,
        t_stiff=counts.t_stiff,
        coordinates=tuple(system.coordinates),
        velocities=tuple(system.velocity_names),
        units=system.units,
        events=found,
        memory_names=() if system.sampling is None else system.sampling.names,
    )


def _energy(system: System, q: Array, v: Array, memory: Array, t: Array, params: Params) -> Array:
    return system.dynamics.energy(q, v, t, with_outputs(system, params, memory))


def _explanation(system: System, solution: Solution, params: Params, event_set: EventSet) -> str:
    status = Status(int(solution.status))
    message = f"{status.name} at t = {float(solution.t_failed):g} s: {status.message}."
    if status == Status.INCONSISTENT:
        q, v, t, params = system.arguments(solution.q[0], solution.v[0], solution.ts[0], params)
        for violation in violations(system, q, v, t, params):
            message += (
                f" Constraint {violation.name!r} has a {violation.level} residual of "
                f"{violation.size:.3g}."
            )
        for name, value in event_set.gaps.negative(q, t, event_set.plain(params)):
            message += f" The gap of {name!r} is {value:.3g}."
    last = int(np.flatnonzero(np.isfinite(np.asarray(solution.q)).all(axis=1)).max(initial=0))
    state = system.arguments(solution.q[last], solution.v[last], solution.ts[last], params)
    if status == Status.GAP_JUMPED:
        q, _, t, user = system.arguments(
            solution.q[last], solution.v[last], solution.t_failed, event_set.plain(params)
        )
        for name, value in event_set.gaps.negative(q, t, user):
            message += f" The gap of {name!r} is {value:.3g}."
    if status in (Status.NONFINITE, Status.EVENT_IS_NAN):
        # Straight on to the next save, before which the run was lost.
        q, v, t, _ = system.arguments(solution.q[last], solution.v[last], solution.ts[last], None)
        ahead = jnp.linspace(0.0, 1.0, 33) * (solution.ts[min(last + 1, len(solution.ts) - 1)] - t)
        speeds, user = system.dynamics.speeds(q, v, t, params), event_set.plain(params)
        for gap in event_set.gaps.constraints:
            gaps = jax.vmap(lambda s, gap=gap: gap.value(q + s * speeds, t + s, user))(ahead)
            if jnp.isnan(gaps).any():
                pose = q + ahead[int(jnp.isnan(gaps).argmax())] * speeds
                slope = gap.jacobian(q, t, user)[0]
                rows = zip(system.coordinates, pose.tolist(), slope, strict=True)
                place = ", ".join(f"{name} = {x:.3g}" for name, x, reads in rows if reads)
                message += f" The gap of {gap.name!r} is NaN near {place}."
    if status == Status.PROJECTION_FAILED:
        here, elsewhere = independent_equations(system, *state)
        if here < elsewhere:
            message += (
                f" At t = {float(state[2]):g} s only {here} of {elsewhere} constraint equations "
                "are independent, perhaps in a singular pose: `jm.analysis.structure` tells, and "
                "whether the mechanism can move there."
            )
    if status == Status.SINGULAR_MASS and (names := without_mass(system, *state)):
        message += (
            f" No mass or inertia, or a negative one, moves with {', '.join(names)}: give a body "
            "there a positive one."
        )
    if status in _OF_PRECISION and solution.q.dtype == np.float32:
        message += f" The run is in float32, whose round-off can be the cause; {USE_FLOAT64}."
    return message
