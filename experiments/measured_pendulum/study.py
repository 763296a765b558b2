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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.measured_pendulum.pendulums import COORDINATES, PENDULUMS, Coordinates, rig
from experiments.measuring import table_head, table_row
from jaxmech.cli.fit import FitStudy, Outcome, run_fit
from jaxmech.config.toml import read
from jaxmech.identify import Recording
from jaxmech.identify.fit import Identifiable
from jaxmech.identify.table import Recordings, read_table

AUTHORS_LAW = "viscous"
MRAD = 1e3

Errors = Mapping[str, np.ndarray]  # RMS error of each segment [rad], by "train" and "validation"


FOLDS = 5
_MORE = ("coulomb+air+drag", "lifting+air+drag")
_ALL = (
    "viscous", "viscous+drag", "coulomb+viscous", "coulomb+drag", "coulomb+viscous+drag",
    "lifting+viscous", "lifting+drag", "lifting+viscous+drag", "stribeck+viscous", "stribeck+drag",
)  # fmt: skip
LAWS = {"single": _ALL, "double": _ALL + _MORE, "triple": (*_ALL[:4], *_MORE)}


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of the study."""

    pendulum: str  # "single", "double" or "triple"
    held_out: Mapping[str, np.ndarray]  # RMS error of each fold by law, of segments not fitted
    outcomes: Mapping[Coordinates, Outcome]  # of the fits with the chosen law
    errors: Mapping[str, Errors]  # of the "published" estimate and of the fits, from all samples

    @property
    def chosen(self) -> str:
        """The law with the smallest error."""
        return chosen_of(self.held_out)


def chosen_of(held_out: Mapping[str, np.ndarray]) -> str:
    return min(held_out, key=lambda law: rms(held_out[law]))


def run(
    config: Path, out: Path, progress: bool = False, laws: Sequence[str] = (), folds: int = FOLDS
) -> Comparison:
    """Choose a law, fit it in both coordinates, and compare with the published estimate.

    `config` is a configuration of `jaxmech fit`; the run folders of the fits are made in `out`.
    """
    study = read(config, FitStudy)
    pendulum = study.model.rpartition(":")[2]
    recordings = read_table(study.data, config.parent).train
    held_out = {
        law: cross_validated(rig(pendulum, law).subject, recordings, study, folds)
        for law in laws or LAWS[pendulum]
    }
    law, outcomes = chosen_of(held_out), dict[Coordinates, Outcome]()
    for kind in COORDINATES:
        options = {**study.model_options, "law": law, "coordinates": kind}
        outcomes[kind] = run_fit(
            replace(study, model_options=options), out / kind, folder=config.parent,
            progress=progress,
        )  # fmt: skip
    whole = read_table(replace(study.data, stride=1), config.parent)
    with np.load(config.parent / study.data.file) as file:
        errors = {"published": of_authors(pendulum, file["published_estimate"], whole)}
    for kind in COORDINATES:
        subject = rig(pendulum, law, kind).subject
        errors[kind] = errors_of(subject, outcomes[kind].fit.params, whole)
    return Comparison(pendulum, held_out, outcomes, errors)


def cross_validated(
    subject: Identifiable, recordings: Sequence[Recording], study: FitStudy, folds: int = FOLDS
) -> np.ndarray:
    """The RMS error of segments that were not fitted, for each fold of neighbours in time."""
    fold_of = np.sort(np.arange(len(recordings)) % folds)
    errors = []
    for fold in range(folds):
        found = jm.fit(
            subject,
            [one for one, k in zip(recordings, fold_of, strict=True) if k != fold],
            validation=[one for one, k in zip(recordings, fold_of, strict=True) if k == fold],
            **vars(study.settings()),
        )
        errors.append(rms(found.validation_errors))
    return np.array(errors)


def of_authors(pendulum: str, estimate: np.ndarray, recordings: Recordings) -> Errors:
    """The errors of the published estimate, which assumes perfect sensors and viscous friction."""
    subject = rig(pendulum, AUTHORS_LAW).subject
    params = {**subject.params, **PENDULUMS[pendulum].published(estimate)}
    return errors_of(subject, params, recordings)


def errors_of(subject: Identifiable, params: Any, recordings: Recordings) -> Errors:
    return {
        part: np.array([rms(p - one.observed) for p, one in zip(made, segments, strict=True)])
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


def laws(comparison: Comparison) -> str:
    """Format the errors of the held-out segments by law, in Markdown."""
    rows = [
        table_row([law, f"{MRAD * rms(errors):.2f}"]) for law, errors in comparison.held_out.items()
    ]
    head = table_head(["law", "error of the held-out segments [mrad]"])
    return "\n".join([head, *rows, "", f"{comparison.chosen} has the smallest error"])


def table(comparison: Comparison) -> str:
    """Format the RMS error of every segment from its first sample, in Markdown."""

    def cell(values: np.ndarray) -> str:
        each = ", ".join(f"{MRAD * value:.2f}" for value in values)
        return f"{MRAD * values.mean():.2f} ({each})"

    parts = "train", "validation"
    rows = [
        table_row([who, *(cell(found[part]) for part in parts)])
        for who, found in comparison.errors.items()
    ]
    head = table_head([f"{comparison.pendulum}: RMS angle error [mrad]", *parts])
    return "\n".join([head, *rows])


def rms(residuals: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean(residuals**2)))
