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


def by_jaxmech(case: Problem) -> dict[str, Any]:
    """The loss, the parameters, and what they took, with all defaults."""
    start = case.start()
    fit = jm.fit(
        case.system, case.recordings, {**case.known, **start}, free=tuple(start),
        observe=case.observe, bounds=case.bounds, initial_states=case.initial_states,
    )  # fmt: skip
    values = dict(zip(fit.names, fit.values, strict=True))
    errors = dict(zip(fit.names, fit.uncertainty.standard_errors, strict=True))
    return {
        "loss": fit.optimization.history[-1],
        "jacobians": len(fit.optimization.history),
        "evaluations": fit.optimization.evaluations,
        "converged": fit.converged,
        "values": [float(values[name]) for name in start],
        "errors": [float(errors[name]) for name in start],
    }


def by_scipy(case: Problem) -> dict[str, Any]:
    """The same by the trust region of scipy, over a jitted RK4 and its forward derivatives."""
    start, states = case.start(), case.states
    low = np.r_[np.zeros(len(start)), np.full(states.size, -np.inf)]  # parameters are positive
    optimum = least_squares(
        lambda x: np.asarray(case.residuals(x)), np.r_[[*start.values()], states],
        lambda x: np.asarray(case.jacobian(x)), bounds=(low, np.inf), method="trf", x_scale="jac",
    )  # fmt: skip
    return {
        "loss": float(optimum.cost),
        "jacobians": int(optimum.njev),
        "evaluations": int(optimum.nfev),
        "converged": bool(optimum.status > 0),
        "values": optimum.x[: len(start)].tolist(),
    }


SIDES: dict[str, Callable[[Problem], dict[str, Any]]] = {"jaxmech": by_jaxmech, "scipy": by_scipy}
PROBLEMS: dict[str, Callable[[], Problem]] = {**CASES, "six_axes": SixAxes}


def two_fits(name: str, side: str) -> dict[str, Any]:
    """CPU seconds of a first and of a second fit in this process."""
    case = PROBLEMS[name]()
    assert len(case.recordings) == 1  # computed before, since they are data
    cold, warm, result = timed(lambda: SIDES[side](case), 1)
    return {"cold": cold, "warm": warm, **result}
