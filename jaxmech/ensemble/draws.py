"""The draws of a study: every start variable, coordinate, velocity and parameter it needs.

A variable has a distribution, and all share a design and correlations. Draws are made for any range
of trajectories, from the seed, the name of a variable and the number of the trajectory; all of them
are never held. The numbers of a variable do not depend on the blocks, the order of the keys or the
other variables, and a longer study begins with the trajectories of a shorter one. Exceptions: the
variables of a Sobol design or a Latin hypercube share one sequence, whose dimensions are the
variables in the order of their names, and a Latin hypercube is made for the size of the study, as a
whole.
"""

import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmech.config import Subject
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all, unknown
from jaxmech.ensemble.distributions import Distribution, Fixed, Law, quantile
from jaxmech.ensemble.study import Design, Study
from jaxmech.utils.trees import entry_names

Index = tuple[int, ...]
_PER_COUNTER = 4  # numbers of 64 bits that Philox makes from one counter
_FARTHEST = 37.0  # deviations beyond which probabilities vanish
_LEAST = 2.0**-54  # half of the smallest step between random numbers; their quantile is finite
_SINGULAR = {"coordinates": "coordinate", "velocities": "velocity", "parameters": "parameter"}


@dataclass(frozen=True, eq=False)
class Variable:
    """One named quantity of a study."""

    section: str  # "start", "coordinates", "velocities" or "parameters"
    name: str  # its name there
    values: np.ndarray  # shape (rows, ...) where it varies, else its own shape
    varies: bool  # whether there is one value per trajectory

    @property
    def stored_name(self) -> str:
        """The name of its array in a run folder, such as `parameter_m1`."""
        return array_name(f"{_SINGULAR.get(self.section, self.section)}_{self.name}")


def array_name(name: str) -> str:
    """The name of the array of a quantity that a model names, with points in place of slashes."""
    return name.replace("/", ".").replace("\\", ".")


class Sampler:
    """Draws of any range of trajectories of a study."""

    def __init__(self, study: Study, subject: Subject) -> None:
        self.size = study.size  # trajectories of the study
        self._plans = _plans(study, subject)
        # the section, variable and index of each number that varies, by full name
        self.entries: dict[str, tuple[str, str, Index]] = {}
        self.drawn: dict[str, Law] = {}  # the distributions, by full name
        for plan in self._plans:
            for key, (index, law) in plan.laws.items():
                self.entries[key], self.drawn[key] = (plan.section, plan.name, index), law
        names = [*self.drawn]
        self.points = Points(study.sampling.design, study.seed, study.size, names)
        # the factor of the correlation matrix of all drawn variables, if any are correlated
        self.factor = _factor(study, names) if study.sampling.correlation else None

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
                for key, (index, _) in plan.laws.items():
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


def _factor(study: Study, names: list[str]) -> np.ndarray:
    """The factor of the correlation matrix of variables, or a StudyError if there is none."""
    matrix = np.eye(len(names))
    for entry, pair in enumerate(study.sampling.correlation):
        key, pair_indices = ("sampling", f"correlation[{entry}]", "of"), []
        for name in pair.of:  # in full, such as "parameters.m1", or "m1"
            matches = [full for full in names if name in (full, full.partition(".")[2])]
            if len(matches) > 1:
                raise refuse(key, f"must say which variable {name} is: {' or '.join(matches)}")
            if not matches:
                raise StudyError(unknown(key, [name], names, "a variable that is drawn"))
            pair_indices.append(names.index(matches[0]))
        i, j = pair_indices
        if i == j or matrix[i, j]:
            message = f"must hold a pair of its own, but holds {names[i]} and {names[j]}"
            raise refuse(key, message)
        matrix[i, j] = matrix[j, i] = pair.value
    if (least := np.linalg.eigvalsh(matrix)[0]) <= 1e-10:
        message = "must be consistent, but no variables have all these correlations: their "
        message += f"matrix has the eigenvalue {least:.2g}; make them smaller"
        raise refuse(("sampling", "correlation"), message)
    return np.linalg.cholesky(matrix)


class Points:
    """Points of a design in the unit cube, one column for each variable.

    Those of "random" depend on the name of their variable alone. The variables of the others, by
    `scipy.stats.qmc`, share a sequence, in the order of their names; a Latin hypercube is made as a
    whole, and depends on the size of the study.
    """

    def __init__(self, design: Design, seed: int, size: int, keys: Sequence[str]) -> None:
        self.design, self.seed, self.size = design, seed, size
        self.keys = list(keys)
        self._columns = [sorted(keys).index(key) for key in keys]  # of the sequence
        self._engine: Any = None

    def rows(self, first: int, last: int) -> np.ndarray:
        """The points of some trajectories, shape (last - first, variables), from 0 to 1."""
        if not self.keys:
            return np.zeros((last - first, 0))
        if self.design == "random":
            # Philox counts: any number of its sequence is reached without those before it, so a
            # block is drawn alone, with the numbers that it has in the whole.
            columns, skipped = [], first % _PER_COUNTER
            for key in self.keys:
                rng = self._generator(key)
                counters: Any = rng.bit_generator
                counters.advance(first // _PER_COUNTER)
                columns.append(rng.random(last - first + skipped)[skipped:])
            return np.stack(columns, axis=1)
        from scipy.stats import qmc  # imports slowly

        if self.design == "latin-hypercube":
            if self._engine is None:
                rng = self._generator("latin hypercube")
                self._engine = qmc.LatinHypercube(len(self.keys), rng=rng).random(self.size)
            points = self._engine[first:last]
        else:
            # A scrambled sequence (Owen, "Scrambling Sobol' and Niederreiter-Xing points", Journal
            # of Complexity 14, 1998), which is read in any order but best in its own.
            if self._engine is None or self._engine.num_generated != first:
                bits = 30 if self.size <= 2**30 else 64
                rng = self._generator("sobol")
                self._engine = qmc.Sobol(len(self.keys), scramble=True, bits=bits, rng=rng)
                if first:
                    self._engine.fast_forward(first)
            with warnings.catch_warnings():  # a number of points that is no power of two
                warnings.filterwarnings("ignore", message="The balance properties of Sobol")
                points = self._engine.random(last - first)
        chosen: np.ndarray = points[:, self._columns]
        return chosen

    def _generator(self, key: str) -> np.random.Generator:
        """The random numbers of a variable, which depend on the seed and its name alone."""
        words = np.frombuffer(hashlib.sha256(key.encode()).digest(), dtype="<u4")
        sequence = np.random.SeedSequence(self.seed, spawn_key=tuple(int(word) for word in words))
        return np.random.Generator(np.random.Philox(sequence))


@dataclass(frozen=True)
class _DrawPlan:
    """The draw of one variable: a base value, and the distributions that replace its entries."""

    section: str
    name: str
    base: np.ndarray
    laws: Mapping[str, tuple[Index, Law]]  # by full name, such as "parameters.m[3]"


def _plans(study: Study, subject: Subject) -> list[_DrawPlan]:
    """The draws of all variables, or a StudyError with all of their problems."""
    model, system, of = subject.model, subject.system, f"of {subject.name}"
    coordinates, added = system.coordinates, subject.inputs.parameters
    plans, problems = [], list[Problem]()
    problems += unknown(("fixed",), study.fixed, coordinates, f"a coordinate {of}")
    for name in () if model else coordinates[: system.dynamics.mechanical]:
        if name not in study.coordinates:
            message = (
                "must be given, but is missing: a bare System has no initial state of its own; in "
                "a Python file, write q0, v0 and params beside it"
            )
            problems.append(Problem(("coordinates", name), message))
    sections: tuple[tuple[str, Mapping[str, Any], str], ...] = (
        ("start", model.start if model else {}, f"a start variable {of}"),
        ("coordinates", dict.fromkeys(coordinates), f"a coordinate {of}"),
        (
            "velocities",
            dict.fromkeys(system.velocity_names),
            f"a {'velocity' if system.velocities else 'coordinate'} {of}",
        ),
        ("parameters", {**(model.params if model else {}), **added}, f"a parameter {of}"),
    )
    for section, defaults, kind in sections:
        rules: Mapping[str, Distribution] = getattr(study, section)
        is_free = section == "parameters" and model is None  # any name will do
        with_default = () if is_free else (k for k, x in defaults.items() if x is not None)
        for name in dict.fromkeys([*with_default, *(key.partition("[")[0] for key in rules)]):
            # the whole array before its entries
            group = {key: rules[key] for key in sorted(rules) if key.partition("[")[0] == name}
            if name not in defaults and not is_free:
                problems += unknown((section,), group, defaults, kind)
                continue
            try:
                plans.append(_plan_of(section, name, group, defaults.get(name), is_free))
            except StudyError as error:
                problems += error.problems
    refuse_all(problems)
    return [plan for plan in plans if plan.base.dtype.kind in "fiu"]


def _plan_of(
    section: str, name: str, group: Mapping[str, Distribution], default: Any, is_free: bool
) -> _DrawPlan:
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
    keys = entry_names(f"{section}.{name}", laws)
    return _DrawPlan(section, name, base, dict(zip(keys, laws.items(), strict=True)))


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
