"""The statistics of a run, merged block by block in their order."""

import io
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxmech.config import npz
from jaxmech.ensemble.blocks.kernel import BlockProgram, States
from jaxmech.ensemble.statistics import Covariance, SobolIndices
from jaxmech.ensemble.statistics.protocol import StatisticResult


class Accumulator:
    """The states of the first blocks, merged one after the other."""

    def __init__(self, program: BlockProgram) -> None:
        self._program = program
        self._leaves, self._tree = jax.tree.flatten(program.states)
        self._total: States | None = None

    def unpacked(self, data: np.ndarray) -> States:
        """The states of a block from their bytes."""
        ends = np.cumsum([leaf.size * leaf.dtype.itemsize for leaf in self._leaves])
        pairs = zip(self._leaves, np.split(data, ends[:-1]), strict=True)
        leaves = [
            np.frombuffer(content.tobytes(), leaf.dtype).reshape(leaf.shape)
            for leaf, content in pairs
        ]
        states: States = jax.tree.unflatten(self._tree, leaves)
        return states

    def add(self, states: States) -> None:
        """Add the states of the next block."""
        total = states if self._total is None else self._program.merged(self._total, states)
        # On the host: a total on one device could not be merged with a block from another one.
        self._total = jax.device_get(total)

    def results(self) -> dict[str, StatisticResult]:
        """The results of all statistics, with the names that they are of."""
        if (total := self._total) is None:
            return {}
        sampler = self._program.sampler
        results: dict[str, StatisticResult] = {}
        for name, statistic in self._program.statistics.items():
            names: StatisticResult = {}
            if isinstance(statistic, SobolIndices):
                names = {"names": sampler.points.keys}
            elif isinstance(statistic, Covariance):
                inputs = sorted(sampler.entries) if statistic.inputs else []
                names = {"names": [*statistic.names, *inputs]}
            results[name] = names | statistic.result(total[name])
        return results


def packed(states: States) -> np.ndarray:
    """Pack the states of a block as bytes."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(states)]
    return np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)


def as_file(results: Mapping[str, StatisticResult]) -> bytes:
    """Write the arrays of all statistics to an npz file, "name/key"; reproducible to the byte."""
    arrays = {
        f"{name}/{key}": np.asarray(value)
        for name, values in results.items()
        for key, value in values.items()
    }
    return npz(arrays)


def from_file(data: bytes) -> dict[str, StatisticResult]:
    """Read the results from an npz file."""
    results: dict[str, StatisticResult] = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        for key in arrays.files:
            name, _, result = key.rpartition("/")
            results.setdefault(name, {})[result] = arrays[key]
    return results


def finite(value: Any) -> Any:
    """Plain data with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
