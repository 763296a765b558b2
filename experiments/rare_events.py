"""Probabilities of failure beside OpenTURNS and brute force, and how often intervals hold.

python -m experiments.rare_events openturns        calls, the table of docs/rare_events.md
python -m experiments.rare_events coverage         intervals in repeats with other seeds
python -m experiments.rare_events brute 2000000    mechanisms against crude Monte Carlo
python -m experiments.rare_events overhead         CPU seconds beside the trajectories
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import openturns as ot

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
    WhiteNoise,
    failure_probability,
)
from jaxmech.ensemble.failure.limit_state import LimitState
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


def coverage(repeats: int = 100) -> None:
    """How many of the intervals of 95 % hold the exact probability."""
    from scipy import stats

    x = np.linspace(-3.5, 3.5, 20_001)
    inside = stats.norm.pdf(x) * (1 - 2 * stats.norm.sf(3 + 0.2 * x**2))
    exact = 1 - float(np.trapezoid(inside, x))
    for method in ("importance", "directional", "subset", "auto"):
        spread = 0.1
        results = [
            failure_probability(
                study_of(four_branches, {"x1": PLAIN, "x2": PLAIN}, seed=seed),
                failure=failure(method, coefficient_of_variation=spread),
            )
            for seed in range(repeats)
        ]
        held = sum(r.interval[0] < exact < r.interval[1] for r in results)
        ratio = np.mean([r.probability for r in results]) / exact
        print(f"{method}: {held} of {repeats} intervals, mean / exact {ratio:.4f}", flush=True)


def trolley(t: Any, p: Any) -> Any:
    phase = jnp.clip(t / p["rise"], 0.0, 1.0)
    return 0.5 * p["speed"] * (1 - jnp.cos(jnp.pi * phase))


def crane_lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    (angle,), (rate,) = q, v
    u, w = trolley(t, p) + p["l"] * rate * jnp.cos(angle), p["l"] * rate * jnp.sin(angle)
    return 0.5 * p["m"] * (u**2 + w**2) + p["m"] * 9.81 * p["l"] * jnp.cos(angle)


def mechanisms() -> Iterator[tuple[str, Study]]:
    """Studies without a closed form, whose failures are frequent enough to be counted."""
    crane = jm.System(
        crane_lagrangian, coordinates=("angle",),
        force=lambda q, v, t, p: -p["wind"] * p["l"] * jnp.cos(q),
    )  # fmt: skip
    yield "crane", Study(
        model=crane, size=2000, block=2000, times=Times(end=10.0, saves=51),
        coordinates={"angle": Normal(mean=0.0, sd=0.03)},
        velocities={"angle": Normal(mean=0.0, sd=0.02)},
        parameters={
            "m": Fixed(2000.0), "l": Normal(mean=8.0, sd=0.5),
            "speed": Normal(mean=2.8, sd=0.2), "rise": Normal(mean=3.0, sd=0.3, low=1.0),
            "wind": Normal(mean=500.0, sd=200.0),
        },
        observe={"swing": Observed(lambda q, v, t, p: jnp.rad2deg(jnp.abs(q[0])))},
        failure=Failure(of="swing", above=26.0),
    )  # fmt: skip
    yield "double pendulum", Study(
        model="double_pendulum", size=2000, block=2000, times=Times(end=2.0, saves=41),
        start={"theta1": Normal(mean=0.9, sd=0.15), "theta2": Normal(mean=0.9, sd=0.15)},
        parameters={"m1": Normal(sd=0.1, relative=True), "l2": Normal(sd=0.03, relative=True)},
        failure=Failure(of="y2", above=0.0),
    )  # fmt: skip
    bicycle = jm.System(bicycle_energy, coordinates=("roll", "steer"), force=bicycle_force)
    yield "bicycle in gusts", Study(
        model=bicycle, size=2000, times=Times(end=4.0, saves=41), steps=FixedSteps(per_save=4),
        coordinates={"roll": Normal(mean=0.0, sd=0.02), "steer": Normal(mean=0.0, sd=0.02)},
        parameters={"speed": Normal(mean=4.6, sd=0.15)},
        inputs={"gust": WhiteNoise(intensity=20.0, interval=0.1)},
        observe={"fall": Observed(lambda q, v, t, p: jnp.abs(q[0]))},
        failure=Failure(of="fall", above=0.5),
    )  # fmt: skip


def bicycle_force(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Of a riderless bicycle, roll and steer (Meijaard et al., Proc. R. Soc. A 463, 2007)."""
    K0 = jnp.array([[-80.95, -2.59951685249872], [-2.59951685249872, -0.80329488458618]])
    K2 = jnp.array([[0.0, 76.59734589573222], [0.0, 2.65431523794604]])
    C1 = jnp.array([[0.0, 33.86641391492494], [-0.85035641456978, 1.6854039739756]])
    speed = p["speed"]
    return -speed * C1 @ v - (9.81 * K0 + speed**2 * K2) @ q + jnp.stack([p["gust"](t), 0.0 * t])


def bicycle_energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    M = jnp.array([[80.81722, 2.31941332208709], [2.31941332208709, 0.29784188199686]])
    return 0.5 * v @ M @ v


def brute(count: int) -> None:
    """The mechanisms against crude Monte Carlo."""
    for name, study in mechanisms():
        assert study.failure is not None
        counted = replace(
            study.failure, method="monte-carlo", most=count, coefficient_of_variation=1e-3
        )
        for failure_ in (study.failure, replace(study.failure, method="subset"), counted):
            start = time.process_time()
            result = failure_probability(study, failure=failure_)
            seconds = time.process_time() - start
            low, high = result.interval
            print(
                f"{name}: {result.method} {result.probability:.4g} ({low:.4g} ... {high:.4g}), "
                f"{result.trajectories:,} trajectories, {seconds:.0f} CPU s {result.remarks}",
                flush=True,
            )


def overhead() -> None:
    """CPU seconds of the crane: those of the trajectories, and all others, once compiled."""
    seconds, calls, compiled = [0.0, 0.0], [0, 0], [0.0]
    whole, ready, lanes_of = LimitState.computed, [0.0], [0]

    def timed(limit: LimitState, u: Any, lanes: int, with_gradient: bool) -> Any:
        start = time.process_time()
        ready.append(start)
        result = whole(limit, u, lanes, with_gradient)
        calls[with_gradient] += 1
        lanes_of[0] += lanes
        if calls[with_gradient] == 1:  # it is compiled
            compiled[0] += time.process_time() - start
        else:
            seconds[with_gradient] += time.process_time() - start
        return result

    LimitState.computed = timed  # type: ignore[method-assign]
    for name, study in mechanisms():
        for method in ("auto", "subset"):
            seconds[:], calls[:], compiled[:] = [0.0, 0.0], [0, 0], [0.0]
            ready[:], lanes_of[:] = [], [0]
            assert study.failure is not None
            start = time.process_time()
            failure_ = replace(study.failure, method=method, coefficient_of_variation=0.02)
            result = failure_probability(replace(study, block=None), failure=failure_)
            rest = time.process_time() - ready[0] - sum(seconds) - compiled[0]
            share = 100 * rest / sum(seconds)
            print(f"{name}, {method}: {result.trajectories:,} trajectories in "
                  f"{lanes_of[0]:,} lanes, {sum(seconds):.2f} s, "
                  f"planned in {ready[0] - start:.2f} s, first calls {compiled[0]:.2f} s, "
                  f"all else {rest:.2f} s: {share:.0f} %",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    command, *rest = sys.argv[1:] or ["openturns"]
    commands = {
        "openturns": openturns, "coverage": coverage, "brute": brute,
        "overhead": overhead,
    }  # fmt: skip
    commands[command](*map(int, rest))
