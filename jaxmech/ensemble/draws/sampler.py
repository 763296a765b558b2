"""The draws of a study: every start variable, coordinate, velocity and parameter it needs.

They are made for any range of trajectories, from the seed, the name of a variable and the number of
the trajectory; all of them are never held. The numbers of a variable do not depend on the blocks,
the order of the keys or the other variables, and a longer study begins with the trajectories of a
shorter one. Exceptions: the variables of a Sobol design or a Latin hypercube share one sequence,
whose dimensions are the variables in the order of their names, and a Latin hypercube is made for
the size of the study, as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jaxmech.config import Subject
from jaxmech.config.errors import refuse
from jaxmech.ensemble.draws.designs import Points
from jaxmech.ensemble.draws.distributions import quantile
from jaxmech.ensemble.draws.plans import Drawn, DrawPlan, Index, Rule, plans_of
from jaxmech.ensemble.members.observed import array_name

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

    def __init__(self, study: Drawn, subject: Subject) -> None:
        sampling = study.sampling
        self.size = study.size  # trajectories of the study
        self._plans = plans_of(study, subject)
        # the section, variable and index of each number that varies, by full name
        self.entries: dict[str, tuple[str, str, Index]] = {}
        self.drawn: dict[str, Rule] = {}  # the distributions, by full name
        for plan in self._plans:
            for key, index in plan.keys.items():
                self.entries[key] = plan.section, plan.name, index
                self.drawn[key] = plan.rules[index]
        names = [*self.drawn]
        # the factor of the correlation matrix of all drawn variables, if any are correlated
        self.factor = np.linalg.cholesky(sampling.matrix(names)) if sampling.correlation else None
        self.points = Points(sampling.design, study.seed, study.size, names)
        if sampling.design == "saltelli":
            _require_groups(self.points, study.size)

    def rows(self, first: int, last: int) -> tuple[Variable, ...]:
        """Every variable for trajectories `first` to `last`."""
        return self.variables(self.columns(first, last), last - first)

    def variables(self, columns: Mapping[str, np.ndarray], rows: int) -> tuple[Variable, ...]:
        """Every variable of as many trajectories, from the numbers that vary, by full name."""
        return tuple(_variable(plan, columns, rows) for plan in self._plans)

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
            key: quantile(rule.law, below[:, k], above[:, k])
            for k, (key, rule) in enumerate(self.drawn.items())
        }


def _variable(plan: DrawPlan, columns: Mapping[str, np.ndarray], rows: int) -> Variable:
    if not plan.rules:
        return Variable(plan.section, plan.name, plan.base, varies=False)
    values = np.array(np.broadcast_to(plan.base, (rows, *plan.base.shape)), float, order="C")
    by_entry = np.moveaxis(values, 0, -1)
    for key, index in plan.keys.items():
        by_entry[index] = columns[key]
    return Variable(plan.section, plan.name, values, varies=True)


def _require_groups(points: Points, size: int) -> None:
    """Raise a StudyError unless a study of a design in groups consists of whole ones."""
    if not points.keys:
        message = 'must not be "saltelli", which needs a variable that is drawn'
        raise refuse(("sampling", "design"), message)
    if size % points.group:
        near = max(size // points.group, 1) * points.group
        message = f"must be a multiple of {points.group}, the number of variables and two, for the "
        raise refuse("size", f'{message}design "saltelli", such as {near}; but is {size}')


def stored_name(variable: Variable) -> str:
    """The name of a variable's array in a run folder, such as `parameter_m1`."""
    singular = {"coordinates": "coordinate", "velocities": "velocity", "parameters": "parameter"}
    return array_name(f"{singular.get(variable.section, variable.section)}_{variable.name}")
