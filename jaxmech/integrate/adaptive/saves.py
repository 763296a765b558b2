"""The saves within an accepted step: Hermite interpolation, and the projection."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import with_row
from jaxmech.integrate.adaptive.attempt import attempt
from jaxmech.integrate.adaptive.run import RunAudit, RunRows, RunSetting, RunState, StepSpan
from jaxmech.integrate.checks import finite_states, residuals
from jaxmech.integrate.methods.explicit_stages import EvaluatedState
from jaxmech.integrate.trajectory import SavedStates
from jaxmech.state import Projection
from jaxmech.status import Status


def save_reached(
    run: RunSetting, previous: RunState, reached_state: RunState, step: StepSpan, rows: RunRows,
    first: Array,
) -> tuple[RunState, RunRows]:  # fmt: skip
    """Write the saves within an accepted step; `first` is the packed state before it."""
    last = len(run.elapsed) - 1
    states = _states(run, previous, reached_state, step, _target(run, reached_state.saved))

    def goes_on(carry: tuple[RunState, RunRows]) -> Array:
        saved, elapsed = carry[0].saved, _target(run, carry[0].saved)
        is_before_end = (elapsed < step.end) | ((elapsed == step.end) & ~step.interrupted)
        return (step.accepted & (saved <= last) & is_before_end) & (carry[0].status == Status.OK)

    def save(carry: tuple[RunState, RunRows]) -> tuple[RunState, RunRows]:
        state, rows = carry
        audit, index = state.audit, state.saved
        row, reached = _save(run, previous, audit, step, states, _target(run, index))
        number = previous.counts.accepted + index - run.at_start + run.observed_before(previous)
        move = run.move_to_save(index)
        moves = rows.moves.with_move(number, move, step.begin, first, reached)
        saves = with_row(rows.saves, index, row.packed, reached)
        zero = jnp.zeros_like(step.size)
        state = replace(
            state,
            saved=index + reached,
            audit=replace(audit, position=zero, velocity=zero),
            status=jnp.where(reached, state.status, int(Status.PROJECTION_FAILED)),
            t_failed=jnp.where(reached, state.t_failed, run.time(step.begin)),
        )
        return state, replace(rows, saves=saves, moves=moves)

    return jax.lax.while_loop(goes_on, save, (reached_state, rows))


def _target(run: RunSetting, saved: Array) -> Array:
    """The time, from the start, of the next save, or of the last one."""
    index = jnp.minimum(saved, len(run.elapsed) - 1)
    return jax.lax.dynamic_index_in_dim(run.elapsed, index, keepdims=False)


def _save(
    run: RunSetting, previous: RunState, audit: RunAudit, step: StepSpan,
    states: list[tuple[Array, Array, Array]], elapsed: Array,
) -> tuple[SavedStates, Array]:  # fmt: skip
    """What is saved at a time within a step, and whether the state could be projected."""
    t = run.time(elapsed)
    fraction = jnp.where(elapsed < step.end, (elapsed - step.begin) / step.size, 1.0)
    inside = _within(run, previous, step, states, fraction, t)
    at_begin = previous.start.q, previous.start.v, jnp.asarray(True)
    q, v, reached = jax.tree.map(partial(jnp.where, elapsed > step.begin), inside, at_begin)
    position, velocity = residuals(run.scheme, q, v, t, run.params)
    position = jnp.maximum(audit.position, position)
    velocity = jnp.maximum(audit.velocity, velocity)
    saved = SavedStates(q, v, previous.memory, position, velocity, previous.events.active)
    return saved, reached


def _nodes(run: RunSetting) -> tuple[float, ...]:
    return (0.0, 0.5, 1.0) if run.scheme.method.order > 5 else (0.0, 1.0)


def _states(
    run: RunSetting, previous: RunState, reached_state: RunState, step: StepSpan, target: Array
) -> list[tuple[Array, Array, Array]]:
    times = run.time(step.begin), run.time(step.end)
    pairs = zip((previous.start, reached_state.start), times, strict=True)
    ends = [_rates(run, start, t) for start, t in pairs]
    if len(_nodes(run)) == 2:
        return ends

    def middle() -> tuple[Array, Array, Array]:
        t, h = run.time(step.begin), run.sign * step.size / 2
        half = attempt(run.scheme, run.tolerance, previous.start, t, h, run.params, run.extents)
        return _rates(run, half.end, t + h)

    is_used = step.accepted & (target < step.end)
    return [ends[0], jax.lax.cond(is_used, middle, lambda: ends[0]), ends[1]]


def _rates(run: RunSetting, state: EvaluatedState, t: Array) -> tuple[Array, Array, Array]:
    """q, its rate and its acceleration at a state."""
    system, q, v = run.scheme.system, state.q, state.v
    accelerations = system.dynamics.speed_rates(q, v, state.qdd, t, run.params)
    return q, system.dynamics.speeds(q, v, t, run.params), accelerations


def _within(
    run: RunSetting,
    previous: RunState,
    step: StepSpan,
    states: list[tuple[Array, Array, Array]],
    fraction: Array,
    t: Array,
) -> tuple[Array, Array, Array]:
    if run.scheme.pair.interpolates:
        q, speeds = interpolated(_nodes(run), states, run.sign * step.size, fraction)
        v = run.scheme.system.dynamics.from_speeds(q, speeds, t, run.params)
        start = previous.start
        (q, v), is_finite = finite_states((q, v), (start.q, start.v))
        q, v, reached = _projected(run, q, v, t)
        return q, v, reached & is_finite
    # Accelerations of stiff systems are too sensitive to interpolate with: a shorter step is made.
    h = run.sign * fraction * step.size
    shorter = attempt(
        run.scheme, run.tolerance, previous.start, run.time(step.begin), h, run.params, run.extents
    )
    return shorter.end.q, shorter.end.v, shorter.status == Status.OK


def _projected(run: RunSetting, q: Array, v: Array, t: Array) -> tuple[Array, Array, Array]:
    stabilization, system = run.scheme.stabilization, run.scheme.system
    if run.scheme.formulation.chart(system, q, v, t, run.params) is not None:
        stabilization = stabilization if isinstance(stabilization, Projection) else Projection()
    return stabilization.after_step(system, q, v, t, run.params)


@cache
def hermite(nodes: tuple[float, ...]) -> Any:
    """Coefficients (nodes, 3, 3 nodes) of polynomials, rising powers last.

    Each has value, slope or curvature one at a node, and zero otherwise.
    """
    degree = 3 * len(nodes)
    rows = []
    for derivative in range(3):
        for x in nodes:
            powers = np.polynomial.polynomial.polyder(np.eye(degree), derivative)
            rows.append(np.polynomial.polynomial.polyval(x, powers))
    coefficients = np.linalg.inv(np.array(rows)).T
    exact = np.round(coefficients * 2) / 2  # they are whole or half numbers for halves of a step
    return exact.reshape(3, len(nodes), degree).transpose(1, 0, 2)


def interpolated(
    nodes: tuple[float, ...], states: Any, h: Array, fraction: Array
) -> tuple[Array, Array]:
    """q and its rate at a `fraction` of a step, from both and its acceleration at some fractions.

    Two nodes have an error of order h^6 in q and h^5 in v; three have h^9 and h^8.
    """
    basis = hermite(nodes)
    slopes = np.polynomial.polynomial.polyder(basis, axis=-1)
    values, rates = _powers(basis, fraction), _powers(slopes, fraction)
    first = states[0][0]
    # The polynomials of the values add up to one: differences keep the digits of a short step.
    q, v = first, jnp.zeros_like(first)
    for k, (position, speed, acceleration) in enumerate(states):
        columns = position - first, h * speed, h * h * acceleration
        for derivative, column in enumerate(columns):
            if k or derivative:
                q = q + values[k, derivative] * column
                v = v + rates[k, derivative] * column
    return q, v / h


def _powers(coefficients: np.ndarray, x: Array) -> Array:
    values = jnp.zeros(coefficients.shape[:-1], x.dtype)
    for power in range(coefficients.shape[-1])[::-1]:
        values = values * x + jnp.asarray(coefficients[..., power], x.dtype)
    return values
