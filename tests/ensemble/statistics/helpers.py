"""Samples of made-up quantities, in blocks, and their statistics."""

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from jaxmech.ensemble.statistics import AbstractStatistic, Sample


def sample(values: Mapping[str, Any], good: Any = None, first: int = 0) -> Sample:
    """All values as one sample."""
    count = len(next(iter(values.values())))
    good = np.full(count, True) if good is None else np.asarray(good, bool)
    number = first + np.arange(count)
    found = {name: np.asarray(x) for name, x in values.items()}
    return Sample(found, good, np.full(count, True), number)


def states(statistic: AbstractStatistic, whole: Sample, *ends: int) -> list[Any]:
    """The states of parts of a sample, each updated from the empty state."""
    count = len(whole.number)
    bounds = [0, *ends, count]
    found = []
    add, _ = compiled(statistic)
    for start, end in pairwise(bounds):
        found.append(add(jax.tree.map(lambda x, a=start, b=end: x[a:b], whole)))
    return found


@cache
def compiled(statistic: AbstractStatistic) -> tuple[Any, Any]:
    """The state of a sample, and the merging of two."""

    def of(one: Sample) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return statistic.add(statistic.init(one), one)

    def both(first: Any, second: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return statistic.merge(first, second)

    return jax.jit(of), jax.jit(both)


def merged(statistic: AbstractStatistic, parts: list[Any]) -> Any:
    """The states of all parts, merged in their order."""
    total = parts[0]
    for part in parts[1:]:
        total = compiled(statistic)[1](total, part)
    return total


def result(statistic: AbstractStatistic, whole: Sample, *ends: int) -> dict[str, Any]:
    """The result of a statistic for a sample in parts."""
    return statistic.result(jax.device_get(merged(statistic, states(statistic, whole, *ends))))
