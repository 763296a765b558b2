"""`MultiStart`, and the run of an optimizer on a task: its rounds, checkpoints, starting points."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from tqdm import tqdm

from jaxmech.config.digest import changed, digest, system_digests
from jaxmech.config.environment import environment
from jaxmech.identify.optimize.optimizers import (
    Descent,
    LevenbergMarquardt,
    Progress,
    descend,
    steps,
)
from jaxmech.identify.problem.residuals import (
    Conditions,
    Data,
    FitProblem,
    Task,
    half_square,
    jumps,
    runs,
)
from jaxmech.utils.checks import require_positive_integer, require_seed
from jaxmech.utils.field_docs import doc
from jaxmech.utils.jit_cache import jit_of

_PACKAGES = ("jaxmech", "jax", "jaxlib")
ROUNDS = 30  # of a hard continuity condition
CONTINUOUS = 1e-9  # size of a jump, relative to the states, that counts as none
_MOST_ROWS = 2_000_000  # of the segments of a batch of starting points, to bound the memory


class CheckpointError(ValueError):
    """A folder that cannot be used, or that holds another fit."""


class Kept(NamedTuple):
    """How far a fit has come."""

    stage: int  # which of several rounds
    history: list[float]  # losses so far
    arrays: Any  # unknowns, conditions and state of the optimizer


@dataclass(frozen=True)
class Checkpoint:
    """The state of a fit in a folder: `checkpoint.eqx` and `checkpoint.json`."""

    folder: Path
    digests: Mapping[str, str]  # of the parts of the task; a different task is not continued

    def save(self, kept: Kept) -> None:
        """Replace what was saved before, so that a complete checkpoint exists at any time."""
        tree = self.folder / f"checkpoint-{len(kept.history) % 2}.eqx"
        eqx.tree_serialise_leaves(tree, kept.arrays)
        facts = {"digests": dict(self.digests), "file": tree.name, "stage": kept.stage,
                 "history": kept.history}  # fmt: skip
        facts["sha256"] = _digest(facts, tree)
        new = self.folder / "checkpoint.json.new"
        new.write_text(json.dumps(facts), encoding="utf-8")
        new.replace(self.folder / "checkpoint.json")

    def load(self, like: Any) -> Kept | None:
        """What was saved last, or None, where `like` has arrays of the same shapes."""
        path = self.folder / "checkpoint.json"
        if not path.is_file():
            return None
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if others := changed(facts["digests"], self.digests):
                raise CheckpointError(
                    f"Argument `folder` {self.folder} holds another fit, which differs in "
                    f"{', '.join(others)}; name another folder, or remove it."
                )
            tree, code = self.folder / facts["file"], facts.pop("sha256")
            if code != _digest(facts, tree):
                raise ValueError("it is not what was saved")
            arrays = eqx.tree_deserialise_leaves(tree, like)
        except CheckpointError:
            raise
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"Argument `folder` {self.folder} holds a damaged checkpoint ({error}); remove it."
            ) from error
        return Kept(facts["stage"], facts["history"], arrays)


def _digest(facts: Mapping[str, Any], tree: Path) -> str:
    """The digest of the contents of a checkpoint, to detect damage."""
    told = json.dumps({key: x for key, x in facts.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(told.encode() + tree.read_bytes()).hexdigest()


def checkpoint(folder: Any, task: Task, policy: Any) -> Checkpoint | None:
    """The checkpoint of a task in a folder, which is created; None without a folder."""
    if folder is None:
        return None
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CheckpointError(
            f"Argument `folder` {path} cannot be written: {error.strerror}."
        ) from error
    return Checkpoint(path, _digests(task, policy))


def _digests(task: Task, policy: Any) -> dict[str, str]:
    """Digests of everything that decides how a fit continues, except its number of steps."""
    problem, s = task.problem, task.data.segments
    params = problem.layout.params(task.y[: problem.layout.size], task.data.leaves)
    state = jnp.zeros(problem.system.n, s.q0.dtype)  # of functions only shapes and types matter
    found = {
        f"the {name} of the system": code
        for name, code in system_digests(problem.system, params, state.dtype).items()
    }
    found["observe"] = digest(problem.observe, state, state, s.ts[0, 0], params)
    if problem.start is not None:
        found["start"] = digest(problem.start, s.q0[0], s.v0[0], params)
    plain = {
        "free, bounds": (problem.layout.names, problem.layout.transforms),
        "method": problem.method,
        "projection": problem.projection,
        "formulation": problem.formulation,
        "optimizer": _settings(policy),
        "horizon": task.hard,
    }
    found |= {name: _hashed(repr(value).encode()) for name, value in plain.items()}
    numbers = {"recordings": s, "params0": task.data.leaves, "initial_states": task.data.along_q,
               "prior, start_sd or horizon": task.conditions, "multistart": task.y}  # fmt: skip
    for name, tree in numbers.items():
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        shapes = repr([leaf.shape for leaf in leaves]).encode()
        found[name] = _hashed(shapes + b"".join(leaf.tobytes() for leaf in leaves))
    if isinstance(policy, Descent):
        steps = policy.optimizer
        found["the optax transformation"] = digest(steps.update, task.y, steps.init(task.y), task.y)
    facts = environment()
    return {**found, **{f"the version of {name}": facts[name] for name in _PACKAGES}}


def _settings(policy: Any) -> Any:
    """The settings of an optimizer, except its number of steps and functions of optax."""
    if isinstance(policy, Descent):
        return "descent", policy.batch, policy.patience, policy.seed
    return "squares", policy.tolerance


def _hashed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class MultiStart:
    """Evaluate many random starting points as one batch, and fit from the best of them.

    The given parameters are one of the starting points.

    Args:
        count: number of starting points.
        spread: standard deviation of the free numbers: 0.5 scatters a positive parameter over a
            factor of about 3 up and down, an unbounded one by half its size.
        refine: how many of the best are fitted; the best fit is the result.
        seed: of the random numbers.

    Raises:
        ValueError: a number is not positive, or `refine` exceeds `count`.

    Example:
        >>> MultiStart(count=64, refine=3)
        MultiStart(count=64, spread=0.5, refine=3, seed=0)
    """

    count: int = field(default=64, metadata=doc("starting points, the given one among them"))
    spread: float = field(
        default=0.5, metadata=doc("how far they scatter; 0.5 is a factor of about 3")
    )
    refine: int = field(default=3, metadata=doc("how many of the best are fitted"))
    seed: int = field(default=0, metadata=doc("seed of the draws"))

    def __post_init__(self) -> None:
        require_positive_integer("count", self.count, "count the starting points")
        require_positive_integer("refine", self.refine, "count the fits")
        require_seed(self.seed)
        if not self.spread > 0:
            raise ValueError(f"Argument `spread` must be positive, but is {self.spread}.")
        if self.refine > self.count:
            raise ValueError(
                f"Argument `refine` must be at most `count`, {self.count}, but is {self.refine}."
            )

    def draws(self, size: int) -> np.ndarray:
        """The free numbers z of all starting points, (count, size); the first are zero."""
        z = np.random.default_rng(self.seed).normal(0.0, self.spread, (self.count, size))
        z[0] = 0.0
        return z


@dataclass(frozen=True, eq=False)
class Solved:
    """Where an optimizer ended."""

    y: Array  # the unknowns
    conditions: Conditions  # of the last round
    history: tuple[float, ...]  # half the sum of squared residuals after each step
    converged: bool  # whether it ended because nothing was left to gain
    stuck: bool  # whether it ended although something was


def solve(
    task: Task, policy: LevenbergMarquardt | Descent, validation: Data | None, *,
    checkpoint: Checkpoint | None, progress: bool,
) -> Solved:  # fmt: skip
    """Optimize in rounds until no jump is left; in a single round without a hard condition."""
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
        return descend(policy, task, y, conditions, validation, state)
    return steps(policy, task, y, conditions, state)


def _continued(task: Task, policy: Any, validation: Any, checkpoint: Checkpoint) -> Kept | None:
    if not (checkpoint.folder / "checkpoint.json").is_file():
        return None
    # only a first step tells the shapes of the arrays in the state of the optimizer
    first = next(_optimizer(task, policy, task.y, task.conditions, validation, None))
    return checkpoint.load((task.y, task.conditions, first.state))


def _closer(task: Task, y: Array, conditions: Conditions) -> tuple[Conditions, bool]:
    """Conditions for the next round of the augmented Lagrangian, and whether all jumps vanish."""
    found = runs(task.problem, y, task.data)
    left = jumps(found, task.data)
    size = jnp.maximum(jnp.sqrt((found.begin**2).mean(0)), 1e-12)
    if bool((jnp.abs(left) <= CONTINUOUS * size.max()).all()):
        return conditions, True
    # the shift is the estimate of the multipliers; where the jumps hardly fell, their weight grows
    shift = conditions.jump_shift + conditions.jump_weight[None] * left
    grown = 10.0 if bool(jnp.abs(left / size[None]).max() > 1e-3) else 3.0
    return conditions.with_jumps(grown, shift), False


def starting_points(task: Task, policy: MultiStart) -> list[Task]:
    """The best of many random starting points, each as a task of its own, the best first."""
    size = task.problem.layout.size
    z = policy.draws(size)
    rest = np.broadcast_to(np.asarray(task.y[size:]), (len(z), task.y.size - size))
    ys = jnp.asarray(np.concatenate([z, rest], axis=1))
    at_once = max(1, _MOST_ROWS // task.data.segments.ts.size)
    parts = [ys[k : k + at_once] for k in range(0, len(ys), at_once)]
    losses = np.concatenate(
        [_losses(task.problem, part, task.data, task.conditions) for part in parts]
    )
    order = np.argsort(np.where(np.isfinite(losses), losses, np.inf))[: policy.refine]
    good = [k for k in order if np.isfinite(losses[k])]
    if not good:
        raise FloatingPointError(
            "Argument `multistart`: none of the starting points can be simulated; take a smaller "
            "spread."
        )
    return [replace(task, y=ys[k]) for k in good]


@jit_of("problem")
def _losses(problem: FitProblem, ys: Array, data: Data, conditions: Conditions) -> Array:
    return jax.vmap(lambda y: half_square(problem, y, data, conditions))(ys)
