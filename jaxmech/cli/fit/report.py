"""The report of a fit, as plain text and in Markdown with pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.identify import CrossValidation, Fit


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of `jaxmech fit`."""

    title: str  # title of the study
    fit: Fit  # the fit, of the candidate that was chosen
    comparison: CrossValidation | None  # of the candidates, None if there were none
    sensors: tuple[str, ...]  # names of the measured quantities

    @property
    def succeeded(self) -> bool:
        """Whether the fit has converged and all recordings can be simulated."""
        parts = (self.fit.train_from_start, self.fit.validation)
        return self.fit.converged and all(np.isfinite(part.errors).all() for part in parts)


def as_text(outcome: Outcome) -> str:
    """Format the report for a terminal."""
    fit = outcome.fit
    comparison = [repr(outcome.comparison)] if outcome.comparison else []
    blocks = [outcome.title, *comparison, repr(fit), repr(fit.identifiability)]
    return "\n\n".join([*blocks, "\n".join(_errors_as_text(fit))]) + "\n"


def as_markdown(outcome: Outcome, pictures: Sequence[Path]) -> str:
    """The report with its pictures, files in a folder beside it."""
    fit = outcome.fit
    lines = [
        f"# {outcome.title}",
        "",
        _summary(fit),
        "",
        *(line for note in fit.data_notes for line in (f"{note}.", "")),
        *(f"> {text}" for warning in fit.warnings for text in (f"**Warning.** {warning}", "")),
    ]
    if comparison := outcome.comparison:
        lines += ["## Choice of the model", "", *_choice(comparison), ""]
    lines += ["## Parameters", "", *_parameters(fit), ""]
    lines += ["## Errors", "", *_errors(fit), ""]
    lines += ["## What the recordings determine", "", "```", repr(fit.identifiability), "```", ""]
    lines += ["## Pictures", ""]
    for file in pictures:
        name = file.stem.replace("_", " ")
        lines += [f"![{name}]({file.parent.name}/{file.name})", ""]
    return "\n".join(lines)


def _summary(fit: Fit) -> str:
    end, state = fit.optimization, "converged" if fit.converged else "**not converged**"
    noise = f"of the weighted residuals: {fit.noise.size:.3g}"
    if fit.noise.sensors is not None:
        each = " for each sensor" if len(fit.noise.sensors) > 1 else ""
        sizes = ", ".join(f"{sd:.3g}" for sd in fit.noise.sensors)
        noise = f"estimated from the residuals{each}: {sizes}"
    return (
        f"{len(fit.names)} parameters fitted to {len(fit.train.recordings)} recordings "
        f"({fit.count:,} measurements) in {end.evaluations} evaluations, {state}: {end.reason}. "
        f"Noise {noise}."
    )


def _choice(comparison: CrossValidation) -> list[str]:
    excess, excess_error = comparison.excess
    start = "recorded" if comparison.score == "recorded" else "fitted"
    rows = [
        [f"**{name}**" if name == comparison.chosen else name, f"{comparison.numbers[k]}",
         _with_error(comparison.scores[k], comparison.standard_errors[k]),
         "" if name == comparison.best else _with_error(excess[k], excess_error[k])]
        for k, name in enumerate(comparison.names)
    ]  # fmt: skip
    lead = (
        f"Cross-validation inside the fitted recordings: {comparison.by_fold.shape[1]} folds of "
        f"{len(comparison.folds)} recordings, RMS error of those left out, simulated from their "
        f"{start} starts, with the standard error over the folds."
    )
    return [
        lead,
        "",
        *_table(("model", "numbers", "error", "more than the best"), rows),
        "",
        f"Rule: {comparison.rule}; {comparison.reason}.",
    ]


def _parameters(fit: Fit) -> list[str]:
    uncertainty = fit.uncertainty
    white, robust = uncertainty.interval(), uncertainty.interval_by_recording()
    rows = [
        [name, f"{uncertainty.values[k]:.6g}", _interval(white[k]),
         "not known" if robust is None else _interval(robust[k])]
        for k, name in enumerate(uncertainty.names)
    ]  # fmt: skip
    note = (
        "The white-noise interval assumes that all residuals are independent, and is too short "
        "where they are not; the interval by recording assumes only that recordings are."
    )
    titles = ("parameter", "value", "95 %, white noise", "95 %, by recording")
    return [*_table(titles, rows), "", note]


def _errors(fit: Fit) -> list[str]:
    rows = [[name, f"{fitted:.4g}", f"{start:.4g}"] for name, fitted, start in _fitted(fit)]
    rows.append(["mean", f"{fit.errors.mean():.4g}", f"{fit.predicted_errors.mean():.4g}"])
    lines = ["Root mean square of predicted minus measured, in the unit of the sensors.", ""]
    lines += _table(("fitted recording", "from its fitted start", "from its recorded start"), rows)
    if fit.validation.recordings:
        validation = [[name, f"{error:.4g}"] for name, error in _held(fit)]
        validation.append(["mean", f"{fit.validation_errors.mean():.4g}"])
        lines += ["", *_table(("validation recording", "from its recorded start"), validation)]
    return lines


def _errors_as_text(fit: Fit) -> Iterator[str]:
    yield "RMS errors of the recordings"
    recordings = (*fit.train.recordings, *fit.validation.recordings)
    width = max(len(recording.name) for recording in recordings) + 2
    yield f"  {'':<{width}}{'fitted start':>16}{'recorded start':>16}"
    for name, fitted, start in _fitted(fit):
        yield f"  {name:<{width}}{fitted:>16.4g}{start:>16.4g}"
    for name, error in _held(fit):
        yield f"  {name:<{width}}{'validation':>16}{error:>16.4g}"


def _fitted(fit: Fit) -> list[tuple[str, float, float]]:
    """The name of each fitted recording, its error, and that from its recorded start."""
    names = (recording.name for recording in fit.train.recordings)
    return list(zip(names, fit.errors, fit.predicted_errors, strict=True))


def _held(fit: Fit) -> list[tuple[str, float]]:
    names = (recording.name for recording in fit.validation.recordings)
    return list(zip(names, fit.validation_errors, strict=True))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in titles[1:])]
    return [f"| {' | '.join(row)} |" for row in (titles, rule, *rows)]


def _interval(ends: Any) -> str:
    if not np.isfinite(ends).all():
        return "not determined"
    return f"{ends[0]:.6g} to {ends[1]:.6g}"


def _with_error(value: float, error: float) -> str:
    return f"{value:.4g} ± {error:.2g}" if np.isfinite(value) else "failed"
