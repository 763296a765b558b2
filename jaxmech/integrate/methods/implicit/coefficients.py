"""Coefficients of the implicit methods."""

from typing import NamedTuple

import numpy as np


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


_LAST = (
    -7.502846399306121,
    2.561846144803919,
    -11.627539656261098,
    -0.18268767659942256,
    0.030198172008377946,
)

# Steinebach, Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the
# Julia Differential Equations package, BIT Numerical Mathematics 63, 27 (2023).
RODAS_5P = RosenbrockTableau(
    gamma=0.21193756319429014,
    nodes=(0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664)
    + (1.0,) * 3,
    stages=(
        (),
        (3.0,),
        (2.849394379747939, 0.45842242204463923),
        (-6.954028509809101, 2.489845061869568, -10.358996098473584),
        (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
        _LAST,
        (*_LAST, 1.0),
        (*_LAST, 1.0, 1.0),
    ),
    couplings=(
        (),
        (-14.155112264123755,),
        (-17.97296035885952, -2.859693295451294),
        (147.12150275711716, -1.41221402718213, 71.68940251302358),
        (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
        (
            24.854864614690072,
            -3.0009227002832186,
            47.4931110020768,
            5.5814197821558125,
            -0.6610691825249471,
        ),
        (
            30.91273214028599,
            -3.1208243349937974,
            77.79954646070892,
            34.28646028294783,
            -19.097331116725623,
            -28.087943162872662,
        ),
        (
            37.80277123390563,
            -3.2571969029072276,
            112.26918849496327,
            66.9347231244047,
            -40.06618937091002,
            -54.66780262877968,
            -9.48861652309627,
        ),
    ),
    time=(
        0.21193756319429014,
        -0.42387512638858027,
        -0.3384627126235924,
        1.8046452872882734,
        2.325825639765069,
    )
    + (0.0,) * 3,
    weights=(*_LAST, 1.0, 1.0, 1.0),
    order=5,
)


class CollocationTableau(NamedTuple):
    """An implicit Runge-Kutta method of three stages, with a complex pair of eigenvalues."""

    nodes: np.ndarray  # c, (3,)
    matrix: np.ndarray  # A, (3, 3)
    transform: np.ndarray  # T: T^-1 A^-1 T has the eigenvalues in blocks, (3, 3)
    real: float  # real eigenvalue of A^-1
    complex: tuple[float, float]  # real and imaginary part of the others


def _radau() -> CollocationTableau:
    # Radau IIA of order 5: collocation at (4 - sqrt 6) / 10, (4 + sqrt 6) / 10 and 1.
    root = np.sqrt(6.0)
    nodes = np.array([(4 - root) / 10, (4 + root) / 10, 1.0])
    powers = np.arange(1, 4)
    # The weights integrate 1, s and s^2 from 0 to each node.
    monomials = nodes[:, None] ** (powers - 1)
    matrix = np.linalg.solve(monomials.T, (nodes[:, None] ** powers / powers).T).T
    values, vectors = np.linalg.eig(np.linalg.inv(matrix))
    real, pair = np.argmin(abs(values.imag)), np.argmin(values.imag)
    # For alpha - i beta and u + i w, (u, w) have the block [[alpha, -beta], [beta, alpha]].
    value, vector = values[pair], vectors[:, pair]
    transform = np.stack([vectors[:, real].real, vector.real, vector.imag], axis=1)
    complex_pair = float(value.real), float(-value.imag)
    return CollocationTableau(nodes, matrix, transform, float(values[real].real), complex_pair)


RADAU_5 = _radau()
