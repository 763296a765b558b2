"""Run an optimizer on a task: its rounds, its checkpoints, its starting points.

A `Checkpoint` is the state of an unfinished fit on disk, from which it can be continued.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxmech.config import differing, digest, environment, flush, system_digests, write_whole
from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.optimize.condensed_steps import minimize_continuous
from jaxmech.identify.optimize.gradient_descent import Descent, descend, first_state
from jaxmech.identify.optimize.trust_region import End, Progress, TrustRegion, minimize
from jaxmech.identify.problem.least_squares import Conditions, Data, half_squares
from jaxmech.identify.problem.rows import Task
from jaxmech.identify.problem.sensor_noise import SensorNoise, estimated, reweighted
from jaxmech.identify.problem.steps import (
    integration_error,
    is_too_coarse,
    needed_steps,
    with_steps,
)
from jaxmech.integrate import FixedSteps
from jaxmech.utils.checks import require_positive, require_positive_integer, require_seed
from jaxmech.utils.digests import arrays_digest, sha256
from jaxmech.utils.text import setting


class CheckpointError(ValueError):
    """A folder that cannot be used, or that holds another fit."""


class FitState(NamedTuple):
    """The state of an unfinished fit."""

    stage: int  # index of the round
    history: list[float]  # losses so far
    arrays: Any  # unknowns, conditions and state of the optimizer


class Checkpoint(NamedTuple):
    """The state of a fit in a folder: `checkpoint.eqx` and `checkpoint.json`."""

    folder: Path
    digests: Mapping[str, str]  # of the parts of the task; a different task is not continued

    @property
    def file(self) -> Path:
        """The file that exists once anything is saved."""
        return self.folder / "checkpoint.json"

    def save(self, state: FitState) -> None:
        """Replace the previous checkpoint, so that a complete one exists at any time."""
        tree = self.folder / f"checkpoint-{len(state.history) % 2}.eqx"
        eqx.tree_serialise_leaves(tree, state.arrays)
        flush(tree)  # before the facts that name it
        facts = {"digests": dict(self.digests), "file": tree.name, "stage": state.stage,
                 "history": state.history}  # fmt: skip
        facts["sha256"] = _digest(facts, tree)
        write_whole(self.file, json.dumps(facts))

    def load(self, template: Any) -> FitState:
        """Load the last checkpoint; `like` has arrays of the same shapes."""
        try:
            facts = json.loads(self.file.read_text(encoding="utf-8"))
            if differences := differing(facts["digests"], self.digests):
                raise CheckpointError(
                    f"Argument `folder` {self.folder} holds another fit, which differs in "
                    f"{', '.join(differences)}; name another folder, or remove it."
                )
            tree, code = self.folder / facts["file"], facts.pop("sha256")
            if code != _digest(facts, tree):
                raise ValueError("its digest differs")
            arrays = eqx.tree_deserialise_leaves(tree, template)
        except CheckpointError:
            raise
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"Argument `folder` {self.folder} holds a damaged checkpoint ({error}); remove it."
            ) from error
        return FitState(facts["stage"], facts["history"], arrays)


def _digest(facts: Mapping[str, Any], tree: Path) -> str:
    """The digest of the contents of a checkpoint, to detect damage."""
    return sha256(json.dumps(facts, sort_keys=True), tree.read_bytes())


def checkpoint(folder: Any, task: Task, policy: Any, validation: Any) -> Checkpoint | None:
    """The checkpoint of a task in a folder, which is created; None without a folder."""
    if folder is None:
        return None
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path).close()  # whether it can be written
    except OSError as error:
        raise CheckpointError(
            f"Argument `folder` {path} cannot be written: {error.strerror}."
        ) from error
    return Checkpoint(path, _digests(task, policy, validation))


def _digests(task: Task, policy: Any, validation: Any) -> dict[str, str]:
    """Digests of everything that decides how a fit continues, except its number of steps."""
    problem, s, descends = task.problem, task.data.segments, isinstance(policy, Descent)
    params = problem.layout.known(task.y[: problem.layout.size], task.data.leaves)
    params = with_inputs(params, s.inputs_of(0))
    system, dtype = problem.system, s.q0.dtype
    q, v = jnp.zeros(system.n, dtype), jnp.zeros(system.n_velocities, dtype)  # shapes matter alone
    parts = system_digests(system, params, dtype)
    digests = {f"the {name} of the system": code for name, code in parts.items()}
    digests["observe"] = digest(problem.observe, q, v, s.ts[0, 0], params)
    if problem.start is not None:
        digests["start"] = digest(problem.start, s.q0[0], s.v0[0], params)
    plain = {
        "free, bounds": (problem.layout.names, tuple(x.transform for x in problem.layout.free)),
        **problem.scheme.policies,
        "optimizer": (policy.batch, policy.patience, policy.seed) if descends else policy.tolerance,
        "horizon": task.hard,
        "loss": task.loss,
    }
    digests |= {name: sha256(repr(value)) for name, value in plain.items()}
    numbers = {"recordings": s, "params0": task.data.leaves, "initial_states": task.data.along,
               "prior, start_sd or horizon": task.conditions, "multistart": task.y}  # fmt: skip
    if validation is not None:  # the recordings that decide when it stops
        numbers["validation"] = validation
    digests |= {name: arrays_digest(*jax.tree.leaves(tree)) for name, tree in numbers.items()}
    if descends:
        steps = policy.optimizer
        digests["the optax transformation"] = digest(
            steps.update, task.y, steps.init(task.y), task.y
        )
    versions = environment()
    packages = ("jaxmech", "jax", "jaxlib")
    return digests | {f"the version of {name}": versions[name] for name in packages}


ROUNDS = 30  # of fits and estimates of the noise
_FINER = 3  # times that a fit goes on with more steps
_MOST_ROWS = 2_000_000  # of the segments of a batch of starting points, to bound the memory


class Solved(NamedTuple):
    """The end of an optimization."""

    y: np.ndarray  # the unknowns
    conditions: Conditions  # of the last round
    history: tuple[float, ...]  # half the sum of squared residuals after each step
    end: End  # of the last round
    evaluations: int  # of the residuals and their derivatives
    stuck: bool  # whether it ended although there was a gain
    noise: SensorNoise | None  # where it is estimated for each sensor
    per_save: int | None  # steps between samples with which it ended; None if they are adaptive
    integration_error: float  # there, relative to the motion


def solve(
    task_and_folder: tuple[Task, Any], *,
    policy: TrustRegion | Descent, validation: Data | None, progress: bool,
) -> Solved:  # fmt: skip
    """Solve a task, with its state kept in a folder unless that is None.

    Where the steps were chosen, and are too coarse for the motion at its end, it goes on with more.
    """
    task, folder = task_and_folder
    solved = _solved(policy, task, folder, validation, progress)
    for _ in range(_FINER):
        y, end = solved.y, solved.end
        if (
            end.spent
            or not task.chooses_steps
            or not is_too_coarse(task, y, solved.integration_error, converged=end.converged)
        ):
            break
        per_save = needed_steps(task, y)
        if solved.per_save is None or per_save <= solved.per_save:
            break
        task = replace(with_steps(task, per_save), y=y)
        solved = _solved(policy, task, None, validation, progress, solved)
    return solved


def _solved(
    policy: TrustRegion | Descent, task: Task, folder: Any, validation: Data | None,
    progress: bool, before: Solved | None = None,
) -> Solved:  # fmt: skip
    """Solve a task with its steps, after what was solved `before`.

    In rounds until the noise of the sensors remains the same; in one where it is stated.
    """
    descends = isinstance(policy, Descent)
    conditions, y, state, first_round = task.conditions, task.y, None, 0
    history = [] if before is None else list(before.history)
    stored = checkpoint(folder, task, policy, validation)
    if stored and stored.file.is_file():
        template = y, conditions, first_state(policy, y) if isinstance(policy, Descent) else None
        first_round, history, (y, conditions, state) = stored.load(template)
    weighs = task.estimates_noise and not descends
    noise, evaluations = None, 0 if before is None else before.evaluations
    with tqdm(disable=not progress, unit=" steps", initial=len(history)) as bar:
        for stage in range(first_round, ROUNDS if weighs else 1):

            def record(latest: Progress, stage: int = stage, conditions: Any = conditions) -> None:
                # a trust region that goes on begins with its last point
                if descends or history[-1:] != [latest.loss]:
                    history.append(latest.loss)
                bar.set_postfix_str(f"loss {latest.loss:.6g}")
                bar.update()
                if stored:
                    arrays = latest.y, conditions, latest.state
                    stored.save(FitState(stage, history, arrays))

            if isinstance(policy, Descent):
                end = descend(policy, validation, task, y, conditions, record, state)
            else:
                minimizer = minimize_continuous if task.hard else minimize
                end = minimizer(policy, task, y, conditions, record, evaluations)
            y, state, settled = end.y, None, True
            evaluations += end.evaluations
            stuck = not end.converged and not end.spent
            if weighs:
                noise = estimated(task, y, conditions)
                conditions, is_same = reweighted(conditions, noise)
                settled &= is_same
            if settled:
                break
            end = end._replace(converged=False)  # until nothing changes any more
            if end.spent:
                break
    steps, error = task.problem.scheme.steps, integration_error(task, y)
    per_save = steps.count if isinstance(steps, FixedSteps) else None
    return Solved(y, conditions, tuple(history), end, evaluations, stuck, noise, per_save, error)


@dataclass(frozen=True)
class MultiStart:
    """Evaluate many random starting points as one batch, and fit from the best of them.

    The given parameters are one of the starting points.

    Args:
        count: number of starting points.
        spread: standard deviation of the free numbers: with 0.5, a positive parameter varies by a
            factor of about 3 in both directions, an unbounded one by half its size.
        refine: number of the best starting points from which fits are made; the best fit is the
            result.
        seed: seed of the random numbers.

    Raises:
        ValueError: if a number is not positive, or `refine` exceeds `count`.

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
    ys = np.tile(task.y, (policy.count, 1))
    ys[:, :size] = policy.draws(size)
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
