"""Methods of integration and their steps; explicit Runge-Kutta methods and embedded pairs."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.linalg import SVD
from jaxmech.state import AbstractStabilization
from jaxmech.system import Params, System

Policies = tuple[AbstractFormulation, AbstractStabilization]


class StepStart(eqx.Module):
    """The state at which a step starts, and its length."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    t: Float[Array, ""]  # [s]
    h: Float[Array, ""]  # [s]
    params: Params


class Moved(eqx.Module):
    """The end of a step before projection, and how it went."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    good: Bool[Array, ""]  # whether all checks passed
    status: Int[Array, ""]  # the first failure, a `Status`; read only where they did not
    independent: Bool[Array, ""]  # whether all constraint rows were
    rank: Int[Array, ""]  # the smallest
    rows: int = eqx.field(static=True)  # number of constraint rows


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

    def target_error(self, dtype: Any) -> float:
        """The relative error of a whole run that chosen steps aim at."""
        return max(1e-6 if self.order >= 4 else 1e-4, 1000 * float(np.finfo(dtype).eps))

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

    @property
    def matrix(self) -> np.ndarray:
        """The weights of the stages as a strictly lower triangular matrix."""
        count = len(self.nodes)
        return np.array([(*row, *[0.0] * (count - len(row))) for row in self.stages])


class StepControl(NamedTuple):
    """The customary settings for step size control by the error estimate of a pair.

    Attributes:
        order: of the estimate; the error of a step falls with the next higher power.
        least: smallest factor from one step to the next.
        most: largest factor.
        memory: exponent of the error of the step before; the integral part is the rest.
        stable: |h lambda| up to which steps are stable, about.

    Used by an `AbstractRungeKuttaPair`.
    """

    order: int
    least: float
    most: float
    memory: float
    stable: float


def following(rows: Sequence[Any]) -> np.ndarray:
    """Row j, column k - 1: the weight of stage j in stage j + k; zeros beyond the last stage."""
    count = len(rows)
    table = np.zeros((count, count - 1))
    for i, row in enumerate(rows):
        for j, weight in enumerate(row):
            table[j, i - j - 1] = weight
    return table


def table(text: str) -> tuple[tuple[float, ...], ...]:
    """Rows of numbers, between semicolons."""
    return tuple(tuple(map(float, row.split())) for row in text.split(";"))


class AbstractRungeKutta(AbstractMethod):
    """An explicit Runge-Kutta method, defined by its tableau."""

    tableau: ClassVar[Tableau]

    @property
    def order(self) -> int:
        return self.tableau.order

    @property
    def error_constant(self) -> float:
        """The error of a step for q' = z q, relative to the first missing term of the series."""
        A = self.tableau.matrix
        # b^T A^p 1 is the coefficient of z^(p + 1) in the stability function; that of exp(z) is
        # 1/(p + 1)!.
        power = np.linalg.matrix_power(A, self.order) @ np.ones(len(A))
        weights = np.asarray(self.tableau.weights)
        return abs(1.0 - factorial(self.order + 1) * float(weights @ power))


class RK4(AbstractRungeKutta):
    """The classical fourth-order method (Kutta 1901), the default."""

    tableau = Tableau(
        nodes=(0, 1 / 2, 1 / 2, 1),
        stages=((), (1 / 2,), (0, 1 / 2), (0, 0, 1)),
        weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
        order=4,
    )


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
    errors = ((-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40),)
    control = StepControl(order=4, least=0.2, most=10.0, memory=0.04, stable=3.25)


# Nodes, the stages after the first, the weights of the step, those of its error, and those of a
# method of order 3.
_NODES, *_STAGES, _WEIGHTS, _ERROR, _ORDER_3 = table(
    """
    0 0.05260015195876773 0.0789002279381516 0.1183503419072274 0.2816496580927726
    0.3333333333333333 0.25 0.3076923076923077 0.6512820512820513 0.6 0.8571428571428571 1;
    0.05260015195876773;
    0.0197250569845379 0.0591751709536137;
    0.02958758547680685 0 0.08876275643042054;
    0.2413651341592667 0 -0.8845494793282861 0.924834003261792;
    0.037037037037037035 0 0 0.17082860872947386 0.12546768756682242;
    0.037109375 0 0 0.17025221101954405 0.06021653898045596 -0.017578125;
    0.03709200011850479 0 0 0.17038392571223998 0.10726203044637328 -0.015319437748624402
    0.008273789163814023;
    0.6241109587160757 0 0 -3.3608926294469414 -0.868219346841726 27.59209969944671
    20.154067550477894 -43.48988418106996;
    0.47766253643826434 0 0 -2.4881146199716677 -0.590290826836843 21.230051448181193
    15.279233632882423 -33.28821096898486 -0.020331201708508627;
    -0.9371424300859873 0 0 5.186372428844064 1.0914373489967295 -8.149787010746927
    -18.52006565999696 22.739487099350505 2.4936055526796523 -3.0467644718982196;
    2.273310147516538 0 0 -10.53449546673725 -2.0008720582248625 -17.9589318631188 27.94888452941996
    -2.8589982771350235 -8.87285693353063 12.360567175794303 0.6433927460157636;
    0.054293734116568765 0 0 0 0 4.450312892752409 1.8915178993145003 -5.801203960010585
    0.3111643669578199 -0.1521609496625161 0.20136540080403034 0.04471061572777259;
    0.01312004499419488 0 0 0 0 -1.2251564463762044 -0.4957589496572502 1.6643771824549864
    -0.35032884874997366 0.3341791187130175 0.08192320648511571 -0.022355307863886294 0;
    0.2440944881889764 0 0 0 0 0 0 0 0.7338466882816118 0 0 0.022058823529411766 0
    """
)


class DormandPrince8(AbstractRungeKuttaPair):
    """The method of order 8 of Dormand and Prince, twelve stages, with the estimates of DOP853.

    Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.10: the estimates of
    orders 5 and 3, e5 and e3, count as |e5|^2 / sqrt(|e5|^2 + 0.01 |e3|^2).
    """

    tableau = Tableau(_NODES, ((), *_STAGES), _WEIGHTS, order=8)
    errors = (_ERROR, tuple(np.subtract((*_WEIGHTS, 0.0), _ORDER_3).tolist()))
    control = StepControl(order=7, least=1 / 3, most=6.0, memory=0.04, stable=6.1)
