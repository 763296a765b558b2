"""Runs an optimizer on a task: its rounds, its checkpoints, its beginnings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from tqdm import tqdm

from jaxmech.identify.optimize.checkpoint import Checkpoint, Kept
from jaxmech.identify.optimize.gradient_descent import Descent, Validation, descend
from jaxmech.identify.optimize.levenberg_marquardt import LevenbergMarquardt, Progress, steps
from jaxmech.identify.optimize.multistart import MultiStart
from jaxmech.identify.problem.least_squares import Conditions, half_square, jumps
from jaxmech.identify.problem.residuals import FitProblem, runs
from jaxmech.identify.problem.setup import Task

ROUNDS = 30  # of a hard continuity
CONTINUOUS = 1e-9  # of the size of the states: a jump that small is none
_MOST_ROWS = 2_000_000  # that a batch of beginnings may have


@dataclass(frozen=True, eq=False)
class Solved:
    """Where an optimizer ended.

    Attributes:
        y: the unknowns.
        conditions: of the last round.
        history: half the sum of squares after each step.
        converged: whether it stopped because nothing was left to gain.
        stuck: whether it stopped although something was.
    """

    y: Array
    conditions: Conditions
    history: tuple[float, ...]
    converged: bool
    stuck: bool


def solve(
    task: Task,
    policy: LevenbergMarquardt | Descent,
    validation: Validation | None,
    *,
    checkpoint: Checkpoint | None,
    progress: bool,
) -> Solved:
    """Rounds of optimization until no jump is left; a single one where there are none.

    Args:
        task: what to fit.
        policy: the optimizer.
        validation: recordings that stop a descent.
        checkpoint: where to keep what is done.
        progress: whether to show the loss.
    """
    conditions, y, state, begun = task.conditions, task.y, None, 0
    history: list[float] = []
    if checkpoint and (kept := _continued(task, policy, validation, checkpoint)):
        begun, history = kept.stage, kept.history
        y, conditions, state = kept.arrays
    converged, stuck = False, False
    with tqdm(disable=not progress, unit=" steps", initial=len(history)) as bar:
        for stage in range(begun, ROUNDS if task.hard else 1):
            for at in _optimizer(task, policy, y, conditions, validation, state):
                y, converged, stuck = at.y, at.converged, at.done and not at.converged
                history.append(at.loss)
                bar.set_postfix_str(f"loss {at.loss:.6g}")
                bar.update()
                if checkpoint:
                    checkpoint.save(Kept(stage, history, (y, conditions, at.state)))
            state = None
            if not task.hard:
                break
            conditions, closed = _closer(task, y, conditions)
            if closed:
                break
            converged = False  # until there are no jumps
    return Solved(y, conditions, tuple(history), converged, stuck)


def _optimizer(
    task: Task, policy: Any, y: Array, conditions: Conditions, validation: Any, state: Any
) -> Iterator[Progress]:
    if isinstance(policy, Descent):
        return descend(policy, task.problem, y, task.data, conditions, validation, state)
    return steps(policy, task.problem, y, task.data, conditions, state)


def _continued(task: Task, policy: Any, validation: Any, checkpoint: Checkpoint) -> Kept | None:
    """What the checkpoint holds: the shapes of its arrays are those after one step."""
    if not (checkpoint.folder / "checkpoint.json").is_file():
        return None
    first = next(_optimizer(task, policy, task.y, task.conditions, validation, None))
    return checkpoint.load((task.y, task.conditions, first.state))


def _closer(task: Task, y: Array, conditions: Conditions) -> tuple[Conditions, bool]:
    """The next round of the augmented Lagrangian, and whether there need be none.

    The shift takes up what was left of the jumps; where they hardly fell, their weight grows.
    """
    found = runs(task.problem, y, task.data)
    left = jumps(found, task.data)
    size = jnp.maximum(jnp.sqrt((found.begin**2).mean(0)), 1e-12)
    if bool((jnp.abs(left) <= CONTINUOUS * size.max()).all()):
        return conditions, True
    shift = conditions.jump_shift + conditions.jump_weight[None] * left
    grown = 10.0 if bool(jnp.abs(left / size[None]).max() > 1e-3) else 3.0
    new = replace_weights(conditions, grown, shift)
    return new, False


def replace_weights(conditions: Conditions, factor: float, shift: Array) -> Conditions:
    """Conditions whose jumps weigh more, by a factor."""
    return Conditions(
        conditions.prior_mean,
        conditions.prior_weight,
        conditions.start_weight,
        conditions.jump_weight * factor,
        shift / factor,
    )


def beginnings(task: Task, policy: MultiStart) -> list[Task]:
    """The best of many random starts, each as a task of its own, the best first.

    Raises:
        FloatingPointError: not one of them can be simulated.
    """
    size = task.problem.layout.size
    z = policy.draws(size)
    rest = np.broadcast_to(np.asarray(task.y[size:]), (len(z), task.y.size - size))
    ys = jnp.asarray(np.concatenate([z, rest], axis=1))
    rows = task.data.segments.ts.size
    at_once = max(1, _MOST_ROWS // rows)
    loss = _many(task.problem)
    losses = np.concatenate(
        [
            np.asarray(loss(ys[k : k + at_once], task.data, task.conditions))
            for k in range(0, len(ys), at_once)
        ]
    )
    order = np.argsort(np.where(np.isfinite(losses), losses, np.inf))[: policy.refine]
    good = [k for k in order if np.isfinite(losses[k])]
    if not good:
        raise FloatingPointError(
            "Argument `multistart`: none of the beginnings can be simulated; take a smaller spread."
        )
    return [replace(task, y=ys[k]) for k in good]


@lru_cache(maxsize=32)
def _many(problem: FitProblem) -> Any:
    one = partial(half_square, problem)
    return jax.jit(jax.vmap(one, in_axes=(0, None, None)))
