"""Limit states of numbers beside the methods of OpenTURNS, and how often intervals hold."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import openturns as ot
from scipy import stats

import jaxmech as jm
from jaxmech.ensemble import (
    Failure,
    Fixed,
    LogNormal,
    Normal,
    Observed,
    Study,
    Times,
    Uniform,
    failure_probability,
)
from jaxmech.ensemble.failure.limit_state import limit_state_of
from jaxmech.ensemble.failure.probability import _Work
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


# The examples of OpenTURNS: an axial stressed beam, a cantilever beam, and four branches.
def beam(p: Any) -> Any:
    return p["R"] - p["F"] / (jnp.pi * 100.0)


def cantilever(p: Any) -> Any:
    return 0.30 - p["F"] * p["L"] ** 3 / (3 * p["E"] * p["I"])


def four_branches(p: Any) -> Any:
    a, b = (p["x1"] + p["x2"]) / jnp.sqrt(2.0), (p["x1"] - p["x2"]) / jnp.sqrt(2.0)
    return jnp.minimum(3 + 0.2 * b**2 - jnp.abs(a), 3.5 - jnp.abs(b))


def log_normal(mean: float, sd: float) -> LogNormal:
    sigma = float(np.sqrt(np.log1p((sd / mean) ** 2)))
    return LogNormal(sigma=sigma, median=mean / np.exp(sigma**2 / 2))


EXAMPLES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "axial stressed beam": (
        beam, {"R": log_normal(300.0, 30.0), "F": Normal(mean=75e3, sd=5e3)},
        lambda: ot.JointDistribution(
            [ot.LogNormalMuSigma(300.0, 30.0, 0.0).getDistribution(), ot.Normal(75e3, 5e3)]
        ),
    ),
    "cantilever beam": (
        cantilever,
        {
            "E": log_normal(67e9, 2e9), "F": log_normal(300.0, 30.0),
            "L": Uniform(2.5, 2.6), "I": Normal(mean=1.45e-7, sd=1e-8),
        },
        None,
    ),
    "four branches": (four_branches, {"x1": PLAIN, "x2": PLAIN}, lambda: ot.Normal(2)),
}  # fmt: skip


def openturns_estimates(fn: Any, drawn: dict[str, Any], distribution: Any) -> Iterator[Any]:
    """Probability, spread and calls of the methods of OpenTURNS with their defaults."""
    calls = [0]
    names = list(drawn)
    values = jax.jit(jax.vmap(lambda x: fn(dict(zip(names, x, strict=True)))))

    def of_sample(x: Any) -> Any:
        calls[0] += len(x)
        return np.asarray(values(np.asarray(x)))[:, None]

    function = ot.PythonFunction(len(names), 1, func_sample=of_sample)
    vector = ot.CompositeRandomVector(function, ot.RandomVector(distribution()))
    event = ot.ThresholdEvent(vector, ot.LessOrEqual(), 0.0)
    for method in ("FORM", "directional", "subset", "Monte Carlo"):
        ot.RandomGenerator.SetSeed(0)
        calls[0] = 0
        if method == "FORM":
            algorithm = ot.AbdoRackwitz()
            algorithm.setStartingPoint(distribution().getMean())
            run = ot.FORM(algorithm, event)
            try:
                run.run()
                yield method, run.getResult().getEventProbability(), float("nan"), calls[0]
            except RuntimeError:  # the gradient is zero at the medians
                yield f"{method}, fails", float("nan"), float("nan"), calls[0]
            continue
        run = {
            "directional": lambda: ot.DirectionalSampling(event),
            "subset": lambda: ot.SubsetSampling(event),
            "Monte Carlo": lambda: ot.ProbabilitySimulationAlgorithm(event),
        }[method]()
        run.setMaximumCoefficientOfVariation(0.05)
        run.setMaximumOuterSampling(10_000 if method == "subset" else 1000)
        run.setBlockSize(1 if method == "subset" else 100)
        run.run()
        found = run.getResult()
        yield method, found.getProbabilityEstimate(), found.getCoefficientOfVariation(), calls[0]


def openturns() -> None:
    """The table of calls."""
    print("| limit state | method | probability | coefficient of variation | calls |")
    print("|---|---|---|---|---|")
    for name, (fn, drawn, distribution) in EXAMPLES.items():
        for method in ("auto", "subset") if fn is four_branches else ("auto", "line", "subset"):
            study = study_of(fn, drawn)
            result = failure_probability(study, failure=failure(method))
            spread = f"{100 * result.coefficient_of_variation:.1f} %"
            print(f"| {name} | {method} ({result.method}) | {result.probability:.4g} | {spread} | "
                  f"{result.trajectories:,} |")  # fmt: skip
        if distribution is not None:
            for method, p, spread, calls in openturns_estimates(fn, drawn, distribution):
                shown = "" if np.isnan(spread) else f"{100 * spread:.1f} %"
                print(f"| {name} | OpenTURNS, {method} | {p:.4g} | {shown} | {calls:,} |")


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
    for method in ("importance", "directional", "subset", "auto", "monte-carlo"):
        rule = failure(method, coefficient_of_variation=0.1)
        limit = limit_state_of(replace(study, failure=rule), None, Path())
        results = []
        for seed in range(int(repeats)):
            limit.trajectories = limit.gradients = limit.lost = 0
            results.append(_Work(limit, rule, seed).result())
        held = sum(r.interval[0] < exact < r.interval[1] for r in results)
        logs = np.log([r.probability / exact for r in results])
        stated = np.sqrt(np.mean([r.coefficient_of_variation**2 for r in results]))
        width = np.mean([np.log(r.interval[1] / r.interval[0]) / (2 * 1.96) for r in results])
        print(
            f"{method}: {held} of {repeats} intervals, mean / exact {np.exp(logs).mean():.4f}, "
            f"deviation {logs.std():.4f}, stated {stated:.4f}, by the intervals {width:.4f}",
            flush=True,
        )
