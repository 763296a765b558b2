"""`LimitState`: the margins of motions, and their gradients, at points of standard normal space.

All calls have one of two shapes, a block of margins or a few lanes of margins with gradients, so
that two programs are compiled. A block is computed in slices, only as many as its points fill. With
a journal each result is stored before it is used. A later process that begins again with the same
settings asks the same questions, and reads the answers from there up to the point where the earlier
one was killed.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.config import plain, python_files, require_no_run_code
from jaxmech.config.errors import StoppedError
from jaxmech.ensemble.blocks.kernel import errors_as_problems, with_steps
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.draws.sampler import Sampler
from jaxmech.ensemble.failure.margin import Margin, require_quantity
from jaxmech.ensemble.failure.standard_space import StandardSpace, standard_space
from jaxmech.ensemble.members.base import inputs_of, merged
from jaxmech.ensemble.study import Study

GRADIENT_LANES = 16  # margins with gradients in one call
_SLICE = 64  # lanes on a CPU that are computed or not, as points fill them
_BLOCK = 512  # trajectories that are computed at a time by default

Margins = dict[str, np.ndarray]  # by name: "margin", "lost", and "gradient" where it is wanted


class ExhaustedError(Exception):
    """As many trajectories are computed as are allowed."""


class Journal:
    """The results of calls in a file, one line of JSON each, by the digest of their points."""

    def __init__(self, file: Path) -> None:
        self.file, self.results = file, dict[str, Margins]()
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            with suppress(ValueError):  # of a line that a killed process did not finish
                key, arrays = json.loads(line)
                self.results[key] = {name: np.asarray(x) for name, x in arrays.items()}

    def add(self, key: str, result: Margins) -> None:
        """Store a result; it is on the disk when this returns."""
        arrays = {name: x.tolist() for name, x in result.items()}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps([key, arrays])}")  # apart from what a killed process left
            file.flush()
            os.fsync(file.fileno())


@dataclass(eq=False)
class LimitState:
    """The margin as a function of points u, shape (N, n); it counts its trajectories."""

    margin: Margin
    sampler: Sampler
    space: StandardSpace
    most: int  # trajectories that may be computed
    journal: Journal | None = None
    stop: Callable[[], bool] = lambda: False  # whether to end before the next call
    trajectories: int = 0  # including those with gradients
    gradients: int = 0
    lost: int = 0  # trajectories that could not be computed to their end
    nearest: float = inf  # the smallest margin of all trajectories

    @property
    def size(self) -> int:
        """The number of variables."""
        return self.space.size

    @property
    def block(self) -> int:
        """The number of margins in one call."""
        return self.margin.study.block_size

    @property
    def left(self) -> int:
        """How many more trajectories may be computed."""
        return self.most - self.trajectories

    def values(self, u: np.ndarray) -> np.ndarray:
        """The margins of some points, shape (N,)."""
        return np.concatenate([part["margin"] for part in self._calls(u, False)])

    def with_gradients(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The margins of some points and their gradients, shapes (N,) and (N, n)."""
        parts = self._calls(u, True)
        margins = np.concatenate([part["margin"] for part in parts])
        return margins, np.concatenate([part["gradient"] for part in parts])

    def motion(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """The initial state and parameters of the motion of a point, shape (n,)."""
        # By the program of the gradients, which is compiled already where there are such points.
        motion = self._evaluated(u[None], True)["motion"]
        q, v, params = jax.tree.map(lambda x: np.asarray(x)[0], motion)
        return q, v, params

    def nearest_text(self) -> str:
        """How near to the failure a trajectory came."""
        failure = self.margin.failure
        if failure.threshold is None:
            return f"the function of {failure.of} comes within {self.nearest:.4g} of its event"
        extreme = "largest" if failure.below is None else "smallest"
        value = failure.threshold + failure.margin_sign * self.nearest
        return (
            f"the {extreme} {failure.of} was {value:.6g}, and the threshold is "
            f"{failure.threshold:g}: can it be reached?"
        )

    def _calls(self, u: np.ndarray, with_gradient: bool) -> list[Margins]:
        """The results of some points, so many at a time, from the journal or computed now."""
        if self.left < len(u):
            raise ExhaustedError
        lanes, results = GRADIENT_LANES if with_gradient else self.block, []
        for part in (u[k : k + lanes] for k in range(0, len(u), lanes)):
            text = f"{part.shape} {with_gradient}".encode() + np.ascontiguousarray(part).tobytes()
            key = hashlib.sha256(text).hexdigest()
            result = self.journal.results.get(key) if self.journal else None
            if result is None:
                if self.stop():
                    raise StoppedError
                result = self._computed(part, with_gradient)
                if self.journal:
                    self.journal.add(key, result)
            results.append(result)
        self.trajectories += len(u)
        self.gradients += len(u) * with_gradient
        self.lost += sum(int(result["lost"].sum()) for result in results)
        finite = [x for result in results for x in result["margin"] if abs(x) < self.margin.scale]
        self.nearest = min(self.nearest, min(finite, default=inf))
        return results

    def _computed(self, u: np.ndarray, with_gradient: bool) -> Margins:
        values = self._evaluated(u, with_gradient)
        margin, lost = (np.asarray(values[name])[: len(u)] for name in ("margin", "lost"))
        result = {"margin": margin.astype(float), "lost": lost}
        if with_gradient:
            by_column, entries = np.zeros((len(u), self.size)), self.sampler.entries
            for k, name in enumerate(self.space.names):
                section, variable, index = entries[name]
                entry: Any = (slice(len(u)), *index)
                by_column[:, k] = np.asarray(values["gradient"][section][variable])[entry]
            by_column[lost] = 0.0
            result["gradient"] = self.space.gradient(u, by_column)
        return result

    def _evaluated(self, u: np.ndarray, with_gradient: bool) -> dict[str, Any]:
        """All that a program computes of some points, with lanes that mean nothing at the end."""
        member, lanes, slices = self.margin.member, GRADIENT_LANES, 1
        if not with_gradient:
            lanes = self.block
            slices = max(lanes // _SLICE, 1) if jax.default_backend() == "cpu" else 1
        variables = self.sampler.variables(self.space.columns(u), len(u))
        padding = -(-lanes // slices) * slices - len(u)
        varying, shared = inputs_of(variables, member.dtype, padding)
        full = -(-len(u) * slices // (len(u) + padding))  # slices that hold points
        with errors_as_problems():
            quick = member.may_skip_assembly
            values: dict[str, Any] = self.program(
                varying, shared, full, slices, with_gradient, not quick
            )
            if quick and not np.asarray(values["met"]).all():
                values = self.program(varying, shared, full, slices, with_gradient, True)
        return values

    @cached_property
    def program(self) -> Callable[..., Any]:
        """The compiled function of the draws of some lanes."""

        def compute(
            varying: Any, shared: Any, full: Any, slices: int, with_gradient: bool, assembled: bool
        ) -> Any:
            def margin_of(draws: Any) -> Any:
                return self.margin.of(merged(shared, draws), assembled)

            def one(draws: Any) -> Any:
                if not with_gradient:
                    margin, known = margin_of(draws)
                    return {"margin": margin, "lost": known["lost"], "met": known["met"]}
                (margin, known), gradient = jax.value_and_grad(margin_of, has_aux=True)(draws)
                return {"margin": margin, "gradient": gradient, **known}

            if slices == 1:
                return jax.vmap(one)(varying)
            parts = jax.tree.map(lambda x: x.reshape(slices, -1, *x.shape[1:]), varying)
            first = jax.tree.map(lambda x: x[0], parts)
            shapes = jax.eval_shape(jax.vmap(one), first)
            zeros = jax.tree.map(lambda x: jnp.zeros((slices, *x.shape), x.dtype), shapes)

            def step(k: Any, results: Any) -> Any:
                values = jax.vmap(one)(jax.tree.map(lambda x: x[k], parts))
                return jax.tree.map(lambda whole, x: whole.at[k].set(x), results, values)

            empty = {**zeros, "met": jnp.ones_like(zeros["met"])}
            results = jax.lax.fori_loop(0, full, step, empty)
            return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), results)

        return jax.jit(compute, static_argnums=(3, 4, 5))


def limit_state_of(study: Study, folder: Path) -> LimitState:
    """The limit state of a study that has a failure, after all checks."""
    failure = study.failure
    assert failure is not None
    require_no_run_code(python_files(plain(study), folder), folder)
    bare = replace(study, block=study.block or _BLOCK, statistics={}, store="all", cluster=None)
    plan = planned(bare, folder)
    require_quantity(failure, plan.study, plan.subject)
    space = standard_space(plan.sampler)
    motion = with_steps(replace(plan.study, **plan.functions), plan.subject, plan.sampler)
    return LimitState(Margin(motion, plan.subject, failure), plan.sampler, space, failure.most)
