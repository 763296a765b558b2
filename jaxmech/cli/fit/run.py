"""`run_fit`: run a fit from its configuration in a run folder, or continue it there.

config.toml        the resolved configuration; paths relative to this folder
environment.json   versions, device, digests of functions and data
model.py           copy of the user's model file (model.xml, model.urdf); others of controllers
progress/          state of an interrupted fit
fit.npz            the fit, for `jaxmech.identify.load_fit`
seal.json          digests of all of these, so that damage is noticed
report.txt, .md    parameters, errors, what is determined, how the model was chosen
pictures/
"""

import hashlib
import os
import shutil
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from jaxmech.cli.fit.build import Subjects, model_of, settings, subjects
from jaxmech.cli.fit.study import Choice, FitStudy
from jaxmech.config import (
    DECISIVE,
    INPUT,
    FolderError,
    copy_of,
    environment,
    environment_json,
    model_name,
    named_copy,
    opened,
    plain,
    require_same_config,
    require_same_environment,
    warn,
    write_whole,
)
from jaxmech.config.errors import InputError, StudyError
from jaxmech.ensemble import (
    SEAL,
    add_to_seal,
    cluster_tasks,
    damage_text,
    damaged,
    file_digests,
    read_seal,
    write_seal,
)
from jaxmech.identify import (
    CrossValidation,
    Fit,
    Identifiable,
    Recordings,
    cross_validate,
    fit_identifiable,
    load_fit,
    read_table,
    save_fit,
    subject_digests,
)
from jaxmech.plot import draw_fit


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
    rows = [[name, f"{fitted:.4g}", f"{start:.4g}"] for name, fitted, start in _fitted_rows(fit)]
    rows.append(["mean", f"{fit.errors.mean():.4g}", f"{fit.predicted_errors.mean():.4g}"])
    lines = ["Root mean square of predicted minus measured, in the unit of the sensors.", ""]
    lines += _table(("fitted recording", "from its fitted start", "from its recorded start"), rows)
    if fit.validation.recordings:
        validation = [[name, f"{error:.4g}"] for name, error in _held_rows(fit)]
        validation.append(["mean", f"{fit.validation_errors.mean():.4g}"])
        lines += ["", *_table(("validation recording", "from its recorded start"), validation)]
    return lines


def _errors_as_text(fit: Fit) -> Iterator[str]:
    yield "RMS errors of the recordings"
    recordings = (*fit.train.recordings, *fit.validation.recordings)
    width = max(len(recording.name) for recording in recordings) + 2
    yield f"  {'':<{width}}{'fitted start':>16}{'recorded start':>16}"
    for name, fitted, start in _fitted_rows(fit):
        yield f"  {name:<{width}}{fitted:>16.4g}{start:>16.4g}"
    for name, error in _held_rows(fit):
        yield f"  {name:<{width}}{'validation':>16}{error:>16.4g}"


def _fitted_rows(fit: Fit) -> list[tuple[str, float, float]]:
    """The name of each fitted recording, its error, and that from its recorded start."""
    names = (recording.name for recording in fit.train.recordings)
    return list(zip(names, fit.errors, fit.predicted_errors, strict=True))


def _held_rows(fit: Fit) -> list[tuple[str, float]]:
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


FIT = "fit.npz"
_BEGUN = ("config.toml", "environment.json")
_CANDIDATES = "progress/candidates"


class FitError(InputError):
    """A fit that is impossible, in one sentence."""


def run_fit(
    study: FitStudy,
    out: Path,
    *,
    folder: Path = Path(),
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a fit, or continue it in its folder, with messages to `tell` or as a `RunWarning`."""
    candidates = subjects(study, folder)
    recordings = _recordings(study, folder)
    name, facts = model_of(study), _facts(study, candidates, recordings, folder)
    study = _resolved(study, candidates, folder, out)
    with opened(out, "fit"):
        _begin(out, study, candidates, facts, tell or warn)
        away = cluster_tasks(study.cluster, tell) if study.cluster else nullcontext()
        with away as tasks:
            how: dict[str, Any] = {"progress": progress, "workers": tasks.map if tasks else map}
            comparison = None
            if (choice := study.choice) is not None:
                with _one_line():
                    comparison = cross_validate(
                        candidates.by_name, recordings.train,
                        folds=choice.folds, rule=choice.rule, score=choice.score,
                        settings=settings(study), folder=out / _CANDIDATES, **how,
                    )  # fmt: skip
            add_to_seal(out, (out / _CANDIDATES).glob("*.json"))
            chosen = comparison.chosen if comparison else next(iter(candidates.by_name))
            fit = _fitted(study, candidates.by_name[chosen], recordings, out, how)
        add_to_seal(out, [out / FIT])
        title = f"{name}, {chosen}" if comparison else name
        outcome = Outcome(title, fit, comparison, tuple(map(str, study.data.observed)))
        write_whole(out / "report.txt", as_text(outcome))
        pictures = draw_fit(fit, out / "pictures", sensors=outcome.sensors, title=title)
        add_to_seal(out, pictures)
        write_whole(out / "report.md", as_markdown(outcome, pictures))
    return outcome


def redraw(out: Path) -> list[Path]:
    """Draw the pictures of a run folder again, from the stored fit."""
    fit, sensors, title = stored(out)
    try:
        pictures = draw_fit(fit, out / "pictures", sensors=sensors, title=title)
        add_to_seal(out, pictures)
    except OSError as error:
        location = out / "pictures"
        raise FolderError(f"{location} cannot be written: {error.strerror or error}") from error
    return pictures


def stored(out: Path) -> tuple[Fit, tuple[str, ...], str]:
    """The fit of a run folder, the names of its sensors, and its title."""
    try:
        config = tomllib.loads((out / "config.toml").read_text(encoding="utf-8"))
        lost = list(damaged(out, read_seal(out)))
        if lost:
            raise FolderError(
                f"{out} is damaged: {damage_text(lost)}; `jaxmech fit` computes it again"
            )
        fit = load_fit(out / FIT)
    except FolderError:
        raise
    except (OSError, ValueError) as error:
        raise FolderError(f"{out} cannot be read: {error}") from error
    return fit, tuple(map(str, config["data"]["observed"])), model_name(config, out)


def _recordings(study: FitStudy, folder: Path) -> Recordings:
    try:
        return read_table(study.data, folder)
    except StudyError as error:
        raise error.within("data") from None


def _resolved(study: FitStudy, candidates: Subjects, folder: Path, out: Path) -> FitStudy:
    """The study with the folder's own copy of the model, and the path from there to the data."""
    file = os.path.relpath((folder / study.data.file).resolve(), out.resolve())
    data = replace(study.data, file=Path(file).as_posix())
    if candidates.source:
        study = replace(study, model=copy_of(model_of(study), candidates.source)[1])
    choice = (study.choice or Choice()) if study.candidates else None
    names = tuple(named_copy(name, candidates.copies, folder) for name in study.controllers)
    return replace(study, data=data, choice=choice, controllers=names)


def _facts(
    study: FitStudy, candidates: Subjects, recordings: Recordings, folder: Path
) -> dict[str, Any]:
    facts = environment()
    if candidates.sha256:
        facts["model"] = model_of(study)
        facts["model_sha256"] = candidates.sha256
    functions: dict[str, str] = {}
    for name, subject in candidates.by_name.items():
        suffix = f" of {name}" if study.candidates else ""
        parts = subject_digests(subject, recordings.train[0])
        functions |= {f"{part}{suffix}": code for part, code in parts.items()}
    facts["functions"] = functions
    path = (folder / study.data.file).resolve()
    code = hashlib.sha256()
    for file in sorted(path.parent.glob(path.name)) or [path]:
        code.update(file.read_bytes())
    return {**facts, "data_sha256": code.hexdigest()}


def _begin(
    out: Path,
    study: FitStudy,
    candidates: Subjects,
    facts: Mapping[str, Any],
    tell: Callable[[str], None],
) -> None:
    """Write the first files of a run folder, or check that it may be continued, and repair it."""
    begun = (*_BEGUN, *candidates.copies.values())
    if any((out / name).exists() for name in (SEAL, FIT, "progress")):
        again = _lost(out, begun)
        require_same_config(out, plain(study), {"data.file", "cluster"})
        finished = (out / FIT).is_file() and not again
        require_same_environment(out, facts, INPUT if finished else DECISIVE)
        # From the beginning: a step from the last checkpoint would have other bits.
        for name in again:
            (out / name).unlink(missing_ok=True)
            state = "progress/fit" if name == FIT else name.removesuffix(".json")
            shutil.rmtree(out / state, ignore_errors=True)
        if again:
            tell(f"{out} was damaged: {', '.join(again)}; to be computed again")
        return
    for source, name in candidates.copies.items():
        shutil.copyfile(source, out / name)
    write_whole(out / "environment.json", environment_json(facts))
    write_whole(out / "config.toml", tomli_w.dumps(plain(study)))
    write_seal(out, file_digests(out, [out / name for name in begun]))


def _lost(out: Path, begun: Collection[str]) -> list[str]:
    """The damaged files that can be computed again, or a FolderError for others."""
    lost = list(damaged(out, read_seal(out)))
    replaceable = [damage for damage in lost if damage.file in begun]
    if replaceable:
        raise FolderError(
            f"{out} was damaged: {damage_text(replaceable)}. Restore it, or fit in "
            "another folder with --out"
        )
    return [damage.file for damage in lost]


def _fitted(
    study: FitStudy, subject: Identifiable, recordings: Recordings, out: Path, how: dict[str, Any]
) -> Fit:
    """The fit, or the one that is already stored."""
    if (out / FIT).is_file():
        return load_fit(out / FIT)
    with _one_line():
        fit = fit_identifiable(
            subject, recordings.train, settings(study), validation=recordings.validation,
            folder=(out / "progress" / "fit").resolve(), **how,
        )  # fmt: skip
        save_fit(fit, out / FIT)
    return fit


@contextmanager
def _one_line() -> Iterator[None]:
    """Raise errors inside as a `FitError` of one line."""
    try:
        yield
    except (ValueError, FloatingPointError) as error:
        raise FitError(str(error)) from error
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise FitError(f"the model cannot be fitted: {type(error).__name__}: {first}") from error
