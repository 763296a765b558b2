"""`jaxmech fit`: a fit from its configuration, a tree of frozen dataclasses, in a run folder.

Beside what every `RunFolder` has, it holds `fit.npz`, for `jaxmech.identify.Fit.load`, and
`report.txt`: parameters, errors, and what is determined.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from jaxmech.config import (
    RunFolder,
    Subject,
    environment,
    load,
    plain,
    with_copies,
    write_whole,
)
from jaxmech.config.errors import FolderError, Problem, StudyError, refuse, refuse_all, unknown
from jaxmech.identify import (
    Fit,
    Huber,
    Identifiable,
    Settings,
    Shooting,
    Table,
    bodies_of,
    fit,
    read_table,
)
from jaxmech.laws import UdwadiaKalaba
from jaxmech.utils.text import doc, not_one_of, setting
from jaxmech.utils.trees import is_within, leaf_names

FIT = "fit.npz"
_NAMED = ("start", "bounds", "prior")  # tables of `parameters` whose keys are parameters
_SAME = ("model_sha256", "data_sha256")  # facts with which a finished fit is shown again


@dataclass(frozen=True, kw_only=True)
class FreeParameters:
    """The parameters to fit, their initial values, bounds and priors."""

    free: tuple[str, ...] | None = setting(
        None, "parameters to fit; those of the model, or all, by default"
    )
    start: Mapping[str, Any] = setting({}, "initial values, in place of the model's")
    bounds: Mapping[str, Any] = setting({}, "[low, high], -inf or inf for an open side; by name")
    prior: Mapping[str, Any] = setting({}, "[mean, standard deviation]; needs data.noise_sd")

    def __post_init__(self) -> None:
        for key in _NAMED:
            object.__setattr__(self, key, _flat(getattr(self, key)))


def _flat(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten tables, so that `friction.c1 = ...` has the name "friction.c1"."""
    flat: dict[str, Any] = {}
    for name, value in entries.items():
        inner = _flat(value) if isinstance(value, Mapping) and value else {"": value}
        flat |= {f"{name}.{rest}".rstrip("."): entry for rest, entry in inner.items()}
    return flat


@dataclass(frozen=True, kw_only=True)
class FitStudy(Settings):
    """A fit: a model, its unknown parameters, recordings, and the settings of `fit`."""

    model: str | Any = field(
        metadata=doc(
            'next to this file "path/file.py:attribute", an Identifiable, Model or Mechanism, or '
            "the path of an MJCF or URDF file"
        )
    )
    data: Table = field(metadata=doc("file and columns of the recordings"))
    model_options: Mapping[str, Any] = setting({}, "options of the model, such as { links = 10 }")
    parameters: FreeParameters = setting(
        FreeParameters(), "parameters to fit, with initial values, bounds and priors"
    )
    initial_states: Literal["fixed", "free"] = setting(
        "free", "whether the initial states of the recordings are fitted too"
    )
    horizon: Shooting | None = setting(None, "segments of the recordings, for chaotic motion")
    formulation: UdwadiaKalaba = setting(UdwadiaKalaba(), "law of motion")
    controllers: tuple[str, ...] = setting(
        (), 'controllers of the system, each a `Controller` in a Python file, "file.py:name"'
    )
    loss: Huber | None = setting(None, "a robust loss, against outliers")

    def settings(self) -> Settings:
        """The policies with which it is fitted."""
        policies = {x.name: getattr(self, x.name) for x in fields(Settings)}
        if self.horizon is not None:
            fixed = "fixed" in (self.initial_states, self.horizon.first)
            policies["initial_states"] = replace(self.horizon, first="fixed" if fixed else "free")
        return Settings(**policies)


def model(study: FitStudy, folder: Path = Path()) -> Subject:
    """The model of a study, an `Identifiable`, with the study's parameters and controllers."""
    given = study.parameters
    names = {name for key in _NAMED for name in getattr(given, key)} | {*(given.free or ())}
    subject = load(
        study.model, study.model_options, folder,
        parameters=names, controllers=study.controllers, others=(Identifiable,),
    )  # fmt: skip
    if subject.params is None:
        message = (
            f"must have parameters, but {subject.name} is a bare System: write `params` beside it "
            "in its file, or Identifiable(system, params), to say what they are"
        )
        raise refuse("model", message)
    subject = replace(subject, other=subject.other or Identifiable(subject.system, subject.params))
    identifiable: Identifiable = subject.other

    # The starts, bounds, priors and free parameters of the study in place of the model's.
    leaves, bodies = leaf_names(identifiable.params), bodies_of(identifiable.system)
    problems, known = list[Problem](), "a parameter of the model"
    for key in _NAMED:
        problems += unknown(("parameters", key), getattr(given, key), leaves, known)
    problems += [
        Problem(
            ("parameters", "free"), f"names {x!r}, which {not_one_of(x, leaves, 'a parameter')}"
        )
        for x in given.free or ()
        if not any(is_within(leaf, [x]) for leaf in (*leaves, *bodies))
    ]
    refuse_all(problems)
    starts = jax.tree.leaves(identifiable.params)
    for k, name in enumerate(leaves):
        if name not in given.start:
            continue
        value, shape = given.start[name], np.shape(starts[k])
        try:
            if np.asarray(value).dtype == bool:
                raise TypeError("a truth value is not a number")
            starts[k] = np.broadcast_to(np.asarray(value, float), shape)
        except (TypeError, ValueError) as error:
            what = f"numbers of shape {shape}" if shape else "a number"
            message = f"must be {what}, but is {value}"
            raise refuse(("parameters", "start", name), message) from error
    identifiable = replace(
        identifiable,
        params=jax.tree.unflatten(jax.tree.structure(identifiable.params), starts),
        free=identifiable.free if given.free is None else given.free,
        bounds={**identifiable.bounds, **given.bounds},
        prior={**identifiable.prior, **given.prior},
    )
    return replace(subject, other=identifiable)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of `jaxmech fit`."""

    title: str  # title of the study
    fit: Fit

    @property
    def succeeded(self) -> bool:
        """Whether the fit has converged and all recordings can be simulated."""
        parts = (self.fit.train, self.fit.validation)
        return self.fit.converged and all(np.isfinite(part.errors).all() for part in parts)

    def __str__(self) -> str:
        fit, rows = self.fit, list[tuple[str, float]]()
        for part, note in ((fit.train, ""), (fit.validation, ", validation")):
            names = [f"{recording.name}{note}" for recording in part.recordings]
            rows += zip(names, part.errors, strict=True)
        width = max(len(name) for name, _ in rows) + 2
        errors = [f"  {name:<{width}}{error:>12.4g}" for name, error in rows]
        table = "\n".join(["RMS errors of the recordings", *errors, ""])
        return in_toml("\n\n".join([self.title, repr(fit), repr(fit.identifiability), table]))


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


def run_fit(
    study: FitStudy, out: Path, *, folder: Path = Path(), progress: bool = False
) -> Outcome:
    """Run a fit, or show the one that its folder holds."""
    subject = model(study, folder)
    try:
        recordings = read_table(study.data, folder)
    except StudyError as error:
        raise error.within("data") from None
    facts = environment(subject.name, subject.sha256)
    path = (folder / study.data.file).resolve()
    contents = [file.read_bytes() for file in sorted(path.parent.glob(path.name)) or [path]]
    facts["data_sha256"] = hashlib.sha256(b"".join(contents)).hexdigest()
    run, (config, copies) = RunFolder(out), with_copies(plain(study), folder)
    # the path from there to the data, which are not copied
    config["data"]["file"] = Path(os.path.relpath(path, out.resolve())).as_posix()
    with run.opened("fit"):
        if (out / FIT).is_file():
            run.require_same_config(config, {"data.file"})
            run.require_same_environment(facts, _SAME)
            found, _ = stored(out)
        else:
            run.create(config, facts, copies)
            try:
                found = fit(
                    subject.other, recordings.train, validation=recordings.validation,
                    progress=progress, **vars(study.settings()),
                )  # fmt: skip
                found.save(out / FIT)
            except (ValueError, FloatingPointError) as error:
                raise refuse((), in_toml(str(error))) from error
            except Exception as error:
                first = str(error).strip().partition("\n")[0]
                text = f"the model cannot be fitted: {type(error).__name__}: {first}"
                raise refuse((), text) from error
        outcome = Outcome(subject.name, found)
        write_whole(out / "report.txt", str(outcome))
    return outcome


def stored(out: Path) -> tuple[Fit, str]:
    """The fit of a run folder, and its title."""
    try:
        return Fit.load(out / FIT), RunFolder(out).model_name
    except (OSError, ValueError) as error:
        raise FolderError(f"{out} cannot be read: {error}; remove it, and fit again") from error
