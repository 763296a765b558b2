"""`Sampling`: the joint distribution of the variables of a study, and the points of its designs.

A variable has a distribution of its own; all of them share the design and correlations. A design
gives points of the unit cube for any range of trajectories, from the seed and their numbers alone.
"""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.utils.text import doc, not_one_of, setting

Design = Literal["random", "latin-hypercube", "sobol"]


@dataclass(frozen=True)
class Correlation:
    """The correlation of two variables, of the normal variables behind them (Gaussian copula)."""

    of: tuple[str, ...] = field(metadata=doc('two names, such as "m1" or "parameters.m1"'))
    value: float = field(metadata=doc("correlation, between -1 and 1"))

    def __post_init__(self) -> None:
        if len(self.of) != 2 or self.of[0] == self.of[1]:
            raise refuse("of", f"must hold two different names, but is {list(self.of)}")
        if not -1 < self.value < 1:
            raise refuse("value", f"must be between -1 and 1, but is {self.value}")


@dataclass(frozen=True)
class Sampling:
    """The joint distribution of the variables of a study.

    The design "sobol" spreads the points of all variables evenly in their joint space. Means then
    converge faster than with random points, and intervals, which assume independent points, are too
    wide. Correlated variables keep their distributions.
    """

    design: Design = setting("random", "how points are spread")
    correlation: tuple[Correlation, ...] = setting(
        (), "correlations of pairs of variables (Gaussian copula)"
    )

    def matrix(self, keys: list[str]) -> np.ndarray:
        """The correlation matrix of variables, or a StudyError if there is none."""
        matrix = np.eye(len(keys))
        for entry, pair in enumerate(self.correlation):
            key = ("sampling", f"correlation[{entry}]", "of")
            i, j = (keys.index(full_name(name, keys, key)) for name in pair.of)
            if i == j or matrix[i, j]:
                message = f"must hold a pair of its own, but holds {keys[i]} and {keys[j]}"
                raise refuse(key, message)
            matrix[i, j] = matrix[j, i] = pair.value
        if (least := np.linalg.eigvalsh(matrix)[0]) <= 1e-10:
            message = "must be consistent, but no variables have all these correlations: their "
            message += f"matrix has the eigenvalue {least:.2g}; make them smaller"
            raise refuse(("sampling", "correlation"), message)
        return matrix


def full_name(name: str, keys: list[str], key: tuple[str, ...]) -> str:
    """The full name of a drawn variable, such as "parameters.m1" for "m1"."""
    matches = [full for full in keys if name in (full, full.partition(".")[2])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise refuse(key, f"must say which variable {name} is: {' or '.join(matches)}")
    reason = not_one_of(name, keys, "a variable that is drawn from a distribution")
    raise refuse(key, f"must name drawn variables, but {name} {reason}")


_PER_COUNTER = 4  # numbers of 64 bits that Philox makes from one counter


def generator(seed: int, key: str) -> np.random.Generator:
    """The random numbers of a variable, which depend on the seed and its name alone."""
    words = np.frombuffer(hashlib.sha256(key.encode()).digest(), dtype="<u4")
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(int(word) for word in words))
    return np.random.Generator(np.random.Philox(sequence))


def uniform(seed: int, key: str, first: int, last: int) -> np.ndarray:
    """The numbers `first` to `last` of a variable's random sequence, from 0 to 1."""
    rng = generator(seed, key)
    skipped = first % _PER_COUNTER
    counters: Any = rng.bit_generator
    # Philox counts: any number of its sequence is reached without those before it, so a block is
    # drawn alone, with the numbers that it has in the whole.
    counters.advance(first // _PER_COUNTER)
    return rng.random(last - first + skipped)[skipped:]


class Points:
    """Points of a design in the unit cube, one column for each variable.

    Those of "random" depend on the name of their variable alone. The variables of the others, by
    `scipy.stats.qmc`, share a sequence, in the order of their names; a Latin hypercube is made as a
    whole, and depends on the size of the study.
    """

    def __init__(self, design: Design, seed: int, size: int, keys: Sequence[str]) -> None:
        self.design, self.seed, self.size = design, seed, size
        self.keys = list(keys)
        self._columns = [sorted(keys).index(key) for key in keys]  # of the sequence
        self._engine: Any = None

    def rows(self, first: int, last: int) -> np.ndarray:
        """The points of some trajectories, shape (last - first, variables), from 0 to 1."""
        if not self.keys:
            return np.zeros((last - first, 0))
        if self.design == "random":
            columns = [uniform(self.seed, key, first, last) for key in self.keys]
            return np.stack(columns, axis=1)
        from scipy.stats import qmc  # imports slowly

        if self.design == "latin-hypercube":
            if self._engine is None:
                rng = generator(self.seed, "latin hypercube")
                self._engine = qmc.LatinHypercube(len(self.keys), rng=rng).random(self.size)
            points = self._engine[first:last]
        else:
            # A scrambled sequence (Owen, "Scrambling Sobol' and Niederreiter-Xing points", Journal
            # of Complexity 14, 1998), which is read in any order but best in its own.
            if self._engine is None or self._engine.num_generated != first:
                bits = 30 if self.size <= 2**30 else 64
                rng = generator(self.seed, "sobol")
                self._engine = qmc.Sobol(len(self.keys), scramble=True, bits=bits, rng=rng)
                if first:
                    self._engine.fast_forward(first)
            with warnings.catch_warnings():  # a number of points that is no power of two
                warnings.filterwarnings("ignore", message="The balance properties of Sobol")
                points = self._engine.random(last - first)
        chosen: np.ndarray = points[:, self._columns]
        return chosen
