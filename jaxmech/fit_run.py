"""`run_fit`: a fit from its configuration into its run folder, or the rest of it.

config.toml        the resolved configuration
environment.json   versions, device, digests of model and data
model.py           copy of the user's model file
progress/          where an interrupted fit goes on
fit.npz            the fit, for `jaxmech.identify.load_fit`
report.txt, .md    parameters, errors, what is determined, how the model was chosen
pictures/
"""

import hashlib
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from jaxmech.ensemble import FolderError, Problem, StudyError, environment, plain
from jaxmech.ensemble.environment import DECISIVE, started
from jaxmech.ensemble.folder import (
    locked,
    require_run_or_nothing,
    require_same_config,
    require_same_environment,
    write_whole,
)
from jaxmech.fit_config import Choice, FitStudy
from jaxmech.fit_pictures import draw_fit
from jaxmech.fit_report import Outcome, as_markdown, as_text
from jaxmech.fit_subjects import Subjects, settings, subjects
from jaxmech.identify.comparison import CrossValidation
from jaxmech.identify.cross_validation import cross_validate
from jaxmech.identify.identifiable import Identifiable, fit_identifiable
from jaxmech.identify.result import Fit
from jaxmech.identify.storage import load_fit, save_fit
from jaxmech.identify.tables import Recordings, read_table

FIT = "fit.npz"
_INPUT = ("model_sha256", "data_sha256")  # decides even what a finished run may be shown for


class FitError(ValueError):
    """A fit that cannot be done, in one sentence."""


def run_fit(
    study: FitStudy, out: Path, *, folder: Path = Path(), progress: bool = False
) -> Outcome:
    """Does what a configuration asks for, or the rest of it.

    Args:
        study: the configuration.
        out: the run folder; it is made, or continued if it holds this study.
        folder: the folder to which relative paths of model and data refer.
        progress: whether to show bars on the standard error.

    Returns:
        The outcome, which is also in the folder.

    Raises:
        StudyError: the study is impossible, naming the keys.
        TableError: the measurements cannot be read.
        FitError: the fit cannot be done.
        FolderError: the run folder cannot be used.
    """
    found = subjects(study, folder)
    recordings = _recordings(study, folder)
    name, study = study.model, _resolved(study, found, folder)
    with _opened(out, study, found, _facts(study, found)):
        comparison = _compared(study, found, recordings, out, progress)
        chosen = comparison.chosen if comparison else next(iter(found.by_name))
        fit = _fitted(study, found.by_name[chosen], recordings, out, progress)
        title = f"{name}, {chosen}" if comparison else name
        outcome = Outcome(title, fit, comparison, tuple(map(str, study.data.observed)))
        write_whole(out / "report.txt", as_text(outcome))
        pictures = draw_fit(fit, out / "pictures", sensors=outcome.sensors, title=title)
        write_whole(out / "report.md", as_markdown(outcome, pictures))
    return outcome


def redraw(out: Path) -> list[Path]:
    """The pictures of a run folder once more, from what is stored there."""
    try:
        config = tomllib.loads((out / "config.toml").read_text())
        fit = load_fit(out / FIT)
    except (OSError, ValueError) as error:
        raise FolderError(f"{out} cannot be read: {error}") from error
    sensors = tuple(map(str, config["data"]["observed"]))
    return draw_fit(fit, out / "pictures", sensors=sensors, title=str(config["model"]))


def _recordings(study: FitStudy, folder: Path) -> Recordings:
    try:
        return read_table(study.data, folder)
    except StudyError as error:
        raise StudyError(Problem(("data", *p.key), p.message) for p in error.problems) from None


def _resolved(study: FitStudy, found: Subjects, folder: Path) -> FitStudy:
    """With the folder's own copy of the model, and data that are found from anywhere."""
    data = replace(study.data, file=str((folder / study.data.file).resolve()))
    model = f"model.py:{study.model.rpartition(':')[2]}" if found.source else study.model
    choice = (study.choice or Choice()) if study.candidates else None
    return replace(study, model=model, data=data, choice=choice)


def _facts(study: FitStudy, found: Subjects) -> dict[str, Any]:
    facts = environment()
    if found.sha256:
        facts["model_sha256"] = found.sha256
    path = Path(study.data.file)
    code = hashlib.sha256()
    for file in sorted(path.parent.glob(path.name)) or [path]:
        code.update(file.read_bytes())
    return {**facts, "data_sha256": code.hexdigest()}


@contextmanager
def _opened(
    out: Path, study: FitStudy, found: Subjects, facts: Mapping[str, Any]
) -> Iterator[None]:
    """The run folder, made or continued, locked against other processes."""
    try:
        require_run_or_nothing(out)
        with locked(out):
            if (out / "config.toml").is_file():
                require_same_config(out, plain(study), ())
                decisive = _INPUT if (out / FIT).is_file() else DECISIVE
                require_same_environment(out, facts, decisive)
            else:
                if found.source:
                    shutil.copyfile(found.source, out / "model.py")
                write_whole(out / "environment.json", started(facts))
                write_whole(out / "config.toml", tomli_w.dumps(plain(study)))
            yield
    except OSError as error:
        raise FolderError(f"{out} cannot be used: {error.strerror or error}") from error


def _compared(
    study: FitStudy, found: Subjects, recordings: Recordings, out: Path, progress: bool
) -> CrossValidation | None:
    if study.choice is None:
        return None
    with _one_line():
        return cross_validate(
            found.by_name,
            recordings.train,
            folds=study.choice.folds,
            rule=study.choice.rule,
            score=study.choice.score,
            settings=settings(study),
            folder=out / "progress" / "candidates",
            progress=progress,
        )


def _fitted(
    study: FitStudy, subject: Identifiable, recordings: Recordings, out: Path, progress: bool
) -> Fit:
    """The fit, or the one that is already there."""
    if (out / FIT).is_file():
        return load_fit(out / FIT)
    with _one_line():
        fit = fit_identifiable(
            subject,
            recordings.train,
            settings(study),
            validation=recordings.validation,
            folder=out / "progress" / "fit",
            progress=progress,
        )
        save_fit(fit, out / FIT)
    return fit


@contextmanager
def _one_line() -> Iterator[None]:
    """What goes wrong inside as a `FitError`."""
    try:
        yield
    except (ValueError, FloatingPointError) as error:
        raise FitError(str(error)) from error
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise FitError(f"the model cannot be fitted: {type(error).__name__}: {first}") from error
