"""The draws of a study: the variables of its model, and the distribution of each entry."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jaxmech.config import Subject
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all
from jaxmech.ensemble.draws.designs import Sampling
from jaxmech.ensemble.draws.distributions import Distribution, Fixed, Frozen, Spread
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import entry_names

Index = tuple[int, ...]
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


class Rule(NamedTuple):
    """The distribution of one number."""

    spread: Spread
    default: float  # value of the model
    law: Frozen


@dataclass(frozen=True)
class DrawPlan:
    """The draw of one variable: a base value, and the distributions that replace its entries."""

    section: str
    name: str
    base: np.ndarray
    rules: Mapping[Index, Rule]

    @cached_property
    def keys(self) -> dict[str, Index]:
        """The index of each entry that is drawn by its full name, such as "parameters.m[3]"."""
        indices = [*self.rules]
        return dict(zip(entry_names(f"{self.section}.{self.name}", indices), indices, strict=True))


def plans_of(study: Drawn, subject: Subject) -> list[DrawPlan]:
    """The draws of all variables, or a StudyError with all of their problems."""
    problems, added = list(_missing(study, subject)), subject.inputs.parameters
    plans = []
    for section, defaults, kind in known_names(subject):
        rules = getattr(study, section)
        with_default = (name for name, value in (defaults or {}).items() if value is not None)
        for name in dict.fromkeys([*with_default, *(key.partition("[")[0] for key in rules)]):
            # the whole array before its entries
            group = {key: rules[key] for key in sorted(rules) if key.partition("[")[0] == name}
            if defaults is not None and name not in defaults:
                message = not_one_of(name, defaults, kind)
                problems += [Problem((section, key), message) for key in group]
                continue
            default = (added if defaults is None else defaults).get(name)
            try:
                plans.append(_plan(section, name, group, default, is_free=defaults is None))
            except StudyError as error:
                problems += error.problems
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


def _missing(study: Drawn, subject: Subject) -> Iterable[Problem]:
    coordinates = subject.system.coordinates
    for name in study.fixed:
        if name not in coordinates:
            message = not_one_of(name, coordinates, f"a coordinate of {subject.name}")
            yield Problem(("fixed",), f"must name coordinates, but {name} {message}")
    if subject.model:
        return
    for name in coordinates[: subject.system.dynamics.mechanical]:
        if name not in study.coordinates:
            message = (
                "must be given, but is missing: a bare System has no initial state of its own; in "
                "a Python file, write q0, v0 and params beside it"
            )
            yield Problem(("coordinates", name), message)


def _plan(section: str, name: str, group: Rules, default: Any, is_free: bool) -> DrawPlan:
    base = np.asarray(np.nan if default is None else default)
    if group and base.dtype.kind not in "fiu":
        message = f"must hold numbers to be drawn, but is of type {type(default).__name__}"
        raise StudyError(Problem((section, key), message) for key in group)
    rules: dict[Index, Rule] = {}
    for key, rule in group.items():
        indices = _indices(section, key, name, base)
        if isinstance(rule, Fixed):
            base = _with_value(section, key, base, indices, rule, is_free)
            rules = {index: rules[index] for index in rules if index not in indices}
        else:
            values = {index: float(base[index]) for index in indices}
            try:  # entries with the same value of the model share their law
                laws = {x: rule.frozen(x) for x in dict.fromkeys(values.values())}
            except StudyError as error:
                raise error.within(section, key) from None
            rules |= {index: Rule(rule, x, laws[x]) for index, x in values.items()}
    return DrawPlan(section, name, base, rules)


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
    section: str, key: str, base: np.ndarray, indices: list[Index], rule: Fixed, is_free: bool
) -> np.ndarray:
    value = np.asarray(rule.value, dtype=float)
    is_whole = "[" not in key
    if section in ("coordinates", "velocities") and value.shape:
        raise refuse((section, key), f"must be a single number, but has shape {value.shape}")
    if is_whole and is_free:
        return value
    shape = base.shape if is_whole else ()
    if value.shape not in ((), shape):
        raise refuse((section, key), f"must have shape {shape}, but has shape {value.shape}")
    changed = base.astype(float)
    for index in indices:
        changed[index] = value[index] if value.shape else value
    return changed
