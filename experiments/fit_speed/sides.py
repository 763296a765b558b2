"""The sides: fits by jaxmech and by scipy, each of one problem."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import least_squares

import jaxmech as jm
from experiments.fit_speed.cases import CASES
from experiments.fit_speed.problem import Case
from experiments.fit_speed.six_axes import SixAxes
from experiments.measuring import timed

Problem = Case | SixAxes


class Ours:
    """Fits by jaxmech, with its defaults."""

    def __init__(self, case: Problem) -> None:
        self.case, self.recordings = case, case.recordings

    def fit(self, start: dict[str, float]) -> dict[str, Any]:
        """The loss, the parameters, and what they took."""
        case = self.case
        found = jm.fit(
            case.system, self.recordings, {**case.known, **start}, free=tuple(start),
            observe=case.observe, bounds=case.bounds, initial_states=case.initial_states,
        )  # fmt: skip
        values = dict(zip(found.names, found.values, strict=True))
        errors = dict(zip(found.names, found.uncertainty.standard_errors, strict=True))
        return {
            "loss": found.optimization.history[-1],
            "jacobians": len(found.optimization.history),
            "evaluations": found.optimization.evaluations,
            "converged": found.converged,
            "values": [float(values[name]) for name in start],
            "errors": [float(errors[name]) for name in start],
        }


class Scipy:
    """Fits by the trust region of scipy, over a jitted RK4 and its forward derivatives."""

    def __init__(self, case: Problem) -> None:
        self.case, self.recordings = case, case.recordings

    def unknowns(self, start: dict[str, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The unknowns where a fit begins, and their bounds."""
        bounds = [self.case.bounds.get(name, (None, None)) for name in start]
        low = [-np.inf if low is None else low for low, _ in bounds]
        high = [np.inf if high is None else high for _, high in bounds]
        states = self.case.states
        free = np.full(states.size, np.inf)
        return np.r_[[*start.values()], states], np.r_[low, -free], np.r_[high, free]

    def fit(self, start: dict[str, float]) -> dict[str, Any]:
        """The loss, the parameters, and what they took."""
        x, low, high = self.unknowns(start)
        found = least_squares(
            lambda x: np.asarray(self.case.residuals(x)), x,
            lambda x: np.asarray(self.case.jacobian(x)),
            bounds=(low, high), method="trf", x_scale="jac",
        )  # fmt: skip
        return {
            "loss": float(found.cost),
            "jacobians": int(found.njev),
            "evaluations": int(found.nfev),
            "converged": bool(found.status > 0),
            "values": found.x[: len(start)].tolist(),
        }


SIDES: dict[str, Any] = {"jaxmech": Ours, "scipy": Scipy}
PROBLEMS: dict[str, Callable[[], Problem]] = {**CASES, "six_axes": SixAxes}


def two_fits(name: str, side: str) -> dict[str, Any]:
    """CPU seconds of a first and of a second fit in this process."""
    case = PROBLEMS[name]()
    start = case.start()
    fits = SIDES[side](case)  # with the recordings, which are data
    cold, warm, result = timed(lambda: fits.fit(start), 1)
    return {"cold": cold, "warm": warm, **result}
