"""Run an optimizer on a task: its rounds, its checkpoints, its starting points."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from tqdm import tqdm

from jaxmech.identify.optimize.checkpoint import FitState, checkpoint
from jaxmech.identify.optimize.gradient_descent import Descent, descend
from jaxmech.identify.optimize.levenberg_marquardt import LevenbergMarquardt, steps
from jaxmech.identify.problem.least_squares import Conditions, Data, Task, half_squares, jumps, runs
from jaxmech.utils.checks import require_positive, require_positive_integer, require_seed
from jaxmech.utils.field_docs import setting

ROUNDS = 30  # of a hard continuity condition
CONTINUOUS = 1e-9  # size of a jump, relative to the states, that counts as none
_MOST_ROWS = 2_000_000  # of the segments of a batch of starting points, to bound the memory


class Solved(NamedTuple):
    """The end of an optimization."""

    y: Array  # the unknowns
    conditions: Conditions  # of the last round
    history: tuple[float, ...]  # half the sum of squared residuals after each step
    converged: bool  # whether it ended for lack of a possible gain
    stuck: bool  # whether it ended although something was


def solve(
    task_and_folder: tuple[Task, Any], *,
    policy: LevenbergMarquardt | Descent, validation: Data | None, progress: bool,
) -> Solved:  # fmt: skip
    """Solve a task, with its state kept in a folder unless that is None.

    In rounds until no jump is left; in a single round without a hard condition.
    """
    task, folder = task_and_folder
    if isinstance(policy, Descent):
        run: Any = partial(descend, policy, validation)
    else:
        run = partial(steps, policy)
    conditions, y, state, first_round = task.conditions, task.y, None, 0
    history: list[float] = []
    stored = checkpoint(folder, task, policy, validation)
    if stored and stored.file.is_file():
        # only a first step tells the shapes of the arrays in the state of the optimizer
        first = next(run(task, y, conditions))
        first_round, history, (y, conditions, state) = stored.load((y, conditions, first.state))
    converged, stuck = False, False
    with tqdm(disable=not progress, unit=" steps", initial=len(history)) as bar:
        for stage in range(first_round, ROUNDS if task.hard else 1):
            for latest in run(task, y, conditions, state):
                y, converged = latest.y, latest.converged
                stuck = latest.done and not latest.converged
                history.append(latest.loss)
                bar.set_postfix_str(f"loss {latest.loss:.6g}")
                bar.update()
                if stored:
                    stored.save(FitState(stage, history, (y, conditions, latest.state)))
            state = None
            if not task.hard:
                break
            conditions, closed = _closer(task, y, conditions)
            if closed:
                break
            converged = False  # until there are no jumps
    return Solved(y, conditions, tuple(history), converged, stuck)


def _closer(task: Task, y: Array, conditions: Conditions) -> tuple[Conditions, bool]:
    """Conditions for the next round of the augmented Lagrangian, and whether all jumps vanish."""
    segment_runs = runs(task.problem, y, task.data)
    gaps = jumps(segment_runs.end, segment_runs.begin, task.data)
    size = jnp.maximum(jnp.sqrt((segment_runs.begin**2).mean(0)), 1e-12)
    if bool((jnp.abs(gaps) <= CONTINUOUS * size.max()).all()):
        return conditions, True
    # the shift is the estimate of the multipliers; where the jumps hardly fell, their weight grows
    shift = conditions.jump_shift + conditions.jump_weight[None] * gaps
    grown = 10.0 if bool(jnp.abs(gaps / size[None]).max() > 1e-3) else 3.0
    return conditions.with_jumps(grown, shift), False


@dataclass(frozen=True)
class MultiStart:
    """Evaluate many random starting points as one batch, and fit from the best of them.

    The given parameters are one of the starting points.

    Args:
        count: number of starting points.
        spread: standard deviation of the free numbers: 0.5 scatters a positive parameter over a
            factor of about 3 up and down, an unbounded one by half its size.
        refine: number of the best ones that are fitted; the best fit is the result.
        seed: seed of the random numbers.

    Raises:
        ValueError: a number is not positive, or `refine` exceeds `count`.

    Example:
        >>> MultiStart(count=64, refine=3)
        MultiStart(count=64, spread=0.5, refine=3, seed=0)
    """

    count: int = setting(64, "starting points, the given one among them")
    spread: float = setting(0.5, "how far they scatter; 0.5 is a factor of about 3")
    refine: int = setting(3, "how many of the best are fitted")
    seed: int = setting(0, "seed of the draws")

    def __post_init__(self) -> None:
        require_positive_integer("count", self.count, "give the number of starting points")
        require_positive_integer("refine", self.refine, "give the number of fits")
        require_seed(self.seed)
        require_positive("spread", self.spread)
        if self.refine > self.count:
            raise ValueError(
                f"Argument `refine` must be at most `count`, {self.count}, but is {self.refine}."
            )

    def draws(self, size: int) -> np.ndarray:
        """The free numbers z of all starting points, (count, size); the first are zero."""
        z = np.random.default_rng(self.seed).normal(0.0, self.spread, (self.count, size))
        z[0] = 0.0
        return z


def starting_points(task: Task, policy: MultiStart) -> list[Task]:
    """The best of many random starting points, each as a task of its own, the best first."""
    size = task.problem.layout.size
    ys = jnp.tile(task.y, (policy.count, 1)).at[:, :size].set(policy.draws(size))
    at_once = max(1, _MOST_ROWS // task.data.segments.ts.size)
    parts = [ys[k : k + at_once] for k in range(0, len(ys), at_once)]
    losses = [half_squares(task.problem, part, task.data, task.conditions) for part in parts]
    all_losses = np.concatenate(losses)
    good = [k for k in np.argsort(all_losses)[: policy.refine] if np.isfinite(all_losses[k])]
    if not good:
        raise FloatingPointError(
            "Argument `multistart`: none of the starting points can be simulated; take a smaller "
            "spread."
        )
    return [replace(task, y=ys[k]) for k in good]
