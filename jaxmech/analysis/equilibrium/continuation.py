"""`continuation`: equilibria over a parameter, through folds and past branch points.

Pseudo-arclength continuation (Keller 1977): the parameter is one of the unknowns, and the plane at
right angles to the secant of the last two points the equation that it adds. So a fold, where the
parameter turns back, is a point like any other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.equilibrium.assessment import Assessment, Stability, assess
from jaxmech.analysis.equilibrium.equilibrium import Case, equilibrium, prepared, problem
from jaxmech.analysis.equilibrium.result import EquilibriumStatus
from jaxmech.analysis.equilibrium.root import root
from jaxmech.analysis.stability.freedom import freedom_at
from jaxmech.analysis.stability.linearize import linearized
from jaxmech.analysis.stability.reduction import Freedom
from jaxmech.analysis.symmetry.symmetries import Numbers, Symmetries
from jaxmech.system import Params, System
from jaxmech.utils.checks import (
    require_finite,
    require_positive_integer,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import number_names, numbers_of

HALVINGS = 40  # of an interval that holds a branch point
ASIDE = 1e-3  # of an interval: distance of the points between which the parameter may turn
SMALLEST = 1e-6  # step, relative to the first one, below which a branch ends


class SpecialPoint(NamedTuple):
    """Where the equilibria of a branch change.

    Attributes:
        kind: "fold" (the parameter turns back), "branch point" (another branch crosses) or "Hopf"
            (a pair of eigenvalues crosses the imaginary axis).
        value: of the parameter.
        q: coordinates, shape (n,).
        behind: number of the point of the branch behind which it lies.
    """

    kind: str
    value: float
    q: Numbers
    behind: int


@dataclass(frozen=True, repr=False)
class Branch:
    """Equilibria along one curve.

    Attributes:
        parameter: its name.
        values: of the parameter, shape (T,).
        q: coordinates, shape (T, n).
        v: velocities, shape (T, n).
        stability: a `Stability` each, shape (T,).
        index: number of negative eigenvalues of the projected Hessian, shape (T,).
        unstable: number of eigenvalues with a positive real part, shape (T,).
        special: folds, branch points and Hopf points in the order of the branch.
        ended: why it ends: "range", "most" points, or "no convergence".
        coordinates: their names.
    """

    parameter: str
    values: Numbers
    q: Numbers
    v: Numbers
    stability: np.ndarray
    index: np.ndarray
    unstable: np.ndarray
    special: tuple[SpecialPoint, ...]
    ended: str
    coordinates: tuple[str, ...]

    def __repr__(self) -> str:
        low, high = self.values.min(), self.values.max()
        kinds = sorted({Stability(int(x)).name for x in self.stability})
        line = f"Branch: {len(self.values)} equilibria, {self.parameter} from {low:.6g} to "
        return f"{line}{high:.6g}, {' and '.join(kinds)}; ends: {self.ended}"


@dataclass(frozen=True, repr=False)
class Bifurcation:
    """What `continuation` found: the branch through the guess first, then those that cross it."""

    branches: tuple[Branch, ...]

    @property
    def special(self) -> tuple[SpecialPoint, ...]:
        """Special points of all branches, branch points once."""
        return tuple(point for branch in self.branches for point in branch.special)

    def __repr__(self) -> str:
        lines = [f"Bifurcation: {len(self.branches)} branches"]
        for branch in self.branches:
            lines.append(f"  {branch!r}")
            lines += [
                f"    {point.kind} at {branch.parameter} = {point.value:.9g}"
                for point in branch.special
            ]
        return "\n".join(lines)


@with_standard_promotion
def continuation(
    system: System,
    q: Any,
    params: Params,
    parameter: str,
    to: Any,
    *,
    t: Any = 0.0,
    fixed: Sequence[str] = (),
    v: Mapping[str, Any] | Any = None,
    symmetries: Symmetries | None = None,
    step: float = 0.02,
    most: int = 300,
    switch: bool = True,
) -> Bifurcation:
    """Equilibria, or steady motions, while one parameter changes.

    Folds, branch points and Hopf points are located, and the branches that cross at a branch point
    are followed in both directions. A host function.

    Args:
        system: the system, with n coordinates.
        q: guess of the coordinates at the first value, shape (n,).
        params: the parameters; the named one has its first value.
        parameter: a parameter by name, such as `w` or `m[0]`, or a coordinate whose rate is given
            in `v`.
        to: the last value of the parameter.
        t: time [s].
        fixed: as for `equilibrium`.
        v: as for `equilibrium`.
        symmetries: as for `equilibrium`.
        step: length of the first step, and a quarter of the longest, relative to the range of the
            parameter and to 1 + max |q|.
        most: number of points of a branch at most.
        switch: whether to follow branches that cross the first one.

    Returns:
        A `Bifurcation`.

    Raises:
        TypeError: `system` is not a `System`.
        ValueError: an argument is invalid, or there is no equilibrium at the first value.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> def hoop(q, v, t, p):  # a bead on a hoop of radius 1 that turns at the rate w
        ...     return (v[0] ** 2 + (p["w"] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])
        >>> bead = jm.System(hoop, coordinates=("angle",))
        >>> jm.continuation(bead, [0.0], {"w": 2.0}, "w", 5.0, step=0.1)
        Bifurcation: 3 branches
          Branch: 6 equilibria, w from 2 to 5, STABLE and UNSTABLE; ends: range
            branch point at w = 3.13209195
          Branch: 8 equilibria, w from 3.13209 to 5, STABLE; ends: range
          Branch: 8 equilibria, w from 3.13209 to 5, STABLE; ends: range
    """
    require_finite(to=to)
    require_positive_integer("most", most, "such as 300")
    case = prepared(system, q, params, t, fixed, v, symmetries)
    symmetric = None if v is None else case.theta[3]
    own = equilibrium(system, q, params, t=t, fixed=fixed, v=v, symmetries=symmetric)
    where = _place(case, params, parameter, fixed)
    first = float(_numbers(case.theta)[0][where])
    if float(to) == first:
        raise ValueError(f"Argument `to` must differ from the first value of {parameter}, {first}.")
    params_, _, t_, _ = case.theta
    freedom = freedom_at(case.system, (own.q, own.v, t_, params_))
    curve = _Curve(case, where, freedom, first, float(to), float(1 + jnp.max(jnp.abs(own.q))))
    begin = _Point(np.asarray(own.q), np.asarray(own.v), first, own.assessment)
    ahead = np.zeros(system.n + 1)
    ahead[-1] = 1.0
    main = _follow(curve, begin, ahead, step, most)
    branches = [_branch(curve, main, parameter)]
    for special in main.special if switch else ():
        if special.kind == "branch point":
            lines = _crossing(curve, main, special, step, most)
            branches += [_branch(curve, line, parameter) for line in lines]
    return Bifurcation(tuple(branches))


class _Point(NamedTuple):
    q: Numbers
    v: Numbers
    value: float
    assessment: Assessment


class _Line(NamedTuple):
    points: list[_Point]
    special: list[SpecialPoint]
    ended: str


@dataclass(frozen=True)
class _Curve:
    """All that stays the same along a branch."""

    case: Case
    where: int
    freedom: Freedom
    first: float
    last: float
    size: float

    @property
    def range(self) -> float:
        """By how much the parameter changes, with its sign."""
        return self.last - self.first

    def scaled(self, point: _Point) -> Numbers:
        """(q, parameter) in the units of a step."""
        return np.append(point.q / self.size, (point.value - self.first) / self.range)

    def at(self, start: Numbers, direction: Numbers) -> _Point | None:
        """The equilibrium on the plane through `start` at right angles to a direction."""
        case, scales = self.case, (self.size, self.first, self.range)
        names, moving = case.names, case.moving
        found = _corrected(
            case.system, names, moving, self.where, self.freedom,
            jnp.asarray(start), jnp.asarray(direction), case.v, case.theta, scales,
        )  # fmt: skip
        q, v, value, status, assessment = jax.device_get(found)
        if status != EquilibriumStatus.FOUND or not np.isfinite(assessment.growth):
            return None
        return _Point(q, v, float(value), assessment)


def _place(case: Case, params: Params, parameter: str, fixed: Sequence[str]) -> int:
    """The number of the parameter among all numbers of params, then the rates."""
    names = list(number_names(jax.tree.map(jnp.asarray, params)))
    extra = len(fixed)  # values of held coordinates follow those of params
    if parameter in case.names:
        return len(names) + extra + case.names.index(parameter)
    if parameter not in names:
        raise ValueError(
            f"Argument `parameter` must name a number among the parameters, or a rate in `v`, but "
            f"is {parameter!r}; the parameters are {', '.join(names) or 'none'}."
        )
    return names.index(parameter)


def _numbers(theta: Any) -> tuple[Array, Callable[[Array], Any]]:
    params, rates, t, symmetries = theta
    numbers, with_numbers = numbers_of((params, rates))
    return numbers, lambda x: (*with_numbers(x), t, symmetries)


@jit_of("system", "names", "moving", "where", "freedom")
def _corrected(
    system: System, names: tuple[str, ...], moving: bool, where: int, freedom: Freedom,
    start: Array, direction: Array, v: Array, theta: Any, scales: Any,
) -> tuple[Array, Array, Array, Array, Assessment]:  # fmt: skip
    """q, v, the parameter, the status and the assessment of the point on a plane."""
    size, first, extent = scales
    numbers, with_numbers = _numbers(theta)

    def theta_of(part: Array) -> Any:
        return with_numbers(numbers.at[where].set(first + part * extent))

    q = start[:-1] * size
    given, z = problem(system, names, moving, q, v, theta_of(start[-1]))

    def equations(x: Array, _: None) -> Array:
        z, part = x[:-1], x[-1]
        place = jnp.append(z[: system.n] / size, part)
        return jnp.append(given.equations(z, theta_of(part)), direction @ (place - start))

    x = root(equations, jnp.append(z, start[-1]), None)
    theta = theta_of(x[-1])
    found = given.solved(x[:-1], theta)
    lin = linearized(system, freedom, (), (), found.q, found.v, theta[2], theta[0], found.W)
    return found.q, found.v, first + x[-1] * extent, found.status, assess(lin)


def _follow(curve: _Curve, begin: _Point, direction: Numbers, step: float, most: int) -> _Line:
    """Points from `begin` on into a direction, until the parameter leaves its range."""
    points, special, length, ended = [begin], list[SpecialPoint](), step, "most"
    while len(points) < most:
        here = curve.scaled(points[-1])
        new = curve.at(here + length * direction, direction)
        moved = None if new is None else curve.scaled(new) - here
        distance = 0.0 if moved is None else float(np.linalg.norm(moved))
        straight = moved is not None and moved @ direction > 0.9 * distance
        if new is None or moved is None or not straight or distance < 0.1 * length:
            length /= 2
            if length < SMALLEST * step:
                ended = "no convergence"
                break
            continue
        part = curve.scaled(new)[-1]
        if not -1e-9 <= part <= 1 + 1e-9:
            level = np.zeros_like(direction)
            level[-1] = 1.0
            edge = here + moved * ((float(part > 1) - here[-1]) / (part - here[-1]))
            new = curve.at(edge, level)
            if new is not None:
                special += _between(curve, points, new)
                points.append(new)
            ended = "range"
            break
        special += _between(curve, points, new)
        points.append(new)
        direction = moved / distance
        length = min(1.5 * length, 4 * step)
    return _Line(points, special, ended)


def _between(curve: _Curve, points: list[_Point], new: _Point) -> list[SpecialPoint]:
    """Special points between the last point of a branch and a new one."""
    before = points[-1]
    here, there = curve.scaled(before), curve.scaled(new)
    along = (there - here) / np.linalg.norm(there - here)
    length = float(np.linalg.norm(there - here))

    def at(s: float) -> _Point | None:
        return curve.at(here + s * along, along)

    counts = [(int(p.assessment.index), int(p.assessment.unstable)) for p in (before, new)]
    if counts[0] == counts[1] or (len(points) == 1 and before.assessment.zeros):
        return []
    low, high, place = 0.0, length, new
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        point = at(middle)
        if point is None:
            break
        own = (int(point.assessment.index), int(point.assessment.unstable))
        low, high = (middle, high) if own == counts[0] else (low, middle)
        place = point
    is_real = counts[0][0] != counts[1][0] or abs(counts[0][1] - counts[1][1]) == 1
    kind = "branch point" if is_real else "Hopf"
    sides = [at(low - ASIDE * length), at(low + ASIDE * length)]
    if is_real and all(side is not None for side in sides):
        turns = [side.value - place.value for side in sides if side is not None]
        kind = "fold" if turns[0] * turns[1] > 0 else kind
    return [SpecialPoint(kind, place.value, place.q, len(points) - 1)]


def _crossing(
    curve: _Curve, main: _Line, special: SpecialPoint, step: float, most: int
) -> list[_Line]:
    """The branches that leave a branch point to both sides."""
    case = curve.case
    points = main.points
    along = curve.scaled(points[special.behind + 1]) - curve.scaled(points[special.behind])
    along = along / np.linalg.norm(along)
    _, _, t, symmetries = case.theta
    numbers, with_numbers = _numbers(case.theta)
    theta = with_numbers(numbers.at[curve.where].set(special.value))
    q, v = jnp.asarray(special.q), jnp.asarray(points[special.behind].v)
    W = jnp.tensordot(symmetries.along(q, v), symmetries.W, 1)
    lin = linearized(case.system, curve.freedom, (), (), q, v, t, theta[0], W)
    if lin.reduced.K.shape[0] != lin.reduced.K.shape[1]:
        return []
    K = np.asarray(lin.reduced.K)
    sizes, V = np.linalg.eigh((K + K.T) / 2)
    flat = np.asarray(lin.reduced.Z) @ V[:, np.argmin(np.abs(sizes))]
    aside = np.append(flat / curve.size, 0.0)
    aside = aside - along * (along @ aside)
    if np.linalg.norm(aside) < 1e-3 * np.linalg.norm(flat) / curve.size:
        return []
    aside = aside / np.linalg.norm(aside)
    begin = points[special.behind]._replace(q=special.q, value=special.value)
    lines = []
    for sign in (1.0, -1.0):
        first = curve.at(curve.scaled(begin) + sign * step * aside, sign * aside)
        if first is None:
            continue
        away = curve.scaled(first) - curve.scaled(begin)
        line = _follow(curve, first, away / np.linalg.norm(away), step, most)
        start = begin._replace(assessment=first.assessment)
        lines.append(_Line([start, *line.points], line.special, line.ended))
    return lines


def _branch(curve: _Curve, line: _Line, parameter: str) -> Branch:
    points = line.points
    return Branch(
        parameter=parameter,
        values=np.array([p.value for p in points]),
        q=np.stack([p.q for p in points]),
        v=np.stack([p.v for p in points]),
        stability=np.array([int(p.assessment.stability) for p in points]),
        index=np.array([int(p.assessment.index) for p in points]),
        unstable=np.array([int(p.assessment.unstable) for p in points]),
        special=tuple(line.special),
        ended=line.ended,
        coordinates=tuple(curve.case.system.coordinates),
    )
