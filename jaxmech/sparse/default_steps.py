"""The default number of steps between two saves, by trials with step doubling.

The measure and the target are those of `integrate/steps/step_size.py`.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.error_estimate import relative
from jaxmech.integrate.steps.step_size import MEMBERS, MOST_STEPS, TARGET
from jaxmech.sparse.consistency import extents_at
from jaxmech.sparse.step import SparsePlan, step
from jaxmech.status import Status
from jaxmech.system import Params
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.tracers import actual

_ROUGH = 1e-4  # the target of methods below order 4
_TRIED = 4_000  # steps of a trial
_FIRST = 16
_TRIALS = 12
_TRUSTED = 2.0  # ratio of steps up to which the error is taken to follow the order
_RESOLVED = 1e-3  # error below which the order of the method shows


def steps_per_save(plan: SparsePlan, q: Any, v: Any, ts: Any, params: Params) -> int | None:
    """Steps per save interval for the most demanding member; None if values are unknown."""
    values = actual((q, v, ts, params), MEMBERS)
    if values is None:
        return None
    members = len(values[2])
    return max(
        (_needed(plan, *jax.tree.map(lambda x: x[k], values)) for k in range(members)),  # noqa: B023
        default=1,
    )


def _needed(plan: SparsePlan, q: Any, v: Any, ts: np.ndarray, params: Params) -> int:
    order, eps = plan.method.order, float(jnp.finfo(q.dtype).eps)
    target = max(TARGET if order >= 4 else _ROUGH, 1000 * eps)
    longest = float(np.abs(np.diff(ts)).max() / abs(ts[-1] - ts[0]))
    trial_steps, steps = _FIRST, _FIRST
    for _ in range(_TRIALS):
        trial = _tried(plan, q, v, jnp.asarray(ts[[0, -1]]), params, trial_steps)
        error = float(trial.error) * trial_steps / max(int(trial.count), 1)
        is_known = bool(trial.good) and np.isfinite(error)
        ratio = (max(error, 1e-30) / target) ** (1 / order) if is_known else np.inf
        if is_known and error < _RESOLVED and ratio <= _TRUSTED:
            steps = int(np.ceil(trial_steps * ratio))
            break
        steps = trial_steps = int(np.ceil(trial_steps * min(max(ratio, 2.0), 8.0)))
        if trial_steps > MOST_STEPS:
            break
    return max(1, int(np.ceil(longest * min(steps, MOST_STEPS))))


class _DoubledSteps(eqx.Module):
    """The relative error of the steps that were made, their number, and whether none failed."""

    error: Float[Array, ""]
    count: Int[Array, ""]
    good: Bool[Array, ""]


@jit_of("plan")
def _tried(
    plan: SparsePlan, q: Array, v: Array, ends: Array, params: Params, steps: Array
) -> _DoubledSteps:
    """The first steps of a run in `steps` equal steps, each repeated as two half steps."""
    h = (ends[1] - ends[0]) / steps
    extents = extents_at(plan.structure, q, v, ends[0], params)
    limit = jnp.minimum(steps, _TRIED)

    def doubled_step(carry: Any) -> Any:
        k, q, v, in_q, in_v, low, high, fastest, _ = carry
        t = ends[0] + k * h
        single, halves = (q, v), (q, v)
        good = jnp.asarray(True)

        # One loop, so that a step is compiled once: the whole step, then the two halves.
        def part(j: Array, carry: Any) -> Any:
            single, halves, good = carry
            is_whole = j == 0
            old_q, old_v = jax.tree.map(partial(jnp.where, is_whole), single, halves)
            begin, size = t + jnp.where(j == 2, h / 2, 0.0), jnp.where(is_whole, h, h / 2)
            new_q, new_v, health = step(plan, old_q, old_v, begin, size, params, extents)
            good &= health.status == Status.OK
            pick = partial(jnp.where, is_whole)
            new = new_q, new_v
            halves = jax.tree.map(pick, halves, new)
            single = jax.tree.map(pick, new, single)
            return single, halves, good

        single, halves, good = jax.lax.fori_loop(0, 3, part, (single, halves, good))
        divisor = 2.0**plan.method.order - 1
        in_q = in_q + jnp.abs(halves[0] - single[0]) / divisor
        in_v = in_v + jnp.abs(halves[1] - single[1]) / divisor
        q, v = halves
        low, high = jnp.minimum(low, q), jnp.maximum(high, q)
        return k + 1, q, v, in_q, in_v, low, high, jnp.maximum(fastest, jnp.abs(v)), good

    zero = jnp.zeros_like(q)
    start = jnp.zeros((), jnp.int32), q, v, zero, zero, q, q, jnp.abs(v), jnp.asarray(True)
    count, _, _, in_q, in_v, low, high, fastest, good = jax.lax.while_loop(
        lambda carry: (carry[0] < limit) & carry[-1], doubled_step, start
    )
    return _DoubledSteps(relative(in_q, in_v, low, high, fastest, count * h), count, good)
