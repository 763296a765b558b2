"""How often intervals hold the probability of a limit state of numbers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

import jaxmech as jm
from jaxmech.ensemble import (
    Failure,
    Fixed,
    Normal,
    Observed,
    Study,
    Times,
)
from jaxmech.ensemble.failure.limit_state import limit_state_of
from jaxmech.ensemble.failure.probability import probability_of
from jaxmech.integrate import FixedSteps

MASS = jm.System(lambda q, v, t, p: 0.5 * v @ v, coordinates=("x",))
PLAIN = Normal(mean=0.0, sd=1.0)


def study_of(fn: Callable[..., Any], drawn: dict[str, Any], **settings: Any) -> Study:
    """A study in which a mass rests while a function of the drawn numbers is observed."""
    return Study(
        model=MASS, size=500, block=500, times=Times(end=1.0, saves=2),
        coordinates={"x": Fixed(0.0)}, steps=FixedSteps(per_save=1), parameters=drawn,
        observe={"g": Observed(lambda q, v, t, p: fn(p))}, **settings,
    )  # fmt: skip


def four_branches(p: Any) -> Any:
    a, b = (p["x1"] + p["x2"]) / jnp.sqrt(2.0), (p["x1"] - p["x2"]) / jnp.sqrt(2.0)
    return jnp.minimum(3 + 0.2 * b**2 - jnp.abs(a), 3.5 - jnp.abs(b))


def failure(method: str, **settings: Any) -> Failure:
    return Failure(of="g", below=0.0, when="end", method=method, **settings)


def coverage(repeats: str = "100") -> None:
    """How many of the intervals of 95 % hold the exact probability, and how wide they are.

    The deviation of the estimates from repeat to repeat is compared with the one that they state.
    """
    x = np.linspace(-3.5, 3.5, 20_001)
    inside = stats.norm.pdf(x) * (1 - 2 * stats.norm.sf(3 + 0.2 * x**2))
    exact = 1 - float(np.trapezoid(inside, x))
    study = study_of(four_branches, {"x1": PLAIN, "x2": PLAIN})
    for method in ("importance", "subset", "auto", "monte-carlo"):
        rule = failure(method, coefficient_of_variation=0.1)
        limit = limit_state_of(replace(study, failure=rule), Path())
        results = []
        for seed in range(int(repeats)):
            limit.trajectories = limit.gradients = limit.lost = 0
            results.append(probability_of(limit, rule, seed))
        held = sum(r.interval[0] < exact < r.interval[1] for r in results)
        logs = np.log([r.probability / exact for r in results])
        stated = np.sqrt(np.mean([r.coefficient_of_variation**2 for r in results]))
        width = np.mean([np.log(r.interval[1] / r.interval[0]) / (2 * 1.96) for r in results])
        print(
            f"{method}: {held} of {repeats} intervals, mean / exact {np.exp(logs).mean():.4f}, "
            f"deviation {logs.std():.4f}, stated {stated:.4f}, by the intervals {width:.4f}",
            flush=True,
        )
