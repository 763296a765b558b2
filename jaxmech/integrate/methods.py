"""Methods of integration; explicit Runge-Kutta methods with a fixed step, as Butcher tableaus."""

import abc
from dataclasses import dataclass, field
from math import factorial
from typing import ClassVar, NamedTuple

import numpy as np

from jaxmech.utils.checks import require_positive_integer
from jaxmech.utils.field_docs import doc


class Tableau(NamedTuple):
    """Coefficients of an explicit Runge-Kutta method.

    Attributes:
        nodes: c, the fraction of the step at which each stage is taken.
        stages: a, row i has the weights of the stages before stage i.
        weights: b, of the stages in the step.
        order: order of accuracy.
    """

    nodes: tuple[float, ...]
    stages: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    order: int


@dataclass(frozen=True)
class AbstractMethod(abc.ABC):
    """A method of integration and the number of steps between two save times.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.

    Raises:
        ValueError: `substeps` is not a positive integer.
    """

    substeps: int | None = field(
        default=None,
        metadata=doc(
            "steps from one saved time, or sample, to the next; by default chosen from the motion"
        ),
    )

    def __post_init__(self) -> None:
        if self.substeps is not None:
            remedy = "give the steps per save interval, or leave it out to have them chosen"
            require_positive_integer("substeps", self.substeps, remedy)

    @property
    def count(self) -> int:
        """The number of substeps, or a ValueError while it is not chosen."""
        if self.substeps is None:
            raise ValueError("Argument `substeps` must be chosen by now; give it a number.")
        return self.substeps

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """Order of accuracy."""

    @property
    @abc.abstractmethod
    def error_constant(self) -> float:
        """The error of a step, relative to the first missing term of the Taylor series."""


class AbstractRungeKutta(AbstractMethod):
    """An explicit Runge-Kutta method, given by its tableau."""

    tableau: ClassVar[Tableau]

    @property
    def order(self) -> int:
        """Order of accuracy."""
        return self.tableau.order

    @property
    def error_constant(self) -> float:
        """The error of a step for q' = z q, relative to the first missing term of the series."""
        count = len(self.tableau.nodes)
        table = np.zeros((count, count))
        for j, row in enumerate(self.tableau.stages):
            table[j, : len(row)] = row
        power = np.linalg.matrix_power(table, self.order) @ np.ones(count)
        weights = np.asarray(self.tableau.weights)
        return abs(1.0 - factorial(self.order + 1) * float(weights @ power))


class RK4(AbstractRungeKutta):
    """The classical fourth-order method (Kutta 1901), the default.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> RK4(substeps=10)
        RK4(substeps=10)
    """

    tableau = Tableau(
        nodes=(0, 1 / 2, 1 / 2, 1),
        stages=((), (1 / 2,), (0, 1 / 2), (0, 0, 1)),
        weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
        order=4,
    )


class Midpoint(AbstractRungeKutta):
    """The explicit midpoint rule, second order: half the work of RK4 for rough runs.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> Midpoint().tableau.order
        2
    """

    tableau = Tableau(nodes=(0, 1 / 2), stages=((), (1 / 2,)), weights=(0, 1), order=2)


class DormandPrince5(AbstractRungeKutta):
    """The fifth-order method of Dormand and Prince 1980 (six stages), without its error estimate.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> DormandPrince5(substeps=2).tableau.order
        5
    """

    tableau = Tableau(
        nodes=(0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1),
        stages=(
            (),
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        ),
        weights=(35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        order=5,
    )
