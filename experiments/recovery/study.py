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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

import jaxmech as jm
from experiments.recovery.mechanisms import Case, double_pendulum, four_bar, pendulum
from experiments.recovery.recordings import (
    OPTIONS,
    WORDS,
    Kind,
    Motion,
    from_a_file,
    motions,
    noise_like,
)
from experiments.recovery.vehicles import cart_pole, rolling_disc
from jaxmech.ensemble import Cluster
from jaxmech.identify import Fit, Recording, fit

EXACT = 1e-6  # largest relative error without noise
COVERED = (0.90, 0.99)  # share of the 95 % intervals that contain the truth
MECHANISMS: dict[str, Callable[[], Case]] = {
    "pendulum": pendulum,
    "double pendulum": double_pendulum,
    "four-bar": four_bar,
    "cart-pole": cart_pole,
    "rolling disc": rolling_disc,
}

Mechanism = Literal["pendulum", "double pendulum", "four-bar", "cart-pole", "rolling disc"]
Starts = Literal["exact", "measured", "positions"]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Fits of one mechanism that differ only in their random draws."""

    mechanism: Mechanism
    starts: Starts  # the given information on the initial states
    repeats: int = 200  # fits with noise
    recordings: int = 4  # in every fit
    noise: float | tuple[float, ...] = 1e-3  # standard deviation of the sensors, all or each
    kind: Kind = "white"  # of the noise
    duration: float = 1.5  # of a recording [s]
    rate: float = 200.0  # samples per second [Hz]

    @property
    def ts(self) -> np.ndarray:
        """The times of the samples [s]."""
        return np.arange(round(self.duration * self.rate) + 1) / self.rate


def _all_series() -> tuple[Series, ...]:
    told: tuple[Starts, ...] = ("exact", "measured")
    two: tuple[Mechanism, ...] = ("double pendulum", "four-bar")
    levels = [(noise, count) for noise in (1e-3, 3e-3, 1e-2) for count in (1, 4)]
    unlike: dict[Mechanism, tuple[float, ...]] = {
        "pendulum": (1e-2,),
        "cart-pole": (5e-4, 6e-2),
        "rolling disc": (5e-4, 5e-4, 6e-2, 6e-2),
    }
    kinds: tuple[Kind, ...] = ("white", "outliers", "correlated")
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
        *(
            Series(mechanism=name, starts="positions", noise=noise, kind=kind, recordings=1,
                   duration=5.0, rate=50.0)
            for name, noise in unlike.items()
            for kind in kinds
        ),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The keys of the configuration."""

    series: tuple[Series, ...] = _all_series()
    exact: int = 5  # fits without noise in each series
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
    noise: float  # median standard deviation of the residuals, relative to that of the noise
    disturbance: str  # the noise in words
    rows: list[Row]  # for each parameter

    @property
    def title(self) -> str:
        """A short description of the series."""
        one = self.series
        count = f"{one.recordings} recording{'s' * (one.recordings > 1)}"
        return f"{one.mechanism}, {one.starts}, {self.disturbance}, {count}"

    @property
    def missed(self) -> list[str]:
        """The missed targets, as text."""
        found = [text for row in self.rows for text in row.missed]
        if self.converged < 1:
            found.append(f"{self.converged:.1%} of the fits converged")
        return [f"{self.title}: {text}" for text in found]


def run(
    study: Recovery, *, progress: bool = False, workers: Callable[..., Any] = map
) -> Iterator[Result]:
    """Run all series of the study, one after the other, with the fits of each on `workers`."""
    for series in study.series:
        case = MECHANISMS[series.mechanism]()
        made = motions(case, series.recordings, series.ts, study.per_save, study.seed)
        yield _result(study, series, case, list(made), progress, workers)


def sizes(series: Series, case: Case) -> np.ndarray:
    """The standard deviation of each sensor, (d,)."""
    return np.broadcast_to(np.asarray(series.noise, float), len(case.units))


def in_words(series: Series, case: Case) -> str:
    """The noise of a series, such as "0.5 mm, 60 mrad"."""
    pairs = zip(sizes(series, case), case.units, strict=True)
    each = dict.fromkeys(f"{1e3 * size:g} m{unit}" for size, unit in pairs)
    return ", ".join(each) + WORDS[series.kind]


def _result(
    study: Recovery,
    series: Series,
    case: Case,
    recorded: list[Motion],
    progress: bool,
    workers: Callable[..., Any],
) -> Result:
    numbers = range(-study.exact, series.repeats)
    label = f"{series.mechanism}, {series.starts}"
    one = partial(_one, study, series, case, recorded)
    done = tqdm(workers(one, numbers), label, len(numbers), disable=not progress, leave=False)
    fits = list(done)
    exact, noisy = fits[: study.exact], fits[study.exact :]
    return Result(
        series=series,
        converged=float(np.mean([one.converged for one in fits])),
        warned=float(np.mean([bool(one.notes) for one in noisy])),
        noise=float(np.median([_relative_noise(one, sizes(series, case)) for one in noisy])),
        disturbance=in_words(series, case),
        rows=[_row(case, name, exact, noisy) for name in fits[0].names],
    )


def _relative_noise(one: Fit, sizes: np.ndarray) -> float:
    """The noise that a fit has found, relative to the true one."""
    return float(
        one.noise.size if one.noise.sensors is None else np.mean(one.noise.sensors / sizes)
    )


def _one(study: Recovery, series: Series, case: Case, recorded: list[Motion], number: int) -> Fit:
    """Run fit number 0, 1, ... with noise; a negative number means without noise."""
    rng = np.random.default_rng([study.seed, number % 2**32])
    off = {name: rng.uniform(1 - study.spread, 1 + study.spread) for name in case.free}
    params0 = {name: value * off.get(name, 1.0) for name, value in case.params.items()}
    noisy = number >= 0
    options: dict[str, Any] = {}
    if series.starts == "positions":
        recordings = from_a_file(case, _observed(series, case, recorded, rng, noisy), recorded)
    else:
        recordings = _with_starts(study, series, case, recorded, rng, noisy)
        options["bounds"] = dict.fromkeys(case.free, (0, None))
        options["initial_states"] = "free" if series.starts == "measured" else "fixed"
    return fit(
        case.system,
        recordings,
        params0,
        observe=case.observe,
        start=case.start,
        free=case.free,
        steps=jm.FixedSteps(per_save=study.per_save),
        **options,
        **(OPTIONS[series.kind] if noisy else {}),
    )


def _observed(
    series: Series, case: Case, recorded: list[Motion], rng: np.random.Generator, noisy: bool
) -> list[np.ndarray]:
    """What the sensors show of each motion, (T, d)."""
    sds = sizes(series, case) if noisy else np.zeros(len(case.units))
    shapes = [motion.observed.shape for motion in recorded]
    noises = [noise_like(rng, shape, series.kind) for shape in shapes]
    return [motion.observed + sds * e for motion, e in zip(recorded, noises, strict=True)]


def _with_starts(
    study: Recovery, series: Series, case: Case, recorded: list[Motion], rng: np.random.Generator,
    noisy: bool,
) -> list[Recording]:  # fmt: skip
    """Recordings with stated noise and recorded initial states."""
    measured = series.starts == "measured"
    sds = (study.start_noise, study.rate_noise) if measured else (0.0, 0.0)
    shown = _observed(series, case, recorded, rng, noisy)
    return [
        Recording(
            motion.ts,
            observed,
            motion.x + sds[0] * rng.normal(size=motion.x.shape),
            motion.rate + sds[1] * rng.normal(size=motion.rate.shape),
            weights=1 / sizes(series, case),
            start_sd=sds if noisy and measured else None,
            inputs=motion.inputs,
        )
        for motion, observed in zip(recorded, shown, strict=True)
    ]


def _row(case: Case, name: str, exact: list[Fit], noisy: list[Fit]) -> Row:
    truth, place = case.params[name], exact[0].names.index(name)
    values = np.array([one.values[place] for one in noisy])
    stated = np.array([one.uncertainty.standard_errors[place] for one in noisy])
    low, high = np.array([one.uncertainty.reliable_interval(0.95)[place] for one in noisy]).T
    return Row(
        name=name,
        truth=truth,
        error=float(max(abs(one.values[place] / truth - 1) for one in exact)),
        coverage=float(np.mean((low <= truth) & (truth <= high))),
        stated=float(stated.mean()),
        scatter=float(values.std(ddof=1)),
        scores=((values - truth) / stated).tolist(),
    )
