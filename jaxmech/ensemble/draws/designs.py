"""`Sampling`: the joint distribution of the variables of a study, and the points of its designs.

A variable has a distribution of its own; all of them share the design, correlations, a table of
draws, or importance weights. A design gives points of the unit cube for any range of trajectories,
from the seed and their numbers alone.
"""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxmech.config import TableError, numbers, read_rows
from jaxmech.config.errors import Key, refuse
from jaxmech.ensemble.draws.distributions import Distribution
from jaxmech.utils.text import doc, not_one_of, setting

Design = Literal["random", "latin-hypercube", "sobol", "saltelli"]


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
    wide. The design "saltelli" is for `sobol-indices`, and needs d + 2 trajectories for each of its
    points, with d drawn variables. Correlated variables keep their distributions. A table has one
    row for each trajectory; its weights are divided by their mean. With a proposal each trajectory
    has the weight p(x)/q(x) (importance sampling), and all statistics use it.
    """

    design: Design = setting("random", "how points are spread")
    correlation: tuple[Correlation, ...] = setting(
        (), "correlations of pairs of variables (Gaussian copula)"
    )
    table: str | None = setting(
        None, "CSV or Parquet file of draws, a column for each variable in it"
    )
    weight: str | None = setting(None, "column of the table that holds weights of the trajectories")
    proposal: Mapping[str, Distribution] = setting(
        {}, "distributions to draw from instead, by name; trajectories get weights"
    )

    def __post_init__(self) -> None:
        if self.weight is not None and self.table is None:
            raise refuse("weight", "must be left out without `table`, whose column it names")
        for setting_name in ("correlation", "proposal"):
            if self.design == "saltelli" and getattr(self, setting_name):
                raise refuse(setting_name, 'must be left out with the design "saltelli"')
        if self.correlation and self.proposal:
            raise refuse("proposal", "must be left out where variables are correlated")

    def matrix(self, keys: list[str]) -> np.ndarray:
        """The correlation matrix of variables, or a StudyError if there is none."""
        matrix, indices = np.eye(len(keys)), dict[tuple[int, ...], int]()
        for entry, pair in enumerate(self.correlation):
            key = ("sampling", f"correlation[{entry}]", "of")
            i, j = sorted(keys.index(named(name, keys, key)) for name in pair.of)
            if i == j:
                raise refuse(key, f"must hold two different variables, but both are {keys[i]}")
            if (i, j) in indices:
                message = f"must name another pair: correlation[{indices[i, j]}] is already that of"
                raise refuse(key, f"{message} {keys[i]} and {keys[j]}")
            indices[i, j] = entry
            matrix[i, j] = matrix[j, i] = pair.value
        if np.linalg.eigvalsh(matrix)[0] <= 1e-10:
            message = (
                "must be consistent, but no variables have all these correlations: their matrix "
            )
            message += f"has the eigenvalue {np.linalg.eigvalsh(matrix)[0]:.2g}; make them smaller"
            raise refuse(("sampling", "correlation"), message)
        return matrix


def named(name: str, keys: list[str], key: tuple[str, ...]) -> str:
    """The full name of a drawn variable, such as "parameters.m1" for "m1"."""
    matches = [full for full in keys if name in (full, full.partition(".")[2])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise refuse(key, f"must say which variable {name} is: {' or '.join(matches)}")
    reason = not_one_of(name, keys, "a variable that is drawn from a distribution")
    raise refuse(key, f"must name drawn variables, but {name} {reason}")


_LEAST = 2.0**-54  # half of the smallest step between random numbers; their quantile is finite
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
    """Points of a design in the unit cube, one column for each variable."""

    def __init__(self, design: Design, seed: int, size: int, keys: Sequence[str]) -> None:
        self.design = design
        self.seed = seed
        self.size = size  # only a Latin hypercube depends on it
        self.keys = list(keys)
        self._columns = {key: k for k, key in enumerate(sorted(keys))}  # of a Sobol sequence
        dimensions = {"sobol": len(keys), "saltelli": 2 * len(keys)}.get(design, 0)
        self._sequence = _Sequence(dimensions, seed, size) if dimensions else None

    @property
    def group(self) -> int:
        """The number of successive trajectories that belong together."""
        return len(self.keys) + 2 if self.design == "saltelli" else 1

    def rows(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The points of some trajectories: a column for each variable, above 0 and below 1."""
        match self.design:
            case "saltelli":
                return self._saltelli(first, last)
            case "sobol":
                return self._sobol(first, last)
            case "latin-hypercube":
                return {key: self._stratified(key, first, last) for key in self.keys}
            case "random":
                return {key: uniform(self.seed, key, first, last) for key in self.keys}

    def _sobol(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Points of one scrambled Sobol sequence, which all variables share.

        Owen, "Scrambling Sobol' and Niederreiter-Xing points", Journal of Complexity 14, 1998.
        """
        if self._sequence is None:  # no variable is drawn
            return {}
        points = self._sequence.rows(first, last)
        return {key: points[:, self._columns[key]] for key in self.keys}

    def _stratified(self, key: str, first: int, last: int) -> np.ndarray:
        ranks = permuted(np.arange(first, last), self.size, self.seed, f"order of {key}")
        return (ranks + uniform(self.seed, key, first, last)) / self.size

    def _saltelli(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Points A, B, and A with one input of B each, trajectory by trajectory."""
        d, index = len(self.keys), np.arange(first, last)
        group, role = np.divmod(index, d + 2)
        assert self._sequence is not None
        points = self._sequence.rows(int(group[0]), int(group[-1]) + 1)[group - group[0]]
        columns = {}
        for k, key in enumerate(self.keys):  # in the order of the roles
            column = self._columns[key]
            # Trajectory 0 of a group is A, 1 is B, and k + 2 is A with input k of B.
            from_b = (role == 1) | (role == k + 2)
            columns[key] = np.where(from_b, points[:, d + column], points[:, column])
        return columns


class _Sequence:
    """A scrambled Sobol sequence of scipy, read in any order but best in its own."""

    def __init__(self, dimensions: int, seed: int, size: int) -> None:
        self._how = dimensions, seed, 30 if size <= 2**30 else 64
        self._engine: Any = None

    def rows(self, first: int, last: int) -> np.ndarray:
        """Points `first` to `last` of the sequence."""
        from scipy.stats import qmc  # imports slowly

        if self._engine is None or self._engine.num_generated != first:
            dimensions, seed, bits = self._how
            rng = generator(seed, "sobol")
            self._engine = qmc.Sobol(dimensions, scramble=True, bits=bits, rng=rng)
            if first:
                self._engine.fast_forward(first)
        with warnings.catch_warnings():  # a number of points that is no power of two
            warnings.filterwarnings("ignore", message="The balance properties of Sobol")
            points: np.ndarray = self._engine.random(last - first)
        return points


def inside(unit: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1 with 0 and 1 left out, so that their quantiles are finite."""
    return np.clip(unit, _LEAST, 1 - _LEAST * 4)


def permuted(numbers: np.ndarray, size: int, seed: int, key: str) -> np.ndarray:
    """A random permutation of range(size) at some numbers, without the rest of it.

    A Feistel network of four rounds permutes the numbers below a power of four; where one leads
    outside of the range, it is applied again (Black and Rogaway, "Ciphers with arbitrary finite
    domains", CT-RSA 2002).
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = np.uint64(2**half - 1)
    keys = generator(seed, key).integers(0, 2**64, (4, 2), dtype=np.uint64) | np.uint64(1)

    def permute(x: np.ndarray) -> np.ndarray:
        high, low = x >> np.uint64(half), x & mask
        for factor, shift in keys:
            mixed = (low + shift) * factor
            mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
            high, low = low, high ^ ((mixed >> np.uint64(64 - half)) & mask)
        return (high << np.uint64(half)) | low

    permuted_numbers = permute(numbers.astype(np.uint64))
    # A permutation of a larger range, applied until it leads back inside, permutes the smaller one.
    # The larger one is less than four times as large, so this takes few rounds.
    while (outside := permuted_numbers >= size).any():
        permuted_numbers[outside] = permute(permuted_numbers[outside])
    return permuted_numbers.astype(np.int64)


_TABLE = ("sampling", "table")


def read_table(path: Path, key: Key = _TABLE) -> dict[str, np.ndarray]:
    """The columns of a file by name, or a StudyError of the key that describes the problem."""
    if not path.is_file():
        raise refuse(key, f"must name a file, but there is none at {path}")
    try:
        frame, lines = read_rows(path)

        def location(row: int) -> str:
            return f"{path}:{lines[row + 1]}" if lines else f"{path}, row {row}"

        columns = {cells.name: numbers(cells, location) for cells in frame}
        for name, values in columns.items():
            for row in np.flatnonzero(np.isnan(values)).tolist():
                raise TableError(f"{location(row)}: column `{name}` has no number")
    except TableError as error:
        raise refuse(key, f"must hold a column of numbers for each variable: {error}") from error
    return columns
