"""The study of one pendulum: `jaxmech fit` in both coordinates, and the published estimate.

The friction law is chosen by cross-validation within the training segments: every law is fitted
without some segments, which are then simulated from their first recorded samples. Segments that are
neighbours in time are left out together, so that a fold is a range of speeds outside the fitted
ones. A held-out segment between two fitted ones would only test how well a law interpolates.

The law with the smallest error is selected, because it is meant for predictions. Thousands of
samples allow for a few more coefficients, and the folds show how they extrapolate.

Initial states are fixed to the recorded ones in every fit, because errors are defined from there.
The validation segments are used only for the final figures.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.measured_pendulum import double, single, triple
from experiments.measured_pendulum.rig import COORDINATES, Coordinates
from jaxmech.cli.fit.run import Outcome, run_fit
from jaxmech.cli.fit.study import Candidate, FitStudy
from jaxmech.config.toml import read
from jaxmech.identify import Recording
from jaxmech.identify.cross_validation import CrossValidation
from jaxmech.identify.data.table import Recordings, read_table
from jaxmech.identify.identifiable import Identifiable

PENDULUMS = {"single": single, "double": double, "triple": triple}
AUTHORS_LAW = "viscous"
MRAD = 1e3

Errors = Mapping[str, np.ndarray]  # RMS error of each segment [rad], by "train" and "validation"


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of the study."""

    pendulum: str  # "single", "double" or "triple"
    laws: CrossValidation
    outcomes: Mapping[Coordinates, Outcome]  # of the fits with the chosen law
    errors: Mapping[str, Errors]  # of the "published" estimate and of the fits, from all samples


def run(config: Path, out: Path, progress: bool = False) -> Comparison:
    """Choose a law, fit it in both coordinates, and compare with the published estimate.

    `config` is a configuration of `jaxmech fit` with the friction laws as candidates; the run
    folders of the fits are made in `out`.
    """
    study = read(config, FitStudy)
    pendulum = study.model.rpartition(":")[2]
    whole = read_table(replace(study.data, stride=1), config.parent)
    found = run_fit(study, out / "angles", folder=config.parent, progress=progress)
    assert found.comparison is not None
    chosen = next(one for one in study.candidates if one.name == found.comparison.chosen)
    bodies = in_bodies(study, chosen)
    outcomes: dict[Coordinates, Outcome] = {
        "angles": found,
        "bodies": run_fit(bodies, out / "bodies", folder=config.parent, progress=progress),
    }
    with np.load(config.parent / study.data.file) as file:
        errors = {"published": of_authors(pendulum, file["published_estimate"], whole)}
    for kind in COORDINATES:
        subject = PENDULUMS[pendulum].rig(chosen.model_options["law"], kind).subject
        errors[kind] = errors_of(subject, outcomes[kind].fit.params, whole)
    return Comparison(pendulum, found.comparison, outcomes, errors)


def in_bodies(study: FitStudy, law: Candidate) -> FitStudy:
    """Make the study with one law, in Cartesian coordinates."""
    options = {**study.model_options, **law.model_options, "coordinates": "bodies"}
    return replace(study, candidates=(), choice=None, model_options=options)


def of_authors(pendulum: str, estimate: np.ndarray, recordings: Recordings) -> Errors:
    """The errors of the published estimate, which assumes perfect sensors and viscous friction."""
    subject = PENDULUMS[pendulum].rig(AUTHORS_LAW).subject
    params = {**subject.params, **PENDULUMS[pendulum].published(estimate)}
    return errors_of(subject, params, recordings)


def errors_of(subject: Identifiable, params: Any, recordings: Recordings) -> Errors:
    return {
        part: np.array([_rms(p - one.observed) for p, one in zip(made, segments, strict=True)])
        for part, segments in recordings._asdict().items()
        for made in [predicted(subject, params, segments)]
    }


def predicted(
    subject: Identifiable, params: Any, segments: Sequence[Recording], step: float = 1e-3
) -> list[np.ndarray]:
    """Simulate the encoder readings (T, d) of each segment from its first sample."""
    ts = jnp.asarray(max((one.ts for one in segments), key=len))
    steps = jm.FixedSteps(per_save=ceil(float(ts[1] - ts[0]) / step - 1e-6))

    def one(q0: Any, v0: Any) -> Any:
        q, v = subject.start(q0, v0, params)
        sol = jm.simulate(subject.system, q, v, ts, params, steps=steps, throw=False)
        return jax.vmap(lambda q, v, t: subject.observe(q, v, t, params))(sol.q, sol.v, ts)

    starts = (jnp.asarray([getattr(s, name)[0] for s in segments]) for name in ("q0", "v0"))
    made = np.asarray(jax.jit(jax.vmap(one))(*starts))
    return [values[: len(one.ts)] for values, one in zip(made, segments, strict=True)]


def table(comparison: Comparison) -> str:
    """Format the RMS error of every segment from its first sample, in Markdown."""
    return "\n".join(_table(comparison))


def _table(comparison: Comparison) -> Iterator[str]:
    yield f"| {comparison.pendulum}: RMS angle error [mrad] | train | validation |"
    yield "|---|---|---|"
    for who, found in comparison.errors.items():
        cells = (_cell(found[part]) for part in ("train", "validation"))
        yield f"| {who} | {' | '.join(cells)} |"


def _cell(values: np.ndarray) -> str:
    each = ", ".join(f"{MRAD * value:.2f}" for value in values)
    return f"{MRAD * values.mean():.2f} ({each})"


def _rms(residuals: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean(residuals**2)))
