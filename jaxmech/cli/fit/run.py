"""`run_fit`: run a fit from its configuration, in a run folder.

config.toml        the resolved configuration; paths relative to this folder
environment.json   versions, device, digests of the model file and of the data
model.py           copy of the user's model file (model.xml, model.urdf); others of controllers
fit.npz            the fit, for `jaxmech.identify.Fit.load`
report.txt         parameters, errors, and what is determined
"""

import hashlib
import os
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tomli_w

from jaxmech.cli.fit.build import model, settings
from jaxmech.cli.fit.study import FitStudy
from jaxmech.config import (
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
    write_whole,
)
from jaxmech.config.errors import InputError, StudyError
from jaxmech.identify import Fit, fit, read_table


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of `jaxmech fit`."""

    title: str  # title of the study
    fit: Fit

    @property
    def succeeded(self) -> bool:
        """Whether the fit has converged and all recordings can be simulated."""
        parts = (self.fit.train_from_start, self.fit.validation)
        return self.fit.converged and all(np.isfinite(part.errors).all() for part in parts)


_KEYS = {  # of arguments of `fit`, where these are not keys of the same name
    "params0": "parameters.start", "free": "parameters.free", "bounds": "parameters.bounds",
    "prior": "parameters.prior", "recordings": "data", "weights": "data.noise_sd",
    "start_sd": "data.start_sd", "Shooting": "horizon", "inputs": "data.inputs",
}  # fmt: skip


def in_toml(text: str) -> str:
    """A message of `fit` with keys of a configuration in place of its arguments."""
    for argument, key in _KEYS.items():
        text = text.replace(f"Argument `{argument}`", f"`{key}`")
        text = text.replace(f"`{argument}`", f"`{key}`")
    return text


def as_text(outcome: Outcome) -> str:
    """Format the report for a terminal."""
    fit = outcome.fit
    blocks = [outcome.title, repr(fit), repr(fit.identifiability)]
    return in_toml("\n\n".join([*blocks, "\n".join(_errors_as_text(fit))]) + "\n")


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


FIT = "fit.npz"
_SAME = ("model_sha256", "data_sha256")  # facts with which a finished fit is shown again


class FitError(InputError):
    """A fit that is impossible, in one sentence."""


def run_fit(
    study: FitStudy, out: Path, *, folder: Path = Path(), progress: bool = False
) -> Outcome:
    """Run a fit, or show the one that its folder holds."""
    loaded = model(study, folder)
    try:
        recordings = read_table(study.data, folder)
    except StudyError as error:
        raise error.within("data") from None
    facts = environment()
    if loaded.sha256:
        facts |= {"model": loaded.name, "model_sha256": loaded.sha256}
    path, code = (folder / study.data.file).resolve(), hashlib.sha256()
    for file in sorted(path.parent.glob(path.name)) or [path]:
        code.update(file.read_bytes())
    facts["data_sha256"] = code.hexdigest()
    # with the folder's own copy of the model, and the path from there to the data
    data = replace(study.data, file=Path(os.path.relpath(path, out.resolve())).as_posix())
    copies = loaded.copies or {}
    names = tuple(named_copy(name, copies, folder) for name in study.controllers)
    resolved = replace(study, data=data, controllers=names)
    if loaded.source:
        resolved = replace(resolved, model=copy_of(loaded.name, loaded.source)[1])
    with opened(out, "fit"):
        if (out / FIT).is_file():
            require_same_config(out, plain(resolved), {"data.file"})
            require_same_environment(out, facts, _SAME)
            found = _read(out)
        else:
            for source, name in copies.items():
                shutil.copyfile(source, out / name)
            write_whole(out / "environment.json", environment_json(facts))
            write_whole(out / "config.toml", tomli_w.dumps(plain(resolved)))
            try:
                found = fit(
                    loaded.subject, recordings.train, validation=recordings.validation,
                    progress=progress, **vars(settings(study)),
                )  # fmt: skip
                found.save(out / FIT)
            except (ValueError, FloatingPointError) as error:
                raise FitError(in_toml(str(error))) from error
            except Exception as error:
                first = str(error).strip().partition("\n")[0]
                text = f"the model cannot be fitted: {type(error).__name__}: {first}"
                raise FitError(text) from error
        outcome = Outcome(loaded.name, found)
        write_whole(out / "report.txt", as_text(outcome))
    return outcome


def stored(out: Path) -> tuple[Fit, str]:
    """The fit of a run folder, and its title."""
    try:
        config = tomllib.loads((out / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"{out} cannot be read: {error}") from error
    return _read(out), model_name(config, out)


def _read(out: Path) -> Fit:
    try:
        return Fit.load(out / FIT)
    except (OSError, ValueError) as error:
        raise FolderError(f"{out} cannot be read: {error}; remove it, and fit again") from error
