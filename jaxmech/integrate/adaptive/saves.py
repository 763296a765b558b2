"""The saves within an accepted step: Hermite interpolation, and the projection."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import with_row
from jaxmech.integrate.adaptive.attempt import Attempt, attempt
from jaxmech.integrate.adaptive.run import RunRows, RunSetting, RunState, StepSpan
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
    scheme, system, start = run.scheme, run.scheme.system, previous.start
    begin_t, last = run.time(step.begin), len(run.elapsed) - 1

    def target(saved: Array) -> Array:
        """The time, from the start, of the next save, or of the last one."""
        index = jnp.minimum(saved, last)
        return jax.lax.dynamic_index_in_dim(run.elapsed, index, keepdims=False)

    def shorter(h: Array) -> Attempt:
        return attempt(scheme, run.tolerance, start, begin_t, h, run.params, run.extents)

    def rates(state: EvaluatedState, t: Array) -> tuple[Array, Array, Array]:
        """q, its rate and its acceleration at a state."""
        accelerations = system.dynamics.speed_rates(state.q, state.v, state.qdd, t, run.params)
        return state.q, system.dynamics.speeds(state.q, state.v, t, run.params), accelerations

    def middle() -> tuple[Array, Array, Array]:
        h = run.sign * step.size / 2
        return rates(shorter(h).end, begin_t + h)

    nodes: tuple[float, ...] = (0.0, 1.0)
    states = [rates(start, begin_t), rates(reached_state.start, run.time(step.end))]
    if scheme.method.order > 5:
        nodes, is_used = (0.0, 0.5, 1.0), step.accepted & (target(reached_state.saved) < step.end)
        states.insert(1, jax.lax.cond(is_used, middle, lambda: states[0]))

    def inside(elapsed: Array, t: Array) -> tuple[Array, Array, Array]:
        """q and v within the step, and whether they could be projected."""
        fraction = jnp.where(elapsed < step.end, (elapsed - step.begin) / step.size, 1.0)
        if not scheme.pair.interpolates:
            # Accelerations of stiff systems are too sensitive to interpolate with.
            made = shorter(run.sign * fraction * step.size)
            return made.end.q, made.end.v, made.status == Status.OK
        q, speeds = interpolated(nodes, states, run.sign * step.size, fraction)
        v = system.dynamics.from_speeds(q, speeds, t, run.params)
        (q, v), is_finite = finite_states((q, v), (start.q, start.v))
        stabilization = scheme.stabilization
        if scheme.formulation.chart(system, q, v, t, run.params) is not None:
            stabilization = stabilization if isinstance(stabilization, Projection) else Projection()
        q, v, reached = stabilization.after_step(system, q, v, t, run.params)
        return q, v, reached & is_finite

    def goes_on(carry: tuple[RunState, RunRows]) -> Array:
        saved, elapsed = carry[0].saved, target(carry[0].saved)
        is_before_end = (elapsed < step.end) | ((elapsed == step.end) & ~step.interrupted)
        return (step.accepted & (saved <= last) & is_before_end) & (carry[0].status == Status.OK)

    def save(carry: tuple[RunState, RunRows]) -> tuple[RunState, RunRows]:
        state, rows = carry
        index, elapsed = state.saved, target(state.saved)
        t, at_begin = run.time(elapsed), (start.q, start.v, jnp.asarray(True))
        is_later = partial(jnp.where, elapsed > step.begin)
        q, v, reached = jax.tree.map(is_later, inside(elapsed, t), at_begin)
        position, velocity = residuals(scheme, q, v, t, run.params)
        position = jnp.maximum(state.position, position)
        velocity = jnp.maximum(state.velocity, velocity)
        row = SavedStates(q, v, previous.memory, position, velocity, previous.events.active)
        number = previous.counts.accepted + index - run.at_start + run.observed_before(previous)
        moves = rows.moves.with_move(number, -index, step.begin, first, reached)
        saves = with_row(rows.saves, index, row.packed, reached)
        zero = jnp.zeros_like(step.size)
        state = replace(
            state,
            saved=index + reached,
            position=zero,
            velocity=zero,
            status=jnp.where(reached, state.status, int(Status.PROJECTION_FAILED)),
            t_failed=jnp.where(reached, state.t_failed, begin_t),
        )
        return state, replace(rows, saves=saves, moves=moves)

    return jax.lax.while_loop(goes_on, save, (reached_state, rows))


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
