"""`Sampling`: the joint distribution of the variables of a study.

A variable has a distribution of its own; all of them share the design, correlations, a table of
draws, or importance weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.distributions import Distribution
from jaxmech.utils.text import doc, not_one_of, setting

Design = Literal["random", "latin-hypercube", "sobol", "saltelli"]


@dataclass(frozen=True)
class Correlation:
    """The correlation of two variables, of the normal variables behind them (Gaussian copula).

    Example:
        >>> from jaxmech.ensemble import Correlation, Normal, Sampling, Study, Times, draw, load
        >>> study = Study(
        ...     model="pendulum",
        ...     size=1000,
        ...     times=Times(end=1.0),
        ...     parameters={"m": Normal(sd=0.1), "l": Normal(sd=0.1)},
        ...     sampling=Sampling(correlation=(Correlation(("m", "l"), 0.6),)),
        ... )
        >>> drawn = {x.name: x.values for x in draw(study, load("pendulum", {}))}
        >>> print(np.corrcoef(drawn["m"], drawn["l"])[0, 1].round(1))
        0.6
    """

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

    Example:
        >>> Sampling(correlation=(Correlation(("m1", "l1"), 0.6),)).matrix(["l1", "g", "m1"])
        array([[1. , 0. , 0.6],
               [0. , 1. , 0. ],
               [0.6, 0. , 1. ]])
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
