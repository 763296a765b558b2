"""The study: recordings with known parameters, fits of them, and what is asked of the fits.

Every repeat draws its noise, its recorded starts and the parameters that its fit begins with; the
motions are the same in all repeats. The starts of a repeat with free initial states are recorded
with noise of their own, which `start_sd` tells. In the fits without noise the recorded starts of
those are wrong all the same, and nothing is said about them: they are found from the angles alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from tqdm import tqdm

import jaxmech as jm
from experiments.recovery.mechanisms import Case, double_pendulum, four_bar
from jaxmech.identify import Fit, Recording, fit

EXACT = 1e-6  # relative error without noise, at most
COVERED = (0.90, 0.99)  # part of the 95 % intervals that hold the truth
MECHANISMS = {"double pendulum": double_pendulum, "four-bar": four_bar}
FINER = 8  # steps of the data for each step of the fit


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What is run.

    Attributes:
        mechanisms: which of them.
        initial_states: what the fits take the initial states for.
        repeats: fits with noise.
        exact: fits without noise.
        recordings: in every fit.
        duration: of a recording [s].
        rate: samples per second [Hz].
        substeps: steps of RK4 in a fit from one sample to the next.
        noise: standard deviation of every measured angle [rad].
        start_noise: that of a recorded start variable [rad], where starts are free.
        rate_noise: that of its rate [rad/s].
        spread: the fits begin with every parameter off by up to this factor, less one.
        seed: of all draws.
    """

    mechanisms: tuple[Literal["double pendulum", "four-bar"], ...] = ("double pendulum", "four-bar")
    initial_states: tuple[Literal["fixed", "free"], ...] = ("fixed", "free")
    repeats: int = 200
    exact: int = 5
    recordings: int = 4
    duration: float = 1.5
    rate: float = 200.0
    substeps: int = 2
    noise: float = 1e-3
    start_noise: float = 2e-3
    rate_noise: float = 1e-2
    spread: float = 0.1
    seed: int = 1


@dataclass(frozen=True)
class Row:
    """One parameter.

    Attributes:
        name: of it.
        truth: its value.
        error: largest relative error of the fits without noise.
        coverage: part of the 95 % intervals that hold the truth.
        stated: mean standard error that the fits state.
        scatter: standard deviation of the estimates.
        scores: of each repeat, (estimate - truth) / stated standard error.
    """

    name: str
    truth: float
    error: float
    coverage: float
    stated: float
    scatter: float
    scores: list[float]

    @property
    def missed(self) -> list[str]:
        """What is asked and not reached, in words."""
        found = []
        if not self.error <= EXACT:
            found.append(f"{self.name}: relative error {self.error:.1e} without noise")
        if not COVERED[0] <= self.coverage <= COVERED[1]:
            found.append(f"{self.name}: the intervals hold the truth in {self.coverage:.1%}")
        return found


@dataclass(frozen=True)
class Result:
    """One mechanism with fixed or free initial states.

    Attributes:
        mechanism: its name.
        initial_states: "fixed" or "free".
        converged: part of all fits that stopped because nothing was left to gain.
        noise: mean standard deviation of the weighted residuals, 1 if all is right.
        rows: the parameters.
    """

    mechanism: str
    initial_states: str
    converged: float
    noise: float
    rows: list[Row]

    @property
    def missed(self) -> list[str]:
        """What is asked and not reached, in words."""
        found = [text for row in self.rows for text in row.missed]
        if self.converged < 1:
            found.append(f"{self.converged:.1%} of the fits converged")
        return [f"{self.mechanism}, {self.initial_states} starts: {text}" for text in found]


def run(study: Recovery, *, progress: bool = False) -> Iterator[Result]:
    """All mechanisms of the study, with fixed and with free initial states."""
    for name in study.mechanisms:
        case = MECHANISMS[name]()
        motions = list(_motions(study, case))
        for initial_states in study.initial_states:
            yield _result(study, case, motions, initial_states, progress)


def _motions(study: Recovery, case: Case) -> Iterator[Recording]:
    """The recordings as they would be without noise, made in minimal coordinates."""
    rng = np.random.default_rng(study.seed)
    ts = np.arange(round(study.duration * study.rate) + 1) / study.rate
    fine = jm.RK4(substeps=FINER * study.substeps)
    for _ in range(study.recordings):
        x, rate = rng.uniform(case.low, case.high)
        sol = jm.simulate(case.minimal, x, rate, ts, case.params, method=fine)
        yield Recording(ts, _shown(case, sol), x, rate)


def _shown(case: Case, sol: jm.Solution) -> Any:
    def one(x: Any, rate: Any, t: Any) -> Any:
        return case.observe(*case.start(x, rate, case.params), t, case.params)

    return jax.vmap(one)(sol.q, sol.v, sol.ts)


def _result(
    study: Recovery, case: Case, motions: list[Recording], initial_states: str, progress: bool
) -> Result:
    label = f"{case.name}, {initial_states} starts"
    numbers = tqdm(range(-study.exact, study.repeats), label, disable=not progress, leave=False)
    fits = [_one(study, case, motions, initial_states, number) for number in numbers]
    exact, noisy = fits[: study.exact], fits[study.exact :]
    return Result(
        mechanism=case.name,
        initial_states=initial_states,
        converged=float(np.mean([one.converged for one in fits])),
        noise=float(np.mean([one.noise for one in noisy])),
        rows=[_row(case, name, exact, noisy) for name in fits[0].names],
    )


def _one(
    study: Recovery, case: Case, motions: list[Recording], initial_states: str, number: int
) -> Fit:
    """Repeat number 0, 1 ... with noise; without it for a negative number."""
    rng = np.random.default_rng([study.seed, number % 2**32])
    off = {name: rng.uniform(1 - study.spread, 1 + study.spread) for name in case.free}
    params0 = {name: value * off.get(name, 1.0) for name, value in case.params.items()}
    return fit(
        case.system,
        [_recorded(study, one, initial_states, rng, noisy=number >= 0) for one in motions],
        params0,
        observe=case.observe,
        start=case.start,
        free=case.free,
        bounds=dict.fromkeys(case.free, (0, None)),
        initial_states=initial_states,
        method=jm.RK4(substeps=study.substeps),
    )


def _recorded(
    study: Recovery,
    motion: Recording,
    initial_states: str,
    rng: np.random.Generator,
    *,
    noisy: bool,
) -> Recording:
    sds = (study.start_noise, study.rate_noise) if initial_states == "free" else (0.0, 0.0)
    observed = motion.observed
    if noisy:
        observed = observed + rng.normal(0.0, study.noise, observed.shape)
    return Recording(
        motion.ts,
        observed,
        motion.q0 + sds[0] * rng.normal(size=motion.q0.shape),
        motion.v0 + sds[1] * rng.normal(size=motion.v0.shape),
        weights=1 / study.noise,
        start_sd=sds if noisy and initial_states == "free" else None,
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
