"""Methods of integration; explicit Runge-Kutta methods and embedded pairs."""

import abc
from dataclasses import dataclass, fields, replace
from math import factorial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array

from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.integrate.tableaus import (
    CLASSICAL_4,
    CONTROL_5,
    CONTROL_8,
    DORMAND_PRINCE_5,
    DORMAND_PRINCE_5_ERRORS,
    DORMAND_PRINCE_8,
    DORMAND_PRINCE_8_ERRORS,
    MIDPOINT_2,
    TSITOURAS_5,
    TSITOURAS_5_ERRORS,
    StepControl,
    Tableau,
)
from jaxmech.integrate.times.policy import (
    MAX_STEP,
    TIMES,
    as_step_times,
    require_max_step,
    time_array,
)
from jaxmech.linalg import SVD
from jaxmech.stabilization import AbstractStabilization
from jaxmech.system import System
from jaxmech.utils.checks import require_positive_integer
from jaxmech.utils.field_docs import setting

Policies = tuple[AbstractFormulation, AbstractStabilization]


@dataclass(frozen=True, repr=False)
class AbstractMethod(abc.ABC):
    """A method of integration, and the policy of its steps.

    Args:
        max_step: longest step [s].
        times: times at which a step ends [s], shape (K,), and the functions are evaluated on the
            sides of their steps: kinks and jumps of functions of time, starts and ends of pulses.
            May depend on traced parameters, and is differentiated.
    """

    max_step: float | Any = setting(None, MAX_STEP, kw_only=True)
    times: tuple[float, ...] | Any = setting((), TIMES, kw_only=True)

    def __post_init__(self) -> None:
        require_max_step(self.max_step)
        object.__setattr__(self, "times", as_step_times(self.times))

    def __repr__(self) -> str:
        named = sorted(fields(self), key=lambda f: bool(f.kw_only))
        shown = (
            f"{f.name}={getattr(self, f.name)!r}"
            for f in named
            if not f.kw_only or getattr(self, f.name) is not f.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def step_times(self, dtype: Any) -> Array | None:
        """The times at which steps end, (K,), or None."""
        return time_array(self.times, dtype)

    def without_times(self) -> "AbstractMethod":
        """The same method for any times at which steps end."""
        return replace(self, times=())

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of accuracy."""

    def require(self, system: System, policies: Policies, *state: Any) -> None:
        """Raise a ValueError unless the method suits the system and the other policies."""
        return  # most methods suit all


def require_udwadia_kalaba(
    name: str, formulation: AbstractFormulation, does: str, others: str
) -> None:
    """Raise a ValueError unless the law of motion is the default one and reports its rows."""
    if not isinstance(formulation, UdwadiaKalaba):
        raise ValueError(
            f"Argument `formulation` must be left out for `{name}`, which {does}, but is "
            f"{formulation!r}; other laws go with {others}."
        )
    if isinstance(formulation.solver, SVD):
        raise ValueError(
            f"Argument `formulation` must have a solver that keeps single rows for `{name}`, but "
            "has SVD(); pass `UdwadiaKalaba(solver=LDL())` or `UdwadiaKalaba(solver=QR())`."
        )


@dataclass(frozen=True, repr=False)
class AbstractFixedStep(AbstractMethod):
    """A method of integration and the number of steps between two save times, as in `RK4`."""

    substeps: int | None = setting(
        None, "steps from one saved time, or sample, to the next; by default chosen from the motion"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.substeps is not None:
            remedy = "give the steps per save interval, or leave it out to have them chosen"
            require_positive_integer("substeps", self.substeps, remedy)

    def single_step(self) -> "AbstractFixedStep":
        """The same method for a single step, which is the same for any policy of steps."""
        return replace(self, substeps=1, max_step=None, times=())

    @property
    def count(self) -> int:
        """The number of substeps, or a ValueError while it is not chosen."""
        if self.substeps is None:
            raise ValueError("Argument `substeps` must be chosen by now; give it a number.")
        return self.substeps

    @property
    @abc.abstractmethod
    def error_constant(self) -> float:
        """The error of a step, relative to the first missing term of the Taylor series."""


class AbstractRungeKutta(AbstractFixedStep):
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
    """The classical fourth-order method (Kutta 1901), the default.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.
        max_step, times: as for `Adaptive`.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> RK4(substeps=10)
        RK4(substeps=10)
    """

    tableau = CLASSICAL_4


class Midpoint(AbstractRungeKutta):
    """The explicit midpoint rule, second order: half the work of RK4 for rough runs.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.
        max_step, times: as for `Adaptive`.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> Midpoint().tableau.order
        2
    """

    tableau = MIDPOINT_2


@dataclass(frozen=True, repr=False)
class AbstractPair(AbstractFixedStep):
    """A method with an estimate of the error of its steps."""

    control: ClassVar[StepControl]
    # Whether interpolation with the accelerations at the ends of a step is as accurate as the step.
    interpolates: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def evaluations(self) -> int:
        """Evaluations of the law of motion in a step, about."""


class AbstractRungeKuttaPair(AbstractRungeKutta, AbstractPair):
    """An explicit Runge-Kutta method with embedded ones for the error."""

    errors: ClassVar[tuple[tuple[float, ...], ...]]

    @property
    def evaluations(self) -> int:
        """Evaluations of the law of motion in a step, without that at its start."""
        return len(self.tableau.nodes)


class DormandPrince5(AbstractRungeKuttaPair):
    """The pair of orders 5 and 4 of Dormand and Prince 1980, six stages: `ode45`, DOPRI5.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.
        max_step, times: as for `Adaptive`.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> DormandPrince5(substeps=2).tableau.order
        5
    """

    tableau = DORMAND_PRINCE_5
    errors = DORMAND_PRINCE_5_ERRORS
    control = CONTROL_5


class Tsitouras5(AbstractRungeKuttaPair):
    """The pair of orders 5 and 4 of Tsitouras 2011, six stages, with smaller errors.

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.
        max_step, times: as for `Adaptive`.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> Tsitouras5(substeps=2).tableau.order
        5
    """

    tableau = TSITOURAS_5
    errors = TSITOURAS_5_ERRORS
    control = CONTROL_5


class DormandPrince8(AbstractRungeKuttaPair):
    """The method of order 8 of Dormand and Prince, twelve stages, with the estimates of DOP853.

    Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.10: the estimates of
    orders 5 and 3, e5 and e3, count as |e5|^2 / sqrt(|e5|^2 + 0.01 |e3|^2).

    Args:
        substeps: steps per save interval; the step is (ts[k + 1] - ts[k]) / substeps. By default
            chosen from the motion, the same for all trajectories of a batch.
        max_step, times: as for `Adaptive`.

    Raises:
        ValueError: `substeps` is not a positive integer.

    Example:
        >>> DormandPrince8(substeps=2).tableau.order
        8
    """

    tableau = DORMAND_PRINCE_8
    errors = DORMAND_PRINCE_8_ERRORS
    control = CONTROL_8
