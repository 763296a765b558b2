"""The study: synthetic recordings with known parameters, fits to them, and targets of the fits.

The motions are the same in all repeats; every repeat draws its own noise, recorded initial states
and initial guess of the parameters. The initial states are known in one of three ways:

- "exact": they are recorded without error, and fixed;
- "measured": they are recorded with noise, whose size is passed as `start_sd`, and fitted;
- "positions": a CSV file holds the measured positions only, without rates or the size of the noise,
  and `fit` runs with default arguments.

In the fits without noise the recorded initial states of "measured" still have errors, but without
`start_sd`: they are determined by the angles alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import jax
import numpy as np
from tqdm import tqdm

import jaxmech as jm
from experiments.recovery.mechanisms import Case, double_pendulum, four_bar, pendulum
from jaxmech.ensemble import Cluster
from jaxmech.identify import Fit, Recording, Table, fit, read_table
from jaxmech.identify.identifiable import MapLike

EXACT = 1e-6  # largest relative error without noise
COVERED = (0.90, 0.99)  # share of the 95 % intervals that contain the truth
MECHANISMS = {"pendulum": pendulum, "double pendulum": double_pendulum, "four-bar": four_bar}
FINER = 8  # steps of the simulated recording per step of the fit

Starts = Literal["exact", "measured", "positions"]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Fits of one mechanism that differ only in their random draws."""

    mechanism: Literal["pendulum", "double pendulum", "four-bar"]
    starts: Starts  # the given information on the initial states
    repeats: int = 200  # fits with noise
    recordings: int = 4  # in every fit
    noise: float = 1e-3  # standard deviation of every measured angle [rad]


def _all_series() -> tuple[Series, ...]:
    told: tuple[Starts, ...] = ("exact", "measured")
    two: tuple[Literal["double pendulum", "four-bar"], ...] = ("double pendulum", "four-bar")
    levels = [(noise, count) for noise in (1e-3, 3e-3, 1e-2) for count in (1, 4)]
    return (
        *(Series(mechanism=name, starts=starts) for name in two for starts in told),
        *(
            Series(mechanism="pendulum", starts="positions", noise=noise, recordings=count)
            for noise, count in levels
        ),
        *(
            Series(mechanism=name, starts="positions", noise=noise, recordings=count)
            for name in two
            for noise, count in ((1e-3, 1), (3e-3, 4))
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The keys of the configuration."""

    series: tuple[Series, ...] = _all_series()
    exact: int = 5  # fits without noise in each series
    duration: float = 1.5  # of a recording [s]
    rate: float = 200.0  # samples per second [Hz]
    per_save: int = 2  # steps of RK4 in a fit from one sample to the next
    start_noise: float = 2e-3  # standard deviation of a measured start variable [rad]
    rate_noise: float = 1e-2  # that of its rate [rad/s]
    spread: float = 0.1  # largest relative error of the initial guess of a parameter
    seed: int = 1
    cluster: Cluster | None = None  # whose workers compute the fits


@dataclass(frozen=True)
class Row:
    """The results for one parameter."""

    name: str
    truth: float
    error: float  # largest relative error of the fits without noise
    coverage: float  # share of the 95 % intervals that contain the truth
    stated: float  # mean of the stated standard errors
    scatter: float  # standard deviation of the estimates
    scores: list[float]  # of each repeat, (estimate - truth) / stated standard error

    @property
    def missed(self) -> list[str]:
        """The missed targets, as text."""
        found = []
        if not self.error <= EXACT:
            found.append(f"{self.name}: relative error {self.error:.1e} without noise")
        if not COVERED[0] <= self.coverage <= COVERED[1]:
            found.append(f"{self.name}: the intervals contain the truth in {self.coverage:.1%}")
        return found


@dataclass(frozen=True)
class Result:
    """The results of a series."""

    series: Series
    converged: float  # share of all fits
    warned: float  # share of the fits with noise that had warnings
    noise: float  # mean standard deviation of the residuals, relative to that of the noise
    rows: list[Row]  # for each parameter

    @property
    def title(self) -> str:
        """A short description of the series."""
        one = self.series
        count = f"{one.recordings} recording{'s' * (one.recordings > 1)}"
        return f"{one.mechanism}, {one.starts}, {1e3 * one.noise:g} mrad, {count}"

    @property
    def missed(self) -> list[str]:
        """The missed targets, as text."""
        found = [text for row in self.rows for text in row.missed]
        if self.converged < 1:
            found.append(f"{self.converged:.1%} of the fits converged")
        return [f"{self.title}: {text}" for text in found]


def run(study: Recovery, *, progress: bool = False, workers: MapLike = map) -> Iterator[Result]:
    """Run all series of the study, one after the other, with the fits of each on `workers`."""
    for series in study.series:
        case = MECHANISMS[series.mechanism]()
        yield _result(study, series, case, list(_motions(study, series, case)), progress, workers)


def _motions(study: Recovery, series: Series, case: Case) -> Iterator[Recording]:
    """Simulate the recordings without noise, in minimal coordinates."""
    rng = np.random.default_rng(study.seed)
    ts = np.arange(round(study.duration * study.rate) + 1) / study.rate
    fine = jm.FixedSteps(per_save=FINER * study.per_save)
    for _ in range(series.recordings):
        x, rate = rng.uniform(case.low, case.high)
        sol = jm.simulate(case.minimal, x, rate, ts, case.params, steps=fine)
        yield Recording(ts, _shown(case, sol), x, rate)


def _shown(case: Case, sol: jm.Solution) -> Any:
    def one(x: Any, rate: Any, t: Any) -> Any:
        return case.observe(*case.start(x, rate, case.params), t, case.params)

    return jax.vmap(one)(sol.q, sol.v, sol.ts)


def _result(
    study: Recovery,
    series: Series,
    case: Case,
    motions: list[Recording],
    progress: bool,
    workers: MapLike,
) -> Result:
    numbers = range(-study.exact, series.repeats)
    label = f"{series.mechanism}, {series.starts}"
    one = partial(_one, study, series, case, motions)
    done = tqdm(workers(one, numbers), label, len(numbers), disable=not progress, leave=False)
    fits = list(done)
    exact, noisy = fits[: study.exact], fits[study.exact :]
    unit = series.noise if series.starts == "positions" else 1.0
    return Result(
        series=series,
        converged=float(np.mean([one.converged for one in fits])),
        warned=float(np.mean([bool(one.notes) for one in noisy])),
        noise=float(np.mean([one.noise for one in noisy])) / unit,
        rows=[_row(case, name, exact, noisy) for name in fits[0].names],
    )


def _one(study: Recovery, series: Series, case: Case, motions: list[Recording], number: int) -> Fit:
    """Run fit number 0, 1, ... with noise; a negative number means without noise."""
    rng = np.random.default_rng([study.seed, number % 2**32])
    off = {name: rng.uniform(1 - study.spread, 1 + study.spread) for name in case.free}
    params0 = {name: value * off.get(name, 1.0) for name, value in case.params.items()}
    if series.starts == "positions":
        noise = series.noise if number >= 0 else 0.0
        return fit(
            case.system, _from_a_file(motions, noise, rng), params0, observe=case.observe,
            start=case.start, free=case.free, steps=jm.FixedSteps(per_save=study.per_save),
        )  # fmt: skip
    return fit(
        case.system,
        [_recorded(study, series, one, rng, noisy=number >= 0) for one in motions],
        params0,
        observe=case.observe,
        start=case.start,
        free=case.free,
        bounds=dict.fromkeys(case.free, (0, None)),
        initial_states="free" if series.starts == "measured" else "fixed",
        steps=jm.FixedSteps(per_save=study.per_save),
    )


def _from_a_file(
    motions: list[Recording], noise: float, rng: np.random.Generator
) -> tuple[Recording, ...]:
    """Read recordings back from a CSV file of times and positions."""
    sensors = [f"angle{k + 1}" for k in range(motions[0].observed.shape[1])]
    lines = [",".join(["number", "t", *sensors])]
    for number, one in enumerate(motions):
        shown = one.observed + noise * rng.normal(size=one.observed.shape)
        for t, row in zip(one.ts, shown, strict=True):
            lines.append(",".join([str(number), f"{t:.4f}", *(f"{x:.12g}" for x in row)]))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "angles.csv"
        file.write_text("\n".join(lines), encoding="utf-8")
        table = Table(
            file=str(file), observed=tuple(sensors), time="t", recording="number",
            q0=tuple(sensors[: motions[0].q0.size]),
        )  # fmt: skip
        return read_table(table).train


def _recorded(
    study: Recovery, series: Series, motion: Recording, rng: np.random.Generator, *, noisy: bool
) -> Recording:
    measured = series.starts == "measured"
    sds = (study.start_noise, study.rate_noise) if measured else (0.0, 0.0)
    observed = motion.observed
    if noisy:
        observed = observed + rng.normal(0.0, series.noise, observed.shape)
    return Recording(
        motion.ts,
        observed,
        motion.q0 + sds[0] * rng.normal(size=motion.q0.shape),
        motion.v0 + sds[1] * rng.normal(size=motion.v0.shape),
        weights=1 / series.noise,
        start_sd=sds if noisy and measured else None,
    )


def _row(case: Case, name: str, exact: list[Fit], noisy: list[Fit]) -> Row:
    truth, place = case.params[name], exact[0].names.index(name)
    values = np.array([one.values[place] for one in noisy])
    stated = np.array([one.uncertainty.standard_errors[place] for one in noisy])
    low, high = np.array([one.uncertainty.interval(0.95)[place] for one in noisy]).T
    return Row(
        name=name,
        truth=truth,
        error=float(max(abs(one.values[place] / truth - 1) for one in exact)),
        coverage=float(np.mean((low <= truth) & (truth <= high))),
        stated=float(stated.mean()),
        scatter=float(values.std(ddof=1)),
        scores=((values - truth) / stated).tolist(),
    )
