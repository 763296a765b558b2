"""The statistics of a run: the states of all blocks, merged in order, and their results."""

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxmech.config.run_folder import npz
from jaxmech.ensemble.kernel import BlockProgram, States
from jaxmech.ensemble.passages import counted_times
from jaxmech.ensemble.statistics import Covariance, SobolIndices
from jaxmech.ensemble.statistics.audit import AUDIT
from jaxmech.ensemble.statistics.protocol import AbstractStatistic, Found
from jaxmech.ensemble.study import Until

Estimate = tuple[float, float, float]


class Accumulator:
    """The states of the first blocks, merged one after the other, with shapes `like` one."""

    def __init__(self, program: BlockProgram, like: States, until: Until | None) -> None:
        self._program, self._until = program, until
        self._leaves, self._tree = jax.tree.flatten(like)
        self._total: States | None = None
        self.blocks = 0

    @property
    def state_bytes(self) -> int:
        """The number of bytes of the states of one block."""
        return sum(leaf.size * leaf.dtype.itemsize for leaf in self._leaves)

    def unpacked(self, data: np.ndarray) -> States:
        """The states of a block from their bytes."""
        ends = np.cumsum([leaf.size * leaf.dtype.itemsize for leaf in self._leaves])
        pairs = zip(self._leaves, np.split(data, ends[:-1]), strict=True)
        leaves = [np.frombuffer(x.tobytes(), like.dtype).reshape(like.shape) for like, x in pairs]
        states: States = jax.tree.unflatten(self._tree, leaves)
        return states

    def add(self, states: States) -> None:
        """Add the states of the next block."""
        both = states if self._total is None else self._program.merged(self._total, states)
        # On the host: a total on one device could not be merged with a block from another one.
        self._total = jax.device_get(both)
        self.blocks += 1

    @property
    def enough(self) -> bool:
        """Whether the study may stop here."""
        until, total = self._until, self._total
        if until is None or total is None or self.blocks * self._program.block < until.at_least:
            return False
        statistic: Any = self._program.statistics[until.quantity]
        statistic = replace(statistic, confidence=until.confidence)
        found = statistic.estimate(statistic.result(total[until.quantity]))
        return found is not None and (found[2] - found[1]) / 2 <= until.half_width

    def estimates(self) -> dict[str, Estimate]:
        """Each statistic that is about one number, with its interval."""
        if self._total is None:
            return {}
        found: dict[str, Estimate] = {}
        for name, one in self._program.statistics.items():
            if name != AUDIT and type(one).estimate is not AbstractStatistic.estimate:
                estimate = one.estimate(one.result(self._total[name]))
                found |= {name: estimate} if estimate else {}
        return found

    def results(self) -> dict[str, Found]:
        """The results of all statistics."""
        if (total := self._total) is None:
            return {}
        known = self._program.statistics.items()
        return {
            name: self._names_of(one) | one.result(total[name]) | self._times_of(one)
            for name, one in known
        }

    def _times_of(self, statistic: AbstractStatistic) -> Found:
        """The times that count, for statistics of passages."""
        trajectory = self._program.trajectory
        times = counted_times(statistic, trajectory.study, trajectory.system.value_names)
        return {} if times is None else {"times": times}

    def _names_of(self, statistic: AbstractStatistic) -> Found:
        """The names of the rows of results, for several quantities or inputs."""
        points = self._program.sampler.points.keys
        if isinstance(statistic, SobolIndices):
            return {"names": points}
        if not isinstance(statistic, Covariance):
            return {}
        inputs = sorted(self._program.sampler.keys) if statistic.inputs else []
        return {"names": [*statistic.names, *inputs]}


def packed(states: States) -> np.ndarray:
    """Pack the states of a block as bytes."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(states)]
    return np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)


def as_file(results: Mapping[str, Found]) -> bytes:
    """Write the arrays of all statistics to an npz file, "name/key"; reproducible to the byte."""
    arrays = {
        f"{name}/{what}": np.asarray(value)
        for name, found in results.items()
        if name != AUDIT
        for what, value in found.items()
    }
    return npz(arrays)


def from_file(data: bytes) -> dict[str, Found]:
    """Read the results from an npz file."""
    found: dict[str, Found] = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        for key in arrays.files:
            name, _, what = key.rpartition("/")
            found.setdefault(name, {})[what] = arrays[key]
    return found


def finite(value: Any) -> Any:
    """Plain data with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
