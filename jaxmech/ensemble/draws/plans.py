"""The draws of a study: the variables of its model, and the distribution of each entry."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.config import Subject, load
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all
from jaxmech.ensemble.draws.designs import Sampling
from jaxmech.ensemble.draws.distributions import (
    Distribution,
    Fixed,
    FromTable,
    Normal,
    Spread,
    needs_default,
)
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import entry_names

Index = tuple[int, ...]
_SCALARS = ("coordinates", "velocities")

Rules = Mapping[str, Distribution]


class Drawn:
    """The settings of a study that determine its draws."""

    size: int  # number of draws
    seed: int  # of all random numbers
    fixed: tuple[str, ...]  # coordinates that are held
    sampling: Sampling  # the joint distribution
    start: Rules  # of the start variables of the model
    coordinates: Rules
    velocities: Rules
    parameters: Rules


@dataclass(frozen=True)
class DrawPlan:
    """The draw of one variable: a base value, and the distributions that replace its entries."""

    section: str
    name: str
    base: np.ndarray
    rules: Mapping[Index, Spread | FromTable]

    def key(self, index: Index) -> str:
        """The full name of an entry, such as "parameters.m[3]"."""
        return self._keys[index]

    @cached_property
    def _keys(self) -> dict[Index, str]:
        indices = [*self.rules]
        return dict(zip(indices, entry_names(f"{self.section}.{self.name}", indices), strict=True))


def plans_of(study: Drawn, subject: Subject) -> list[DrawPlan]:
    """The draws of all variables, or a StudyError with all of their problems."""
    problems, added = list(_missing(study, subject)), subject.inputs.parameters
    plans = []
    for section, defaults, kind in known_names(subject):
        for name, group in _grouped(getattr(study, section), defaults).items():
            try:
                plans.append(_plan(section, name, group, defaults, kind, added))
            except StudyError as error:
                problems.extend(error.problems)
    refuse_all(problems)
    return [plan for plan in plans if plan.base.dtype.kind in "fiu"]


def known_names(subject: Subject) -> list[tuple[str, Mapping[str, Any] | None, str]]:
    """(section, names with default values or None if any name will do, kind) for all sections."""
    model = subject.model
    system = subject.system
    free = dict.fromkeys(system.coordinates)  # names without a default value
    added = subject.inputs.parameters
    of_rates = "a velocity" if system.velocities else "a coordinate"
    sections: list[tuple[str, Mapping[str, Any] | None, str]] = [
        ("start", model.start if model else {}, "a start variable"),
        ("coordinates", free, "a coordinate"),
        ("velocities", dict.fromkeys(system.velocity_names), of_rates),
        ("parameters", {**model.params, **added} if model else None, "a parameter"),
    ]
    return [(section, names, f"{kind} of {subject.name}") for section, names, kind in sections]


def name_problems(data: Mapping[str, Any], folder: Path = Path()) -> list[Problem]:
    """The unknown models, options, variables and parameters in the data of a configuration."""
    name, options = data.get("model"), data.get("model_options", {})
    if not isinstance(name, str) or not isinstance(options, dict):
        return []
    try:
        subject = load(name, options, folder, _names(data.get("parameters")))
    except StudyError as error:
        return list(error.problems)
    tables = {section: table for section, table in data.items() if isinstance(table, dict)}
    inputs = tables.get("inputs", {})
    numbers = {*inputs, *(x.get("number") for x in inputs.values() if isinstance(x, dict))}
    return [
        Problem((section, key), not_one_of(key.partition("[")[0], names, kind))
        for section, names, kind in known_names(subject)
        for key in tables.get(section, ())
        if names is not None and key.partition("[")[0] not in {*names, *numbers}
    ]


def _names(table: Any) -> Iterable[str]:
    return table if isinstance(table, dict) else ()


def _missing(study: Drawn, subject: Subject) -> Iterable[Problem]:
    coordinates = subject.system.coordinates
    positions = coordinates[: subject.system.dynamics.mechanical]
    for name in study.fixed:
        if name not in coordinates:
            message = not_one_of(name, coordinates, f"a coordinate of {subject.name}")
            yield Problem(("fixed",), f"must name coordinates, but {name} {message}")
    missing = [] if subject.model else [name for name in positions if name not in study.coordinates]
    for name in missing:
        message = (
            "must be given, but is missing: a bare System has no initial state of its own; in a "
            "Python file, write q0, v0 and params beside it"
        )
        yield Problem(("coordinates", name), message)


Group = dict[str, Distribution]


def _grouped(
    rules: Group | Mapping[str, Any], defaults: Mapping[str, Any] | None
) -> dict[str, Group]:
    """Group the rules by the name of their variable, `m` before `m[0]`; groups may be empty."""
    defaulted = [name for name, value in (defaults or {}).items() if value is not None]
    groups: dict[str, Group] = {name: {} for name in defaulted}
    for key in sorted(rules, key=lambda key: "[" in key):
        groups.setdefault(key.partition("[")[0], {})[key] = rules[key]
    return groups


def _plan(
    section: str, name: str, group: Group, defaults: Mapping[str, Any] | None, kind: str,
    added: Mapping[str, Any],
) -> DrawPlan:  # fmt: skip
    if defaults is not None and name not in defaults:
        message = not_one_of(name, defaults, kind)
        raise StudyError(Problem((section, key), message) for key in group)
    default = added.get(name) if defaults is None else defaults[name]
    base = np.asarray(np.nan if default is None else default)
    if group and base.dtype.kind not in "fiu":
        message = f"must hold numbers to be drawn, but is of type {type(default).__name__}"
        raise StudyError(Problem((section, key), message) for key in group)
    entries: dict[Index, Spread | FromTable] = {}
    for key, rule in group.items():
        indices = _indices(section, key, name, base)
        if isinstance(rule, Fixed):
            base = _with_value(section, key, base, indices, rule, free=defaults is None)
            entries = {index: entries[index] for index in entries if index not in indices}
            continue
        if default is None and needs_default(rule):
            message = f"must have a `{needs_default(rule)}`, but it is missing: no default value"
            raise refuse((section, key), message)
        if isinstance(rule, Normal) and rule.relative and not rule.mean and not all(
            base[index] for index in indices
        ):  # fmt: skip
            message = "must have `relative = false`: a fraction of its default value, 0, is 0"
            raise refuse((section, key), f"{message}; give `sd` in its own unit")
        entries.update(dict.fromkeys(indices, rule))
    return DrawPlan(section, name, base, entries)


def _indices(section: str, key: str, name: str, base: np.ndarray) -> list[Index]:
    if key == name:
        return list(np.ndindex(base.shape))
    match = re.fullmatch(r"\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]", key[len(name) :])
    index = tuple(int(i) for i in match[1].split(",")) if match else None
    if index is None or len(index) != base.ndim or any(np.greater_equal(index, base.shape)):
        shape = f"has shape {base.shape}" if base.ndim else "is a single number"
        example = f"`{name}[{','.join(str(n - 1) for n in base.shape)}]`" if base.ndim else name
        message = f"must be an entry of `{name}`, but `{name}` {shape}; the last one is {example}"
        raise refuse((section, key), message)
    return [index]


def _with_value(
    section: str, key: str, base: np.ndarray, indices: list[Index], rule: Fixed, free: bool
) -> np.ndarray:
    value = np.asarray(rule.value, dtype=float)
    is_whole = "[" not in key
    if section in _SCALARS and value.shape:
        raise refuse((section, key), f"must be a single number, but has shape {value.shape}")
    if is_whole and free:
        return value
    shape = base.shape if is_whole else ()
    if value.shape not in ((), shape):
        raise refuse((section, key), f"must have shape {shape}, but has shape {value.shape}")
    changed = base.astype(float)
    for index in indices:
        changed[index] = value[index] if value.shape else value
    return changed
