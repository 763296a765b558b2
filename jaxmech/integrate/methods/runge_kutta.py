"""Methods of integration; explicit Runge-Kutta methods and embedded pairs."""

import abc
from dataclasses import dataclass
from math import factorial
from typing import Any, ClassVar

import numpy as np

from jaxmech.integrate.methods.tableaus import (
    CLASSICAL_4,
    CONTROL_5,
    CONTROL_8,
    DORMAND_PRINCE_5,
    DORMAND_PRINCE_5_ERRORS,
    DORMAND_PRINCE_8,
    DORMAND_PRINCE_8_ERRORS,
    StepControl,
    Tableau,
)
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.linalg import SVD
from jaxmech.state import AbstractStabilization
from jaxmech.system import System

Policies = tuple[AbstractFormulation, AbstractStabilization]


@dataclass(frozen=True)
class AbstractMethod(abc.ABC):
    """How a step is made; `AbstractSteps` say how long it is."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of accuracy."""

    @property
    @abc.abstractmethod
    def error_constant(self) -> float:
        """The error of a step, relative to the first missing term of the Taylor series."""

    def require(self, system: System, policies: Policies, *state: Any) -> None:
        """Raise a ValueError unless the method suits the system and the other policies."""
        return  # most methods suit all


def require_udwadia_kalaba(
    name: str, formulation: AbstractFormulation, does: str, alternatives: str
) -> None:
    """Raise a ValueError unless the law of motion is the default one and reports its rows."""
    if not isinstance(formulation, UdwadiaKalaba):
        raise ValueError(
            f"Argument `formulation` must be left out for `{name}`, which {does}, but is "
            f"{formulation!r}; other laws go with {alternatives}."
        )
    if isinstance(formulation.solver, SVD):
        raise ValueError(
            f"Argument `formulation` must have a solver that keeps single rows for `{name}`, but "
            "has SVD(); pass `UdwadiaKalaba(solver=LDL())` or `UdwadiaKalaba(solver=QR())`."
        )


class AbstractRungeKutta(AbstractMethod):
    """An explicit Runge-Kutta method, defined by its tableau."""

    tableau: ClassVar[Tableau]

    @property
    def order(self) -> int:
        """The order of accuracy."""
        return self.tableau.order

    @property
    def error_constant(self) -> float:
        """The error of a step for q' = z q, relative to the first missing term of the series."""
        table = self.tableau.matrix
        # b^T A^p 1 is the coefficient of z^(p + 1) in the stability function; that of exp(z) is
        # 1/(p + 1)!.
        power = np.linalg.matrix_power(table, self.order) @ np.ones(len(table))
        weights = np.asarray(self.tableau.weights)
        return abs(1.0 - factorial(self.order + 1) * float(weights @ power))


class RK4(AbstractRungeKutta):
    """The classical fourth-order method (Kutta 1901), the default."""

    tableau = CLASSICAL_4


@dataclass(frozen=True)
class AbstractPair(AbstractMethod):
    """A method with an estimate of the error of its steps, as `Adaptive` needs one."""

    control: ClassVar[StepControl]
    # Whether interpolation with the accelerations at the ends of a step is as accurate as the step.
    interpolates: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def evaluations(self) -> int:
        """Evaluations of the law of motion in a step, about."""


class AbstractRungeKuttaPair(AbstractRungeKutta, AbstractPair):
    """An explicit Runge-Kutta method with embedded ones for the error.

    Attributes:
        errors: rows of weights whose sums over the stages are estimates of the error; the last
            weight is that of the acceleration at the end of the step.
        control: a `StepControl`.
    """

    errors: ClassVar[tuple[tuple[float, ...], ...]]

    @property
    def evaluations(self) -> int:
        """Evaluations of the law of motion in a step, without that at its start."""
        return len(self.tableau.nodes)


class DormandPrince5(AbstractRungeKuttaPair):
    """The pair of orders 5 and 4 of Dormand and Prince 1980, six stages: `ode45`, DOPRI5."""

    tableau = DORMAND_PRINCE_5
    errors = DORMAND_PRINCE_5_ERRORS
    control = CONTROL_5


class DormandPrince8(AbstractRungeKuttaPair):
    """The method of order 8 of Dormand and Prince, twelve stages, with the estimates of DOP853.

    Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.10: the estimates of
    orders 5 and 3, e5 and e3, count as |e5|^2 / sqrt(|e5|^2 + 0.01 |e3|^2).
    """

    tableau = DORMAND_PRINCE_8
    errors = DORMAND_PRINCE_8_ERRORS
    control = CONTROL_8
