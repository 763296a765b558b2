"""The subject of a fit from its configuration: the model, its parameters, its controllers."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.cli.fit.study import FitStudy
from jaxmech.config import SUBJECTS, closed_loop, copies_of, find, load, plain, subject_of
from jaxmech.config.errors import Problem, refuse, refuse_all, unknown
from jaxmech.identify import Identifiable, Settings, bodies_of
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import is_within, leaf_names

_NAMED = ("start", "bounds", "prior")  # sections of `parameters` whose keys are parameters


@dataclass(frozen=True, eq=False)
class FitModel:
    """The model of a fit, and where it comes from."""

    subject: Identifiable
    name: str
    source: Path | None = None  # the file of the user, None for a model of the catalogue
    sha256: str | None = None  # digest of that file
    # by the files of the model and of controllers, the names of their copies in a run folder
    copies: Mapping[Path, str] | None = None


def model(study: FitStudy, folder: Path = Path()) -> FitModel:
    """Load the model of a study, with the study's parameters and controllers."""
    given = study.parameters
    names = {name for key in _NAMED for name in getattr(given, key)} | {*(given.free or ())}
    subject, source, sha256 = _loaded(study.model, study.model_options, folder, names)
    files: list[Path] = []
    if study.controllers:
        loop = closed_loop(subject.system, study.controllers, folder)
        subject = replace(subject, system=loop.system, params=loop.params(subject.params))
        files = [file.path for file in loop.files]
    name = str(plain(study)["model"])
    copies = copies_of(name, source, files)
    return FitModel(_completed(study, subject), name, source, sha256, copies)


def settings(study: FitStudy) -> Settings:
    """The policies with which a study is fitted."""
    policies = {field.name: getattr(study, field.name) for field in fields(Settings)}
    if study.horizon is not None:
        fixed = "fixed" in (study.initial_states, study.horizon.first)
        policies["initial_states"] = replace(study.horizon, first="fixed" if fixed else "free")
    return Settings(**policies)


def _unknown(named: Mapping[str, Mapping[str, Any]], known: Collection[str]) -> list[Problem]:
    """The parameters in sections of `parameters` that do not exist."""
    return [
        problem
        for section, names in named.items()
        for problem in unknown(("parameters", section), names, known, "a parameter of the model")
    ]


def _loaded(
    name: Any, options: Mapping[str, Any], folder: Path, parameters: Collection[str] = ()
) -> tuple[Identifiable, Path | None, str | None]:
    """The model of a name or an object, with the file that it comes from and its digest."""
    if isinstance(name, Identifiable) and not options:
        return name, None, None
    text = str(name) if isinstance(name, str | Path) else ""
    if ".py" in (text[-3:], text.rpartition(":")[0][-3:]):
        file = find(text, options, folder, (Identifiable, *SUBJECTS))
        if isinstance(file.value, Identifiable):
            return file.value, file.path, file.sha256
        if not isinstance(file.value, SUBJECTS):
            kind = type(file.value).__name__
            kinds = "an Identifiable, a Model, a Mechanism or a Robot"
            raise refuse("model", f"must name {kinds}, but {text} is of type {kind}")
        subject = subject_of(text, file)
    else:
        subject = load(name, options, folder, parameters)
    params = subject.beside.get("params") if subject.model is None else subject.model.params
    if params is None:
        message = (
            f"must have parameters, but {subject.name} is a bare System: write `params` beside it "
            "in its file, or Identifiable(system, params), to say what they are"
        )
        raise refuse("model", message)
    return Identifiable(subject.system, params), subject.source, subject.sha256


def _completed(study: FitStudy, subject: Identifiable) -> Identifiable:
    """The model with the study's starts, bounds, priors, and choice of free parameters."""
    given, leaves, bodies = study.parameters, leaf_names(subject.params), bodies_of(subject.system)
    problems = _unknown({key: getattr(given, key) for key in _NAMED}, leaves)
    problems += _misshapen(subject.params, given.start)
    problems += [
        Problem(
            ("parameters", "free"), f"names {x!r}, which {not_one_of(x, leaves, 'a parameter')}"
        )
        for x in given.free or ()
        if not any(is_within(leaf, [x]) for leaf in (*leaves, *bodies))
    ]
    refuse_all(problems)
    bounds = {name: tuple(ends) for name, ends in given.bounds.items()}
    return replace(
        subject,
        params=_started(subject.params, given.start),
        free=subject.free if given.free is None else given.free,
        bounds={**subject.bounds, **bounds},
        prior={**subject.prior, **given.prior},
    )


def _started(params: Any, start: Mapping[str, Any]) -> Any:
    leaves, structure = jax.tree.flatten(params)
    pairs = zip(leaf_names(params), leaves, strict=True)
    return jax.tree.unflatten(
        structure, [_value(start[name], leaf) if name in start else leaf for name, leaf in pairs]
    )


def _misshapen(params: Any, start: Mapping[str, Any]) -> Iterator[Problem]:
    for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True):
        if name in start:
            try:
                _value(start[name], leaf)
            except (TypeError, ValueError):
                what = f"numbers of shape {np.shape(leaf)}" if np.shape(leaf) else "a number"
                yield Problem(
                    ("parameters", "start", name), f"must be {what}, but is {start[name]}"
                )


def _value(given: Any, leaf: Any) -> Any:
    """Broadcast the given numbers to the shape of the leaf that they replace."""
    if np.asarray(given).dtype == bool:
        raise TypeError("a truth value is not a number")
    return np.broadcast_to(np.asarray(given, float), np.shape(leaf))
