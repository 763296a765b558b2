"""`simulate`: one trajectory, or a batch under `jax.vmap`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.integrate import (
    MEMBERS,
    AbstractDerivative,
    AbstractMethod,
    AbstractSteps,
    Event,
    EventSet,
    ReverseMode,
    Scheme,
    solve_motion,
)
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.run.solution import MOST_NUMBERS, Solution, warn_of_coarse_steps, warn_of_missed_events
from jaxmech.state import AbstractStabilization, Projection
from jaxmech.status import Status, succeeded
from jaxmech.system import KnownState, Params, Subject, System, with_params
from jaxmech.utils.caller import USE_FLOAT64
from jaxmech.utils.checks import (
    as_times,
    is_known,
    require_finite,
    require_kind,
    with_standard_promotion,
)
from jaxmech.utils.probing import actual
from jaxmech.utils.trees import digests_of, warn_of_unread

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
_GROWN = 1e6  # growth of a state after which it is lost, and a mass matrix may be round-off


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
    event_set = EventSet.of(system, events, inactive).with_gaps(system, q0, ts, params)
    require_finite(q0=q0, v0=v0, ts=ts, params=params)
    values = actual(ts, MEMBERS) if event_set.gaps else None
    if values is not None and (np.diff(values, axis=1) < 0).any():
        raise ValueError(
            "Argument `ts` must increase where there are unilateral constraints, but decreases: a "
            "motion before an impact does not follow from the one after it."
        )
    if system.declared and not events:  # these may read parameters of their own
        read = partial(system.function_values, q0, v0, ts[0])
        warn_of_unread(params, read, system.declared)
    run, fields = solve_motion(scheme, derivative, event_set, q0, v0, ts, params, memory, saves)
    is_kept = run.size <= MOST_NUMBERS or is_known((q0, v0, ts, params))
    solution = Solution(
        ts=ts,
        coordinates=tuple(system.coordinates),
        velocities=tuple(system.velocity_names),
        units=system.units,
        digests=digests_of(params),
        run=run if is_kept else None,
        memory_names=() if system.sampling is None else system.sampling.names,
        **fields,
    )
    if throw and is_known(solution) and not succeeded(int(solution.status)):
        message = _explanation(system, solution, params, event_set)
        raise SimulationError(message, solution)
    warn_of_coarse_steps(solution)
    warn_of_missed_events(solution)
    return solution


def _explanation(system: System, solution: Solution, params: Params, event_set: EventSet) -> str:
    system, user = event_set.system(system), params
    params = event_set.params(params, event_set.active())
    status = Status(int(solution.status))
    message = f"{status.name} at t = {float(solution.t_failed):g} s: {status.message}."
    if status == Status.INCONSISTENT:
        q, v, t, params = system.arguments(solution.q[0], solution.v[0], solution.ts[0], params)
        for violation in KnownState(system, q, v, t, params).violations():
            message += (
                f" Constraint {violation.name!r} has a {violation.level} residual of "
                f"{violation.size:.3g}."
            )
        for name, value in event_set.gaps.negative(q, t, user):
            message += f" The gap of {name!r} is {value:.3g}."
    last = int(np.flatnonzero(np.isfinite(np.asarray(solution.q)).all(axis=1)).max(initial=0))
    state = system.arguments(solution.q[last], solution.v[last], solution.ts[last], params)
    if status == Status.GAP_JUMPED:
        q, _, t, user = system.arguments(
            solution.q[last], solution.v[last], solution.t_failed, user
        )
        for name, value in event_set.gaps.negative(q, t, user):
            message += f" The gap of {name!r} is {value:.3g}."
    if status in (Status.NONFINITE, Status.EVENT_IS_NAN):
        # Straight on to the next save, before which the run was lost.
        q, v, t, _ = system.arguments(solution.q[last], solution.v[last], solution.ts[last], None)
        ahead = jnp.linspace(0.0, 1.0, 33) * (solution.ts[min(last + 1, len(solution.ts) - 1)] - t)
        speeds = system.dynamics.speeds(q, v, t, params)
        for gap in event_set.gaps.constraints:
            gaps = jax.vmap(lambda s, gap=gap: gap.value(q + s * speeds, t + s, user))(ahead)
            if jnp.isnan(gaps).any():
                pose = q + ahead[int(jnp.isnan(gaps).argmax())] * speeds
                slope = gap.jacobian(q, t, user)[0]
                rows = zip(system.coordinates, pose.tolist(), slope, strict=True)
                place = ", ".join(f"{name} = {x:.3g}" for name, x, reads in rows if reads)
                message += f" The gap of {gap.name!r} is NaN near {place}."
    if status == Status.PROJECTION_FAILED:
        here, elsewhere = KnownState(system, *state).independent_equations()
        if here < elsewhere:
            message += (
                f" At t = {float(state[2]):g} s only {here} of {elsewhere} constraint equations "
                "are independent, perhaps in a singular pose: `jm.analysis.structure` tells, and "
                "whether the mechanism can move there."
            )
    sizes = np.abs(np.concatenate([solution.q, solution.v], axis=1)).max(1)
    if status == Status.SINGULAR_MASS and sizes[last] > _GROWN * max(1.0, sizes[0]):
        message += (
            f" By t = {float(state[2]):g} s the state had grown to {sizes[last]:.0e}: the motion "
            "is unstable, or the step is too large for it."
        )
    elif status == Status.SINGULAR_MASS and (names := KnownState(system, *state).without_mass()):
        message += (
            f" No mass or inertia, or a negative one, moves with {', '.join(names)}: give a body "
            "there a positive one."
        )
    if status in _OF_PRECISION and solution.q.dtype == np.float32:
        message += f" The run is in float32, whose round-off can be the cause; {USE_FLOAT64}."
    return message
