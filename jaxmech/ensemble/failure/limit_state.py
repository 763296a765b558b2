"""`LimitState`: the margins of motions, and their gradients, at points of standard normal space.

All calls have one of two shapes, a block of margins or a few lanes of margins with gradients, so
that two programs are compiled. A block is computed in slices, only as many as its points fill; on a
cluster, each worker makes the limit state of the study for itself. With a journal each result is
stored before it is used. A later process that begins again with the same settings asks the same
questions in the same order, and reads the answers from there up to the point where the earlier one
was killed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.config import npz, plain, python_files, require_no_run_code, write_whole
from jaxmech.config.errors import StoppedError
from jaxmech.ensemble.blocks.kernel import errors_as_problems, with_steps
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.cluster import pickled, unpickled
from jaxmech.ensemble.draws.sampler import Sampler
from jaxmech.ensemble.failure.margin import Margin, require_quantity
from jaxmech.ensemble.failure.standard_space import StandardSpace, standard_space
from jaxmech.ensemble.members.base import inputs_of, merged
from jaxmech.ensemble.study import Study

GRADIENT_LANES = 16  # margins with gradients in one call
_SLICE = 64  # lanes on a CPU that are computed or not, as points fill them


class ExhaustedError(Exception):
    """As many trajectories are computed as are allowed."""


Margins = dict[str, np.ndarray]  # by name: "margin", "lost", and "gradient" where it is wanted
BlockOrder = tuple[np.ndarray, int, bool]  # points, lanes, whether with gradients


def _here(limit: "LimitState", blocks: Iterable[BlockOrder]) -> Iterator[Margins]:
    return (limit.computed(*block) for block in blocks)


@dataclass(eq=False)
class LimitState:
    """The margin as a function of points u, shape (N, n); it counts its trajectories."""

    margin: Margin
    sampler: Sampler
    space: StandardSpace
    most: int  # trajectories that may be computed
    journal: Path | None = None  # folder of the results
    stop: Callable[[], bool] = lambda: False  # whether to end before the next call
    trajectories: int = 0  # including those with gradients
    gradients: int = 0
    lost: int = 0  # trajectories that could not be computed to their end
    map_blocks: Callable[["LimitState", Iterable[BlockOrder]], Iterable[Margins]] = _here
    nearest: float = inf  # the smallest margin of all trajectories
    _count: int = field(default=0, init=False)  # of the blocks so far

    @property
    def size(self) -> int:
        """The number of variables."""
        return self.space.size

    @property
    def left(self) -> int:
        """How many more trajectories may be computed."""
        return self.most - self.trajectories

    def values(self, u: np.ndarray) -> np.ndarray:
        """The margins of some points, shape (N,)."""
        parts = self._calls(u, self.margin.study.block_size, False)
        return np.concatenate([part["margin"] for part in parts])

    def with_gradients(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The margins of some points and their gradients, shapes (N,) and (N, n)."""
        parts = self._calls(u, GRADIENT_LANES, True)
        margins = np.concatenate([part["margin"] for part in parts])
        return margins, np.concatenate([part["gradient"] for part in parts])

    def motion(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """The initial state and parameters of the motion of a point, shape (n,)."""
        # By the program of the gradients, which is compiled already where there are such points.
        motion = self._evaluated(u[None], GRADIENT_LANES, True)["motion"]
        q, v, params = jax.tree.map(lambda x: np.asarray(x)[0], motion)
        return q, v, params

    def _calls(self, u: np.ndarray, lanes: int, with_gradient: bool) -> list[Margins]:
        """The results of some points, so many at a time, as stored or computed now."""
        if self.left < len(u):
            raise ExhaustedError
        parts = [u[k : k + lanes] for k in range(0, len(u), lanes)]
        results = [self._stored(k, part, with_gradient) for k, part in enumerate(parts)]
        missing = [k for k, result in enumerate(results) if result is None]
        wanted = ((parts[k], lanes, with_gradient) for k in missing if not self._stopped())
        for k, result in zip(missing, self.map_blocks(self, wanted), strict=True):
            self._store(k, parts[k], with_gradient, result)
            results[k] = result
        known = [result for result in results if result is not None]
        self._count += len(parts)
        self.trajectories += len(u)
        self.gradients += len(u) * with_gradient
        self.lost += sum(int(result["lost"].sum()) for result in known)
        finite = [x for result in known for x in result["margin"] if abs(x) < self.margin.scale]
        self.nearest = min(self.nearest, min(finite, default=inf))
        return known

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

    def _stopped(self) -> bool:
        if self.stop():
            raise StoppedError
        return False

    def computed(self, u: np.ndarray, lanes: int, with_gradient: bool) -> Margins:
        """The margins of some points, in a program of so many lanes."""
        values = self._evaluated(u, lanes, with_gradient)
        margin, lost = (np.asarray(values[name])[: len(u)] for name in ("margin", "lost"))
        result = {"margin": margin.astype(float), "lost": lost}
        if with_gradient:
            tree, entries = values["gradient"], self.sampler.entries
            by_column = np.stack(
                [_entry(tree, *entries[name])[: len(u)] for name in self.space.names], axis=1
            ).astype(float)
            by_column[lost] = 0.0
            result["gradient"] = self.space.gradient(u, by_column)
        return result

    def _evaluated(self, u: np.ndarray, lanes: int, with_gradient: bool) -> dict[str, Any]:
        """All that a program computes of some points, with lanes that mean nothing at the end."""
        member = self.margin.member
        variables = self.sampler.variables(self.space.columns(u), len(u))
        slices = 1 if with_gradient else _slices(lanes)
        padding = -(-lanes // slices) * slices - len(u)
        varying, shared = inputs_of(variables, member.dtype, padding)
        program = self._derivatives if with_gradient else self._margins
        filled = -(-len(u) * slices // (len(u) + padding))
        with errors_as_problems():
            values = program(varying, shared, slices, filled, not member.may_skip_assembly)
            if member.may_skip_assembly and not np.asarray(values["met"]).all():
                values = program(varying, shared, slices, filled, True)
        return values

    @cached_property
    def _margins(self) -> Any:
        def compute(varying: Any, shared: Any, slices: int, filled: Any, assembled: bool) -> Any:
            def one(draws: Any) -> Any:
                margin, known = self.margin.of(merged(shared, draws), assembled)
                return {"margin": margin, "lost": known["lost"], "met": known["met"]}

            return _in_slices(jax.vmap(one), varying, slices, filled)

        return jax.jit(compute, static_argnums=(2, 4))

    @cached_property
    def _derivatives(self) -> Any:
        def compute(varying: Any, shared: Any, slices: int, filled: Any, assembled: bool) -> Any:
            def one(draws: Any) -> Any:
                def margin_of(draws: Any) -> Any:
                    return self.margin.of(merged(shared, draws), assembled)

                (margin, known), gradient = jax.value_and_grad(margin_of, has_aux=True)(draws)
                return {"margin": margin, "gradient": gradient, **known}

            return _in_slices(jax.vmap(one), varying, slices, filled)

        return jax.jit(compute, static_argnums=(2, 4))

    def _file(self, ahead: int) -> Path | None:
        """The file of a block, which is so many blocks ahead."""
        return None if self.journal is None else self.journal / f"{self._count + ahead:06d}.npz"

    def _stored(self, ahead: int, u: np.ndarray, with_gradient: bool) -> Margins | None:
        """The stored result of a block; None if it is not known, or damaged."""
        file = self._file(ahead)
        if file is None or not file.is_file():
            return None
        try:
            with np.load(file) as stored:
                result = dict(stored)
        except (OSError, ValueError, EOFError):
            return None
        key, digest = result.pop("key", None), result.pop("digest", None)
        is_same = np.array_equal(key, _key(u, with_gradient)) and np.array_equal(
            digest, _digest(result)
        )
        return result if is_same else None

    def _store(self, ahead: int, u: np.ndarray, with_gradient: bool, result: Margins) -> None:
        if (file := self._file(ahead)) is not None:
            checks = {"key": _key(u, with_gradient), "digest": _digest(result)}
            write_whole(file, npz({**result, **checks}))


def _slices(lanes: int) -> int:
    """The number of parts in which so many lanes are computed."""
    return max(lanes // _SLICE, 1) if jax.default_backend() == "cpu" else 1


def _in_slices(fn: Callable[[Any], Any], varying: Any, slices: int, filled: Any) -> Any:
    """The results of the first slices of a batch; those of the others are zeros."""
    if slices == 1:
        return fn(varying)
    parts = jax.tree.map(lambda x: x.reshape(slices, -1, *x.shape[1:]), varying)
    shapes = jax.eval_shape(fn, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros((slices, *x.shape), x.dtype), shapes)

    def step(k: Any, results: Any) -> Any:
        values = fn(jax.tree.map(lambda x: x[k], parts))
        return jax.tree.map(lambda whole, x: whole.at[k].set(x), results, values)

    results = jax.lax.fori_loop(0, filled, step, {**zeros, "met": jnp.ones_like(zeros["met"])})
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), results)


def _entry(tree: Any, section: str, name: str, index: tuple[int, ...]) -> np.ndarray:
    values: np.ndarray = np.asarray(tree[section][name])
    entry: tuple[Any, ...] = (slice(None), *index)
    return values[entry]


def _key(u: np.ndarray, with_gradient: bool) -> np.ndarray:
    """What a call is identified by."""
    text = f"{u.shape} {with_gradient}".encode() + np.ascontiguousarray(u).tobytes()
    return np.frombuffer(hashlib.sha256(text).digest(), np.uint8)


def _digest(result: dict[str, np.ndarray]) -> np.ndarray:
    """The digest of a result, by which damage is noticed."""
    parts = b"".join(name.encode() + result[name].tobytes() for name in sorted(result))
    return np.frombuffer(hashlib.sha256(parts).digest(), np.uint8)


BATCH = 512  # trajectories that are computed at a time by default


def limit_state_of(study: Study, out: Path | None, folder: Path) -> LimitState:
    """The limit state of a study that has a failure, after all checks."""
    failure = study.failure
    assert failure is not None
    require_no_run_code(python_files(plain(study), folder), folder)
    bare = replace(
        study, block=study.block or BATCH, statistics={}, until=None, store="all", cluster=None
    )
    plan = planned(bare, out or Path(), folder)
    require_quantity(failure, plan.study, plan.subject)
    space = standard_space(plan.sampler)
    motion = with_steps(replace(plan.study, **plan.functions), plan.subject, plan.sampler)
    return LimitState(Margin(motion, plan.subject, failure), plan.sampler, space, failure.most)


@dataclass(frozen=True, eq=False)
class AwayBlocks:
    """The computation of blocks by the workers of a cluster.

    Each of them makes the limit state of the study for itself. Blocks are the same programs there
    as here, so that the results have the same bits on processors of one kind.
    """

    mapped: Callable[..., Iterable[Margins]]  # `map` over the workers
    study: Study  # with its failure, and its number of steps
    folder: Path  # to which its paths refer

    def map(self, limit: LimitState, blocks: Iterable[BlockOrder]) -> Iterable[Margins]:
        """The results of blocks in their order."""
        steps = limit.margin.study.steps
        study = replace(self.study, steps=steps, cluster=None)
        order = pickled((study, self.folder.resolve()))
        return self.mapped(partial(_of_worker, order), blocks)


def _of_worker(order: bytes, block: BlockOrder) -> Margins:
    return _limit_of_worker(order).computed(*block)


@lru_cache(maxsize=2)
def _limit_of_worker(order: bytes) -> LimitState:
    study, folder = unpickled(order)
    return limit_state_of(study, None, folder)
