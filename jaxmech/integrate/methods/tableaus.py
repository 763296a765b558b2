"""Coefficients of methods: Runge-Kutta methods and pairs, a Rosenbrock method."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


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


def _table(text: str) -> tuple[tuple[float, ...], ...]:
    """Rows of numbers, between semicolons."""
    return tuple(tuple(map(float, row.split())) for row in text.split(";"))


CLASSICAL_4 = Tableau(
    nodes=(0, 1 / 2, 1 / 2, 1),
    stages=((), (1 / 2,), (0, 1 / 2), (0, 0, 1)),
    weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    order=4,
)

DORMAND_PRINCE_5 = Tableau(
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

DORMAND_PRINCE_5_ERRORS = (
    (-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40),
)

# Nodes, the stages after the first, the weights of the step, and those of its error.
_NODES, *_STAGES, _WEIGHTS, _ERROR = _table(
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
    -0.35032884874997366 0.3341791187130175 0.08192320648511571 -0.022355307863886294 0
    """
)
DORMAND_PRINCE_8 = Tableau(_NODES, ((), *_STAGES), _WEIGHTS, order=8)
DORMAND_PRINCE_8_ERRORS = (
    _ERROR,
    # The difference from a method of order 3 that uses three of the stages.
    tuple(
        weight - {0: 0.2440944881889764, 8: 0.7338466882816118, 11: 0.022058823529411766}.get(k, 0)
        for k, weight in enumerate((*DORMAND_PRINCE_8.weights, 0))
    ),
)

CONTROL_5 = StepControl(order=4, least=0.2, most=10.0, memory=0.04, stable=3.25)
CONTROL_8 = StepControl(order=7, least=1 / 3, most=6.0, memory=0.04, stable=6.1)


class RosenbrockTableau(NamedTuple):
    """Coefficients of a Rosenbrock method whose solves need no products with the Jacobian.

    Stage i solves (I / (h gamma) - J) U_i = f(y + sum_j a_ij U_j, t + c_i h)
    + sum_j C_ij U_j / h + h d_i f_t; the step is y + sum_j b_j U_j, and the last U its error
    (Hairer and Wanner, Solving Ordinary Differential Equations II, IV.7).
    """

    gamma: float  # the diagonal coefficient
    nodes: tuple[float, ...]  # c
    stages: tuple[tuple[float, ...], ...]  # a, rows of increasing length
    couplings: tuple[tuple[float, ...], ...]  # C, rows of increasing length
    time: tuple[float, ...]  # d
    weights: tuple[float, ...]  # b
    order: int  # of accuracy; that of the estimate is one less


# Steinebach, Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the
# Julia Differential Equations package, BIT Numerical Mathematics 63, 27 (2023).
_NODES, *_STAGES, _TIME, _WEIGHTS = _table(
    """
    0 0.6358126895828704 0.4095798393397535 0.9769306725060716 0.4288403609558664 1 1 1;
    3.0;
    2.849394379747939 0.45842242204463923;
    -6.954028509809101 2.489845061869568 -10.358996098473584;
    2.8029986275628964 0.5072464736228206 -0.3988312541770524 -0.04721187230404641;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946 1;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946 1 1;
    0.21193756319429014 -0.42387512638858027 -0.3384627126235924 1.8046452872882734
    2.325825639765069 0 0 0;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946 1 1 1
    """
)
_COUPLINGS = _table(
    """
    -14.155112264123755;
    -17.97296035885952 -2.859693295451294;
    147.12150275711716 -1.41221402718213 71.68940251302358;
    165.43517024871676 -0.4592823456491126 42.90938336958603 -5.961986721573306;
    24.854864614690072 -3.0009227002832186 47.4931110020768 5.5814197821558125 -0.6610691825249471;
    30.91273214028599 -3.1208243349937974 77.79954646070892 34.28646028294783 -19.097331116725623
    -28.087943162872662;
    37.80277123390563 -3.2571969029072276 112.26918849496327 66.9347231244047 -40.06618937091002
    -54.66780262877968 -9.48861652309627
    """
)
RODAS_5P = RosenbrockTableau(
    gamma=0.21193756319429014,
    nodes=_NODES,
    stages=((), *_STAGES),
    couplings=((), *_COUPLINGS),
    time=_TIME,
    weights=_WEIGHTS,
    order=5,
)
