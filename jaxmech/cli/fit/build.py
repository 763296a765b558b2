"""Build the problem of a fit from its configuration: models, parameters, policies."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.cli.fit.study import INERTIA, Adam, Candidate, FitStudy
from jaxmech.config import SUBJECTS, closed_loop, copies_of, find, load, plain, subject_of
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all, unknown
from jaxmech.identify import Identifiable, PhysicalInertia, Settings, bodies_of
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import is_within, leaf_names

_NAMED = ("start", "bounds", "prior")  # sections of `parameters` whose keys are parameters


@dataclass(frozen=True, eq=False)
class Subjects:
    """The models of a study."""

    # the candidates by name, or the only model by that of the study
    by_name: Mapping[str, Identifiable]
    source: Path | None  # the file of the user, None for a model of the catalogue
    sha256: str | None  # digest of that file
    # by the files of the model and of controllers, the names of their copies in a run folder
    copies: Mapping[Path, str]


def subjects(study: FitStudy, folder: Path = Path()) -> Subjects:
    """Load the model of a study, for each candidate with its options."""
    alone = Candidate(name=model_of(study))
    loaded: list[tuple[int, Candidate, Identifiable]] = []
    problems: list[Problem] = []
    source, sha, files = None, None, list[Path]()
    for k, candidate in enumerate(study.candidates or (alone,)):
        options = {**study.model_options, **candidate.model_options}
        try:
            names = _parameter_names(vars(study.parameters), vars(candidate))
            subject, source, sha = _loaded(study.model, options, folder, names)
            subject, files = _closed(study, subject, folder)
            loaded.append((k, candidate, subject))
        except StudyError as error:
            problems += [_of_candidate(p, candidate, k) for p in error.problems]
    known = {name for _, _, subject in loaded for name in leaf_names(subject.params)}
    if loaded:
        problems += _unknown({k: getattr(study.parameters, k) for k in _NAMED}, known)
    found = {}
    for k, candidate, subject in loaded:
        try:
            found[candidate.name] = completed(study, subject, candidate, known)
        except StudyError as error:
            problems += [
                replace(p, key=(f"candidates[{k}]", *p.key)) if p.key[0] != "parameters" else p
                for p in error.problems
            ]
    refuse_all(dict.fromkeys(problems))
    return Subjects(found, source, sha, copies_of(model_of(study), source, files))


def model_of(study: FitStudy) -> str:
    """The name of a study's model, that of its kind where it is an object."""
    return str(plain(study)["model"])


def name_problems(data: Mapping[str, Any], folder: Path = Path()) -> list[Problem]:
    """The unknown models, options and parameters in the plain data of a configuration.

    Example:
        >>> data = {"model": "pendulum", "parameters": {"bounds": {"mas": [0.0, 1.0]}}}
        >>> [p.key for p in name_problems(data)]
        [('parameters', 'bounds', 'mas')]
    """
    name, given = data.get("model"), data.get("parameters", {})
    candidates = data.get("candidates") or [{}]
    shared = data.get("model_options", {})
    tables = [shared, given, *(candidates if isinstance(candidates, list) else [None])]
    if not isinstance(name, str) or not all(isinstance(table, dict) for table in tables):
        return []
    known: set[str] = set()
    for candidate in candidates:
        own = candidate.get("model_options", {})
        try:
            options = {**shared, **own} if isinstance(own, dict) else shared
            names = _parameter_names(given, candidate)
            known |= set(leaf_names(_loaded(name, options, folder, names)[0].params))
        except StudyError as error:
            return [] if own else list(error.problems)
    named = {key: table for key in _NAMED if isinstance(table := given.get(key), dict)}
    return _unknown(named, known)


def _unknown(named: Mapping[str, Mapping[str, Any]], known: Collection[str]) -> list[Problem]:
    """The parameters in sections of `parameters` that do not exist."""
    what = "a parameter of the model"
    return [
        problem
        for section, names in named.items()
        for problem in unknown(("parameters", section), names, known, what)
    ]


def _of_candidate(problem: Problem, candidate: Candidate, number: int) -> Problem:
    """The problem with the key of the candidate, if the wrong option is its own."""
    key = problem.key
    own = key[0] == "model_options" and key[-1] in candidate.model_options
    return replace(problem, key=(f"candidates[{number}]", *key)) if own else problem


def _parameter_names(*tables: Mapping[str, Any]) -> set[str]:
    """The names of parameters in the plain data of some tables."""
    entries = [table.get(key) or () for table in tables for key in ("free", *_NAMED)]
    return {name for entry in entries if not isinstance(entry, str) for name in entry}


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


def _closed(
    study: FitStudy, subject: Identifiable, folder: Path
) -> tuple[Identifiable, list[Path]]:
    """The model with the controllers that the study names, and their files."""
    if not study.controllers:
        return subject, []
    loop = closed_loop(subject.system, study.controllers, folder)
    subject = replace(subject, system=loop.system, params=loop.params(subject.params))
    return subject, [file.path for file in loop.files]


def settings(study: FitStudy) -> Settings:
    """The policies with which a study is fitted."""
    policies = {field.name: getattr(study, field.name) for field in fields(Settings)}
    if isinstance(study.optimizer, Adam):
        policies["optimizer"] = study.optimizer.descent()
    return Settings(**policies)


def completed(
    study: FitStudy, subject: Identifiable, candidate: Candidate, known: Collection[str]
) -> Identifiable:
    """Complete the model of a candidate with the settings of the parameters that are `known`."""
    given, leaves = study.parameters, leaf_names(subject.params)
    bodies = bodies_of(subject.system)
    problems = unknown(("start",), candidate.start, leaves, "a parameter of this candidate")
    for key, start in ((("start",), candidate.start), (("parameters", "start"), given.start)):
        problems += _misshapen(subject.params, start, key)
    own = candidate.free is not None
    chosen = candidate.free if own else given.free
    key = ("free",) if own else ("parameters", "free")
    problems += [
        Problem(key, f"names {name!r}, which {not_one_of(name, known, 'a parameter')}")
        for name in chosen or ()
        if not any(is_within(x, [name]) for x in (*(leaves if own else known), *bodies))
    ]
    refuse_all(problems)
    free = subject.free
    if chosen is not None:
        free = tuple(x for x in chosen if any(is_within(leaf, [x]) for leaf in (*leaves, *bodies)))
    bounds = {n: PhysicalInertia() if x == INERTIA else tuple(x) for n, x in given.bounds.items()}
    of_bodies = [name for x in free or () if x in bodies for name in bodies[x].parameters]
    fitted = [x for x in leaves if free is None or is_within(x, free) or x in of_bodies]
    return replace(
        subject,
        params=_started(subject.params, {**given.start, **candidate.start}),
        free=free,
        bounds=_known({**subject.bounds, **bounds}, fitted),
        prior=_known({**subject.prior, **given.prior}, fitted),
    )


def _known(entries: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Select the entries of parameters that this candidate has; another may have the others."""
    return {name: value for name, value in entries.items() if name in names}


def _started(params: Any, start: Mapping[str, Any]) -> Any:
    leaves, structure = jax.tree.flatten(params)
    pairs = zip(leaf_names(params), leaves, strict=True)
    return jax.tree.unflatten(
        structure, [_value(start[name], leaf) if name in start else leaf for name, leaf in pairs]
    )


def _misshapen(params: Any, start: Mapping[str, Any], key: tuple[str, ...]) -> Iterator[Problem]:
    for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True):
        if name in start:
            try:
                _value(start[name], leaf)
            except (TypeError, ValueError):
                what = f"numbers of shape {np.shape(leaf)}" if np.shape(leaf) else "a number"
                yield Problem((*key, name), f"must be {what}, but is {start[name]}")


def _value(given: Any, leaf: Any) -> Any:
    """Broadcast the given numbers to the shape of the leaf that they replace."""
    if np.asarray(given).dtype == bool:
        raise TypeError("a truth value is not a number")
    return np.broadcast_to(np.asarray(given, float), np.shape(leaf))
