"""Coefficients of explicit Runge-Kutta methods: Butcher tableaus and embedded error estimates."""

from typing import NamedTuple

import numpy as np


class Tableau(NamedTuple):
    """Coefficients of an explicit Runge-Kutta method.

    Attributes:
        nodes: c, the fraction of the step at which each stage is taken.
        stages: a, row i has the weights of the stages before stage i.
        weights: b, of the stages in the step.
        order: order of accuracy.

    Example:
        The method of Heun, of second order:

        >>> from jaxmech.integrate import Tableau
        >>> heun = Tableau(nodes=(0, 1), stages=((), (1,)), weights=(1 / 2, 1 / 2), order=2)
        >>> print(heun.matrix)
        [[0. 0.]
         [1. 0.]]
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
        scale: the estimate is held to `scale` rtol^`power`, as its order is lower by more than one
            than that of the step.
        power: see `scale`.

    Used by an `AbstractRungeKuttaPair`.
    """

    order: int
    least: float
    most: float
    memory: float
    stable: float
    scale: float = 1.0
    power: float = 1.0


CLASSICAL_4 = Tableau(
    nodes=(0, 1 / 2, 1 / 2, 1),
    stages=((), (1 / 2,), (0, 1 / 2), (0, 0, 1)),
    weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    order=4,
)

MIDPOINT_2 = Tableau(nodes=(0, 1 / 2), stages=((), (1 / 2,)), weights=(0, 1), order=2)

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

TSITOURAS_5 = Tableau(
    nodes=(0, 0.161, 0.327, 0.9, 0.9800255409045097, 1),
    stages=(
        (),
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (
            5.86145544294642,
            -12.92096931784711,
            8.159367898576159,
            -0.071584973281401,
            -0.028269050394068383,
        ),
    ),
    weights=(
        0.09646076681806523,
        0.01,
        0.4798896504144996,
        1.379008574103742,
        -3.290069515436081,
        2.324710524099774,
    ),
    order=5,
)

TSITOURAS_5_ERRORS = (
    (
        -0.00178001105222577714,
        -0.0008164344596567469,
        0.007880878010261995,
        -0.1447110071732629,
        0.5823571654525552,
        -0.45808210592918697,
        1 / 66,
    ),
)

DORMAND_PRINCE_8 = Tableau(
    nodes=(
        0,
        0.05260015195876773,
        0.0789002279381516,
        0.1183503419072274,
        0.2816496580927726,
        0.3333333333333333,
        0.25,
        0.3076923076923077,
        0.6512820512820513,
        0.6,
        0.8571428571428571,
        1.0,
    ),
    stages=(
        (),
        (0.05260015195876773,),
        (
            0.0197250569845379,
            0.0591751709536137,
        ),
        (
            0.02958758547680685,
            0,
            0.08876275643042054,
        ),
        (
            0.2413651341592667,
            0,
            -0.8845494793282861,
            0.924834003261792,
        ),
        (
            0.037037037037037035,
            0,
            0,
            0.17082860872947386,
            0.12546768756682242,
        ),
        (
            0.037109375,
            0,
            0,
            0.17025221101954405,
            0.06021653898045596,
            -0.017578125,
        ),
        (
            0.03709200011850479,
            0,
            0,
            0.17038392571223998,
            0.10726203044637328,
            -0.015319437748624402,
            0.008273789163814023,
        ),
        (
            0.6241109587160757,
            0,
            0,
            -3.3608926294469414,
            -0.868219346841726,
            27.59209969944671,
            20.154067550477894,
            -43.48988418106996,
        ),
        (
            0.47766253643826434,
            0,
            0,
            -2.4881146199716677,
            -0.590290826836843,
            21.230051448181193,
            15.279233632882423,
            -33.28821096898486,
            -0.020331201708508627,
        ),
        (
            -0.9371424300859873,
            0,
            0,
            5.186372428844064,
            1.0914373489967295,
            -8.149787010746927,
            -18.52006565999696,
            22.739487099350505,
            2.4936055526796523,
            -3.0467644718982196,
        ),
        (
            2.273310147516538,
            0,
            0,
            -10.53449546673725,
            -2.0008720582248625,
            -17.9589318631188,
            27.94888452941996,
            -2.8589982771350235,
            -8.87285693353063,
            12.360567175794303,
            0.6433927460157636,
        ),
    ),
    weights=(
        0.054293734116568765,
        0,
        0,
        0,
        0,
        4.450312892752409,
        1.8915178993145003,
        -5.801203960010585,
        0.3111643669578199,
        -0.1521609496625161,
        0.20136540080403034,
        0.04471061572777259,
    ),
    order=8,
)

DORMAND_PRINCE_8_ERRORS = (
    (
        0.01312004499419488,
        0,
        0,
        0,
        0,
        -1.2251564463762044,
        -0.4957589496572502,
        1.6643771824549864,
        -0.35032884874997366,
        0.3341791187130175,
        0.08192320648511571,
        -0.022355307863886294,
        0,
    ),
    # The difference from a method of order 3 that uses three of the stages.
    tuple(
        weight - {0: 0.2440944881889764, 8: 0.7338466882816118, 11: 0.022058823529411766}.get(k, 0)
        for k, weight in enumerate((*DORMAND_PRINCE_8.weights, 0))
    ),
)

CONTROL_5 = StepControl(order=4, least=0.2, most=10.0, memory=0.04, stable=3.25)
CONTROL_8 = StepControl(order=7, least=1 / 3, most=6.0, memory=0.04, stable=6.1)
