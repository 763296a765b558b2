"""A curve of equilibria over a parameter, and its points on planes across it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.equilibrium.assessment import Assessment, assess
from jaxmech.analysis.equilibrium.equilibrium import Case, Setup, problem
from jaxmech.analysis.equilibrium.result import EquilibriumStatus
from jaxmech.analysis.equilibrium.root import root
from jaxmech.analysis.stability.linearize import NOTHING, linearized
from jaxmech.analysis.stability.reduction import Freedom
from jaxmech.analysis.states import Numbers, State
from jaxmech.system import Params
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import number_names, numbers_of


class PointOnCurve(NamedTuple):
    """An equilibrium at a value of the parameter."""

    q: Numbers
    v: Numbers
    value: float
    assessment: Assessment

    @property
    def counts(self) -> tuple[int, int]:
        """The static index and the number of unstable eigenvalues."""
        return int(self.assessment.static), int(self.assessment.unstable)


@dataclass(frozen=True)
class Curve:
    """The data that stay the same along a branch."""

    case: Case
    where: int  # index of the parameter, see `place_of`
    freedom: Freedom
    first: float  # value of the parameter
    last: float
    size: float  # of q, the unit of length of a step in it

    @property
    def range(self) -> float:
        """The change of the parameter from the first to the last value, with its sign."""
        return self.last - self.first

    def scaled(self, point: PointOnCurve) -> Numbers:
        """(q, parameter) in the units of a step."""
        return np.append(point.q / self.size, (point.value - self.first) / self.range)

    def at(self, start: Numbers, direction: Numbers) -> PointOnCurve | None:
        """The equilibrium on the plane through `start` perpendicular to a direction."""
        case, scales = self.case, (self.size, self.first, self.range)
        plane = jnp.asarray(start), jnp.asarray(direction)
        solution = _corrected(
            case.setup, self.where, self.freedom, plane, case.v, case.theta, scales
        )
        q, v, value, status, assessment = jax.device_get(solution)
        if status != EquilibriumStatus.FOUND or not np.isfinite(assessment.growth):
            return None
        return PointOnCurve(q, v, float(value), assessment)


def place_of(case: Case, params: Params, parameter: str, fixed: Sequence[str]) -> int:
    """The index of the parameter among all numbers of params, then the rates."""
    names = list(number_names(jax.tree.map(jnp.asarray, params)))
    extra = len(fixed)  # values of held coordinates follow those of params
    if parameter in case.setup.names:
        return len(names) + extra + case.setup.names.index(parameter)
    if parameter not in names:
        raise ValueError(
            f"Argument `parameter` must name a number among the parameters, or a rate in `v`, but "
            f"is {parameter!r}; the parameters are {', '.join(names) or 'none'}."
        )
    return names.index(parameter)


def all_numbers(theta: Any) -> tuple[Array, Callable[[Array], Any]]:
    """The numbers of params and the rates as a vector, and the function that restores theta."""
    params, rates, t, symmetries = theta
    numbers, with_numbers = numbers_of((params, rates))
    return numbers, lambda x: (*with_numbers(x), t, symmetries)


@jit_of("setup", "parameter_index", "freedom")
def _corrected(
    setup: Setup, parameter_index: int, freedom: Freedom, plane: tuple[Array, Array], v: Array,
    theta: Any, scales: Any,
) -> tuple[Array, Array, Array, Array, Assessment]:  # fmt: skip
    """q, v, the parameter, the status and the assessment of the point on a plane."""
    system = setup.system
    (start, direction), (size, first, extent) = plane, scales
    numbers, with_numbers = all_numbers(theta)

    def theta_of(part: Array) -> Any:
        return with_numbers(numbers.at[parameter_index].set(first + part * extent))

    q = start[:-1] * size
    scaled, z = problem(setup, q, v, theta_of(start[-1]))

    def equations(x: Array, _: None) -> Array:
        z, part = x[:-1], x[-1]
        place = jnp.append(z[: system.n] / size, part)
        return jnp.append(scaled.equations(z, theta_of(part)), direction @ (place - start))

    x = root(equations, jnp.append(z, start[-1]), None)
    theta = theta_of(x[-1])
    solution = scaled.solved(x[:-1], theta)
    state = State(solution.q, solution.v, theta[2], theta[0])
    lin = linearized(system, freedom, NOTHING, state, solution.W)
    return solution.q, solution.v, first + x[-1] * extent, solution.status, assess(lin)
