"""Certified values of the NIST Statistical Reference Datasets, as a body with linear drag.

The velocity of a body with v' = b2 (b1 - v) from rest is b1 (1 - exp(-b2 t)), the model of Misra1a
and BoxBOD (https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml); their second starts are near.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

from jaxmech import FixedSteps, System
from jaxmech.identify import Recording, fit


class Dataset(NamedTuple):
    times: list[float]
    values: list[float]
    certified: tuple[float, float]
    deviations: tuple[float, float]
    squares: float  # sum of the squared residuals
    steps: int
    starts: tuple[tuple[float, float], tuple[float, float]]


SETS = {
    "BoxBOD": Dataset(
        [1, 2, 3, 5, 7, 10], [109, 149, 149, 191, 213, 224], (213.80940889, 0.54723748542),
        (12.354515176, 0.10455993237), 1168.0088766, 40, ((1.0, 1.0), (100.0, 0.75)),
    ),
    "Misra1a": Dataset(
        [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8,
         378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0],
        [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02,
         44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78],
        (238.94212918, 5.5015643181e-4), (2.7070075241, 7.2668688436e-6), 0.12455138894, 4,
        ((500.0, 1e-4), (250.0, 5e-4)),
    ),
}  # fmt: skip


def _free(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v


def _drag(q: Any, v: Any, t: Any, p: Any) -> Any:
    return p["b2"] * (p["b1"] - v)


def _speed(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v


BODY = System(_free, force=_drag, coordinates=("x",))


@pytest.mark.parametrize("name", SETS)
def test_parameters_and_deviations(name: str) -> None:
    one = SETS[name]
    ts, values = np.array([0.0, *one.times]), np.array([np.nan, *one.values])
    recording = Recording(ts, values, [0.0], [0.0])
    for b1, b2 in one.starts:
        found = fit(
            BODY, recording, {"b1": b1, "b2": b2}, observe=_speed, initial_states="fixed",
            steps=FixedSteps(one.steps),
        )  # fmt: skip
        assert found.converged, (b1, b2)
        off = (found.values - one.certified) / one.deviations
        assert np.abs(off).max() < 1e-4, off  # the default tolerance of the fit
        np.testing.assert_allclose(found.uncertainty.standard_errors, one.deviations, rtol=1e-5)
        r = found.residuals[0][1:]
        np.testing.assert_allclose((r**2).sum(), one.squares, rtol=1e-7)
