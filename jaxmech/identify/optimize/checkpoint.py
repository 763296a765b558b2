"""The state of an unfinished fit on disk, from which it can be continued."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxmech.config import differing, digest, environment, flush, system_digests, write_whole
from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.optimize.gradient_descent import Descent
from jaxmech.identify.problem.rows import Task
from jaxmech.utils.digests import arrays_digest, sha256


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
        "noise": task.noise,
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
