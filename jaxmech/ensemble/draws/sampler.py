"""The draws of a study: every start variable, coordinate, velocity and parameter it needs.

They are made for any range of trajectories, from the seed, the name of a variable and the number of
the trajectory; all of them are never held. The numbers of a variable do not depend on the blocks,
the order of the keys or the other variables, and a longer study begins with the trajectories of a
shorter one. Exceptions: the variables of a Sobol design share one sequence, whose dimensions are
the variables in the order of their names, and a Latin hypercube is made for the size of the study.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxmech.config import Subject
from jaxmech.config.errors import Problem, refuse, refuse_all
from jaxmech.ensemble.draws.designs import Points, Sampling, inside, named, read_table
from jaxmech.ensemble.draws.distributions import Fixed, FromTable, Spread, needs_default
from jaxmech.ensemble.draws.plans import Drawn, DrawPlan, Index, plans_of
from jaxmech.ensemble.members.observed import array_name
from jaxmech.utils.text import not_one_of


@dataclass(frozen=True, eq=False)
class Variable:
    """One named quantity of a study."""

    section: str  # "start", "coordinates", "velocities" or "parameters"
    name: str  # its name there
    values: np.ndarray  # shape (rows, ...) where it varies, else its own shape
    varies: bool  # whether there is one value per trajectory


def draw(study: Drawn, subject: Subject) -> tuple[Variable, ...]:
    """Draw every variable of a study, by section and name, with the defaults of the model."""
    return Sampler(study, subject).rows(0, study.size)


class Sampler:
    """Draws of any range of trajectories of a study."""

    def __init__(
        self,
        study: Drawn,
        subject: Subject,
        folder: Path = Path(),  # to which the path of a table refers
    ) -> None:
        sampling = study.sampling
        self.size = study.size  # trajectories of the study
        self._plans = plans_of(study, subject)
        # each rule with the default value of the model
        rules = {p.key(i): (x, float(p.base[i])) for p in self._plans for i, x in p.rules.items()}
        self.keys = [*rules]  # full names of the numbers that vary, such as "parameters.m[3]"
        column_names = {
            key: rule.column for key, (rule, _) in rules.items() if isinstance(rule, FromTable)
        }
        # the columns of a table, by full name
        self.table_columns, self._weights = _from_table(column_names, sampling, study.size, folder)
        # the distributions of the others, by full name
        self.drawn: dict[str, tuple[Spread, float]] = {
            key: (rule, default)
            for key, (rule, default) in rules.items()
            if not isinstance(rule, FromTable)
        }
        names = [*self.drawn]
        self._proposal = _proposal(sampling, names)
        # the factor of the correlation matrix of all drawn variables, if any are correlated
        self.factor = np.linalg.cholesky(sampling.matrix(names)) if sampling.correlation else None
        self.points = Points(sampling.design, study.seed, study.size, names)
        _require_groups(sampling, self.points, study.size, self.table_columns)

    @property
    def weighted(self) -> bool:
        """Whether trajectories have weights other than one."""
        return self._weights is not None or bool(self._proposal)

    def rows(self, first: int, last: int) -> tuple[Variable, ...]:
        """Every variable for trajectories `first` to `last`."""
        return self.variables(self.columns(first, last), last - first)

    def variables(self, columns: Mapping[str, np.ndarray], rows: int) -> tuple[Variable, ...]:
        """Every variable of as many trajectories, from the numbers that vary, by full name."""
        return tuple(self._variable(plan, columns, rows) for plan in self._plans)

    @property
    def entries(self) -> dict[str, tuple[str, str, Index]]:
        """The section, variable and index of each number that varies, by full name."""
        return {
            plan.key(index): (plan.section, plan.name, index)
            for plan in self._plans
            for index in plan.rules
        }

    def columns(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The numbers that vary, by full name, for some trajectories."""
        # A value is the quantile of a number between 0 and 1, so that correlations, designs and
        # proposals need to know nothing of distributions.
        unit = {key: inside(x) for key, x in self.points.rows(first, last).items()}
        if self.factor is not None:
            from scipy.special import ndtr, ndtri  # slow to import, and seldom needed

            normal = np.stack([ndtri(unit[key]) for key in self.drawn], axis=1) @ self.factor.T
            unit |= {key: inside(x) for key, x in zip(self.drawn, ndtr(normal).T, strict=True)}
        drawn = {
            key: self._proposal.get(key, rule).quantile(unit[key], default)
            for key, (rule, default) in self.drawn.items()
        }
        return drawn | {key: values[first:last] for key, values in self.table_columns.items()}

    def weights(self, first: int, last: int) -> np.ndarray:
        """The weights of some trajectories, with the mean or the expectation one."""
        weights = np.ones(last - first) if self._weights is None else self._weights[first:last]
        # The logarithm of p(x)/q(x), summed over the variables: a product of densities may
        # underflow.
        if self._proposal:
            columns, total = self.columns(first, last), np.zeros(last - first)
            for key, rule in self._proposal.items():
                target, default = self.drawn[key]
                total += target.log_density(columns[key], default)
                total -= rule.log_density(columns[key], default)
            weights = weights * np.exp(total)
        return weights

    def _variable(self, plan: DrawPlan, columns: Mapping[str, np.ndarray], rows: int) -> Variable:
        if not plan.rules:
            return Variable(plan.section, plan.name, plan.base, varies=False)
        if not plan.base.shape:
            scalars = np.asarray(columns[plan.key(())], float)
            return Variable(plan.section, plan.name, scalars, varies=True)
        values = np.array(np.broadcast_to(plan.base, (rows, *plan.base.shape)), float, order="C")
        by_entry = np.moveaxis(values, 0, -1)
        for index in plan.rules:
            by_entry[index] = columns[plan.key(index)]
        return Variable(plan.section, plan.name, values, varies=True)


def _from_table(
    column_names: Mapping[str, str | None], sampling: Sampling, size: int, folder: Path
) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    if sampling.table is None:
        message = 'must not be of the distribution "table": `sampling.table` names no file'
        refuse_all(Problem(tuple(key.split(".", 1)), message) for key in column_names)
        return {}, None
    columns = read_table(folder / sampling.table)
    rows = len(next(iter(columns.values())))
    if rows < size:
        message = f"must be at most {rows}, the number of rows of {sampling.table}, but is {size}"
        raise refuse("size", message)
    values, problems = {}, []
    for key, column in column_names.items():
        name = column or (key if key in columns else key.partition(".")[2])
        if name in columns:
            values[key] = columns[name][:size]
        else:
            message = f"must be a column of {sampling.table}, but {name} "
            message += not_one_of(name, columns, "a column of it")
            problems.append(Problem(tuple(key.split(".", 1)), message))
    refuse_all(problems)
    return values, _weights_of(columns, sampling, size)


def _weights_of(
    columns: Mapping[str, np.ndarray], sampling: Sampling, size: int
) -> np.ndarray | None:
    if sampling.weight is None:
        return None
    key = ("sampling", "weight")
    if sampling.weight not in columns:
        reason = not_one_of(sampling.weight, columns, f"a column of {sampling.table}")
        raise refuse(key, f"must be a column, but {sampling.weight} {reason}")
    weights = columns[sampling.weight][:size]
    if weights.min() < 0 or weights.max() == 0:
        raise refuse(key, "must name a column of weights, at least 0 and not all 0")
    weights = np.ldexp(weights, -np.frexp(weights.max())[1])  # their sum might overflow
    return np.asarray(weights / weights.mean())


def _proposal(sampling: Sampling, keys: list[str]) -> dict[str, Spread]:
    proposal: dict[str, Spread] = {}
    for name, rule in sampling.proposal.items():
        key = ("sampling", "proposal", name)
        if isinstance(rule, Fixed | FromTable):
            raise refuse(key, "must be a distribution that has a density")
        if needs_default(rule):
            raise refuse(key, f"must have a `{needs_default(rule)}`, but it is missing")
        proposal[named(name, keys, key)] = rule
    return proposal


def _require_groups(
    sampling: Sampling, points: Points, size: int, columns: Mapping[str, np.ndarray]
) -> None:
    """Raise a StudyError unless a study of a design in groups consists of whole ones."""
    if sampling.design != "saltelli":
        return
    if columns or not points.keys:
        condition = "a variable that is drawn" if not points.keys else "no variables from a table"
        raise refuse(("sampling", "design"), f'must not be "saltelli", which needs {condition}')
    if size % points.group:
        near = max(size // points.group, 1) * points.group
        message = f"must be a multiple of {points.group}, the number of variables and two, for the "
        raise refuse("size", f'{message}design "saltelli", such as {near}; but is {size}')


def stored_name(variable: Variable) -> str:
    """The name of a variable's array in a run folder, such as `parameter_m1`."""
    singular = {"coordinates": "coordinate", "velocities": "velocity", "parameters": "parameter"}
    return array_name(f"{singular.get(variable.section, variable.section)}_{variable.name}")
