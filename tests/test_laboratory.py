"""The laboratory pendulum and spring of Schmidt and Lipson, against scipy; skipped without them."""

from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

from experiments.laboratory import fitted, recording

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PENDULUM, SPRING = DATA / "real_pend_h_1.txt", DATA / "real_linear_h_1.txt"
# With these values, from a fit by scipy that had not converged, the error is 16.78 mrad.
EARLIER = {"k": 1.35275, "c": 0.00430, "d": 0.00786, "o": 0.01174, "q": 1.19400, "v": 0.88397}

pytestmark = pytest.mark.skipif(not PENDULUM.is_file(), reason=f"no recordings in {DATA}")


def swing(ts: np.ndarray, k: float, c: float, d: float, o: float, q: float, v: float) -> np.ndarray:
    def rate(t: float, x: np.ndarray) -> list[float]:
        return [x[1], -k * np.sin(x[0] - o) - c * x[1] - d * x[1] * abs(x[1])]

    span = ts[0], ts[-1]
    return solve_ivp(rate, span, [q, v], "DOP853", ts, rtol=1e-10, atol=1e-12).y[0]


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.slow
def test_the_pendulum_is_fitted_to_the_optimum_of_scipy() -> None:
    data, fit = recording(PENDULUM), fitted(PENDULUM)
    ts, measured = np.asarray(data.ts), np.asarray(data.observed)[:, 0]
    assert fit.converged
    assert 1e3 * rms(swing(ts, **EARLIER) - measured) == pytest.approx(16.78, abs=0.005)

    names = ("k", "c", "d", "o")
    start = [*(float(fit.params[name]) for name in names), measured[0], data.v0[0]]
    best = least_squares(
        lambda x: swing(ts, **dict(zip(EARLIER, x, strict=True))) - measured, start, x_scale="jac",
        jac="3-point", ftol=1e-12,
    )  # fmt: skip
    assert 1e3 * rms(best.fun) == pytest.approx(10.603, abs=0.001)
    errors = dict(zip(fit.uncertainty.names, fit.uncertainty.standard_errors, strict=True))
    for name, value in zip(names, best.x, strict=False):
        assert abs(float(fit.params[name]) - value) < 0.02 * errors[name], name
    assert any("not noise" in warning for warning in fit.warnings)


def test_the_spring_has_the_values_of_an_independent_fit() -> None:
    fit = fitted(SPRING)
    assert fit.converged
    np.testing.assert_allclose(fit.params["k"], 6.220279, atol=2e-6)
    np.testing.assert_allclose(fit.params["c"], 0.013680, atol=1e-6)
    errors = dict(zip(fit.uncertainty.names, fit.uncertainty.standard_errors, strict=True))
    np.testing.assert_allclose([errors["k"], errors["c"]], [0.000126, 0.00005], rtol=0.05)
