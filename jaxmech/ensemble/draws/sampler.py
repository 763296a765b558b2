"""The draws of a study: every start variable, coordinate, velocity and parameter it needs.

They are made for any range of trajectories, from the seed, the name of a variable and the number of
the trajectory; all of them are never held. The numbers of a variable do not depend on the blocks,
the order of the keys or the other variables, and a longer study begins with the trajectories of a
shorter one. Exceptions: the variables of a Sobol design or a Latin hypercube share one sequence,
whose dimensions are the variables in the order of their names, and a Latin hypercube is made for
the size of the study, as a whole.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxmech.config import Subject
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all
from jaxmech.ensemble.draws.designs import Points
from jaxmech.ensemble.draws.distributions import Distribution, Fixed, Law, quantile
from jaxmech.ensemble.members.observed import array_name
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import entry_names

Index = tuple[int, ...]
Rules = Mapping[str, Distribution]


@dataclass(frozen=True)
class DrawPlan:
    """The draw of one variable: a base value, and the distributions that replace its entries."""

    section: str
    name: str
    base: np.ndarray
    laws: Mapping[Index, Law]

    @cached_property
    def keys(self) -> dict[str, Index]:
        """The index of each entry that is drawn by its full name, such as "parameters.m[3]"."""
        indices = [*self.laws]
        return dict(zip(entry_names(f"{self.section}.{self.name}", indices), indices, strict=True))


def plans_of(study: Any, subject: Subject) -> list[DrawPlan]:
    """The draws of all variables, or a StudyError with all of their problems."""
    coordinates, added = subject.system.coordinates, subject.inputs.parameters
    plans, problems = [], list[Problem]()
    for name in (x for x in study.fixed if x not in coordinates):
        message = not_one_of(name, coordinates, f"a coordinate of {subject.name}")
        problems.append(Problem(("fixed",), f"must name coordinates, but {name} {message}"))
    for name in () if subject.model else coordinates[: subject.system.dynamics.mechanical]:
        if name not in study.coordinates:
            message = (
                "must be given, but is missing: a bare System has no initial state of its own; in "
                "a Python file, write q0, v0 and params beside it"
            )
            problems.append(Problem(("coordinates", name), message))
    for section, defaults, kind in _sections(subject):
        rules = getattr(study, section)
        with_default = (name for name, value in (defaults or {}).items() if value is not None)
        for name in dict.fromkeys([*with_default, *(key.partition("[")[0] for key in rules)]):
            # the whole array before its entries
            group = {key: rules[key] for key in sorted(rules) if key.partition("[")[0] == name}
            if defaults is not None and name not in defaults:
                message = not_one_of(name, defaults, f"{kind} of {subject.name}")
                problems += [Problem((section, key), message) for key in group]
                continue
            default = (added if defaults is None else defaults).get(name)
            try:
                plans.append(_plan(section, name, group, default, is_free=defaults is None))
            except StudyError as error:
                problems += error.problems
    refuse_all(problems)
    return [plan for plan in plans if plan.base.dtype.kind in "fiu"]


def _sections(subject: Subject) -> list[tuple[str, Mapping[str, Any] | None, str]]:
    """(section, names with default values or None if any name will do, kind) for all sections."""
    model, system = subject.model, subject.system
    of_rates = "a velocity" if system.velocities else "a coordinate"
    params = {**model.params, **subject.inputs.parameters} if model else None
    return [
        ("start", model.start if model else {}, "a start variable"),
        ("coordinates", dict.fromkeys(system.coordinates), "a coordinate"),
        ("velocities", dict.fromkeys(system.velocity_names), of_rates),
        ("parameters", params, "a parameter"),
    ]


def _plan(section: str, name: str, group: Rules, default: Any, is_free: bool) -> DrawPlan:
    base = np.asarray(np.nan if default is None else default)
    if group and base.dtype.kind not in "fiu":
        message = f"must hold numbers to be drawn, but is of type {type(default).__name__}"
        raise StudyError(Problem((section, key), message) for key in group)
    laws: dict[Index, Law] = {}
    for key, rule in group.items():
        index = _index(section, key, name, base)
        indices = [*np.ndindex(base.shape)] if key == name else [index]
        if isinstance(rule, Fixed):
            value, shape = np.asarray(rule.value, float), np.shape(base[index])
            if not (key == name and is_free):
                if value.shape not in ((), shape):
                    wanted = f"have shape {shape}" if shape else "be a single number"
                    message = f"must {wanted}, but has shape {value.shape}"
                    raise refuse((section, key), message)
                entry, value = value, base.astype(float)
                value[index] = entry
            base = value
            laws = {index: laws[index] for index in laws if index not in indices}
        else:
            values = {index: float(base[index]) for index in indices}
            try:  # entries with the same value of the model share their law
                of_value = {x: rule.frozen(x) for x in dict.fromkeys(values.values())}
            except StudyError as error:
                raise error.within(section, key) from None
            laws |= {index: of_value[x] for index, x in values.items()}
    return DrawPlan(section, name, base, laws)


def _index(section: str, key: str, name: str, base: np.ndarray) -> Index:
    """The index of an entry such as "m[3]"; empty for a whole array."""
    if key == name:
        return ()
    match = re.fullmatch(r"\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]", key[len(name) :])
    index = tuple(int(i) for i in match[1].split(",")) if match else None
    if index is None or len(index) != base.ndim or any(np.greater_equal(index, base.shape)):
        shape = f"has shape {base.shape}" if base.ndim else "is a single number"
        example = f"`{name}[{','.join(str(n - 1) for n in base.shape)}]`" if base.ndim else name
        message = f"must be an entry of `{name}`, but `{name}` {shape}; the last one is {example}"
        raise refuse((section, key), message)
    return index


_FARTHEST = 37.0  # deviations beyond which probabilities vanish
_LEAST = 2.0**-54  # half of the smallest step between random numbers; their quantile is finite


@dataclass(frozen=True, eq=False)
class Variable:
    """One named quantity of a study."""

    section: str  # "start", "coordinates", "velocities" or "parameters"
    name: str  # its name there
    values: np.ndarray  # shape (rows, ...) where it varies, else its own shape
    varies: bool  # whether there is one value per trajectory


class Sampler:
    """Draws of any range of trajectories of a study."""

    def __init__(self, study: Any, subject: Subject) -> None:
        sampling = study.sampling
        self.size = study.size  # trajectories of the study
        self._plans = plans_of(study, subject)
        # the section, variable and index of each number that varies, by full name
        self.entries: dict[str, tuple[str, str, Index]] = {}
        self.drawn: dict[str, Law] = {}  # the distributions, by full name
        for plan in self._plans:
            for key, index in plan.keys.items():
                self.entries[key] = plan.section, plan.name, index
                self.drawn[key] = plan.laws[index]
        names = [*self.drawn]
        # the factor of the correlation matrix of all drawn variables, if any are correlated
        self.factor = np.linalg.cholesky(sampling.matrix(names)) if sampling.correlation else None
        self.points = Points(sampling.design, study.seed, study.size, names)

    def rows(self, first: int, last: int) -> tuple[Variable, ...]:
        """Every variable for trajectories `first` to `last`."""
        return self.variables(self.columns(first, last), last - first)

    def variables(self, columns: Mapping[str, np.ndarray], rows: int) -> tuple[Variable, ...]:
        """Every variable of as many trajectories, from the numbers that vary, by full name."""
        variables = []
        for plan in self._plans:
            values = plan.base
            if plan.laws:
                values = np.array(np.broadcast_to(values, (rows, *values.shape)), float, order="C")
                by_entry = np.moveaxis(values, 0, -1)
                for key, index in plan.keys.items():
                    by_entry[index] = columns[key]
            variables.append(Variable(plan.section, plan.name, values, varies=bool(plan.laws)))
        return tuple(variables)

    def columns(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The numbers that vary, by full name, for some trajectories."""
        # A value is the quantile of a number between 0 and 1, so that correlations and designs
        # need to know nothing of distributions.
        below = self.points.rows(first, last)
        below, above = np.maximum(below, _LEAST), np.maximum(1 - below, _LEAST)
        if self.factor is not None:
            from scipy.special import ndtr, ndtri  # slow to import, and seldom needed

            z = ndtri(below) @ self.factor.T
            below, above = ndtr(z), ndtr(-z)
        return {
            key: quantile(law, below[:, k], above[:, k])
            for k, (key, law) in enumerate(self.drawn.items())
        }


def at_normal(law: Law, z: np.ndarray) -> np.ndarray:
    """Values of a distribution at quantiles of the standard normal one."""
    from scipy.special import ndtr

    z = np.clip(z, -_FARTHEST, _FARTHEST)
    return quantile(law, ndtr(z), ndtr(-z))


def stored_name(variable: Variable) -> str:
    """The name of a variable's array in a run folder, such as `parameter_m1`."""
    singular = {"coordinates": "coordinate", "velocities": "velocity", "parameters": "parameter"}
    return array_name(f"{singular.get(variable.section, variable.section)}_{variable.name}")
