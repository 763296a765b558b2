"""A fit on disk while it goes on, so that it can be continued."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from jaxmech.identify.prepare import Task


class CheckpointError(ValueError):
    """A folder that cannot be used, or that holds another fit."""


class Kept(NamedTuple):
    """How far a fit has come.

    Attributes:
        stage: which of several rounds.
        history: losses so far.
        arrays: unknowns, conditions and state of the optimizer.
    """

    stage: int
    history: list[float]
    arrays: Any


@dataclass(frozen=True)
class Checkpoint:
    """The state of a fit in a folder: `checkpoint.eqx` and `checkpoint.json`.

    Attributes:
        folder: where.
        fingerprint: of the task; another task is not continued.
    """

    folder: Path
    fingerprint: str

    def save(self, kept: Kept) -> None:
        """Replaces what was saved before; each file at once."""
        tree = self.folder / f"checkpoint-{len(kept.history) % 2}.eqx"
        eqx.tree_serialise_leaves(tree, kept.arrays)
        facts = {
            "fingerprint": self.fingerprint,
            "file": tree.name,
            "stage": kept.stage,
            "history": kept.history,
        }
        facts["sha256"] = _digest(facts, tree)
        new = self.folder / "checkpoint.json.new"
        new.write_text(json.dumps(facts), encoding="utf-8")
        new.replace(self.folder / "checkpoint.json")

    def load(self, like: Any) -> Kept | None:
        """What was saved last, or None.

        Args:
            like: arrays of the same shapes.

        Raises:
            CheckpointError: the folder holds another fit.
        """
        path = self.folder / "checkpoint.json"
        if not path.is_file():
            return None
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts["fingerprint"] != self.fingerprint:
                raise CheckpointError(
                    f"Argument `folder` {self.folder} holds a fit of other data or with other "
                    "settings; name another folder, or remove it."
                )
            tree, code = self.folder / facts["file"], facts.pop("sha256")
            if code != _digest(facts, tree):
                raise ValueError("it is not what was saved")
            arrays = eqx.tree_deserialise_leaves(tree, like)
        except CheckpointError:
            raise
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"Argument `folder` {self.folder} holds a damaged checkpoint ({error}); remove it."
            ) from error
        return Kept(facts["stage"], facts["history"], arrays)


def _digest(facts: Mapping[str, Any], tree: Path) -> str:
    """Of all that a checkpoint holds, so that damage is noticed."""
    told = json.dumps({key: x for key, x in facts.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(told.encode() + tree.read_bytes()).hexdigest()


def checkpoint(folder: Any, task: Task, policy: Any) -> Checkpoint | None:
    """The checkpoint of a task in a folder, which is made; None without a folder.

    Raises:
        CheckpointError: the folder cannot be written.
    """
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
    return Checkpoint(path, _fingerprint(task, policy))


def _fingerprint(task: Task, policy: Any) -> str:
    """Of everything that decides how a fit goes on, but its number of steps."""
    problem = task.problem
    names = [
        problem.system.coordinates,
        [c.name for c in problem.system.constraints],
        problem.layout.names,
        problem.layout.transforms,
        problem.method,
        problem.projection,
        problem.formulation,
        type(policy).__name__,
        problem.observe.__qualname__,
        getattr(problem.start, "__qualname__", ""),
        task.hard,
    ]
    code = hashlib.sha256(repr(names).encode())
    for leaf in jax.tree.leaves((task.data, task.conditions)):
        code.update(np.asarray(leaf).tobytes())
    return code.hexdigest()
