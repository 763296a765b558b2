"""`continuation`: equilibria over a parameter, through folds and past branch points.

Pseudo-arclength continuation (Keller 1977): the parameter is one of the unknowns, and the added
equation is that of a plane perpendicular to the secant of the last two points. So a fold, where the
parameter turns back, is a regular point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.equilibrium.branches import Bifurcation, Branch, SpecialPoint
from jaxmech.analysis.equilibrium.curve import Curve, PointOnCurve, all_numbers, place_of
from jaxmech.analysis.equilibrium.equilibrium import equilibrium, prepared
from jaxmech.analysis.stability.freedom import freedom_at
from jaxmech.analysis.stability.linearize import NOTHING, linearized
from jaxmech.analysis.states import Numbers, State
from jaxmech.analysis.symmetry.symmetries import Symmetries
from jaxmech.system import Params, System
from jaxmech.utils.checks import (
    require_finite,
    require_positive,
    require_positive_integer,
    with_standard_promotion,
)
from jaxmech.velocities.quasi import IN_RATES, require_plain_velocities

HALVINGS = 40  # bisections of an interval that holds a branch point
ASIDE = 1e-3  # relative to an interval: distance of the points between which the parameter may turn
SMALLEST = 1e-6  # step, relative to the first one, below which a branch ends


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
    """Follow equilibria, or steady motions, while one parameter changes.

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
            parameter and to the largest |q| so far, at first at least its change over the range.
        most: largest number of points of a branch.
        switch: whether to follow branches that cross the first one.

    Raises:
        TypeError: if `system` is not a `System`.
        ValueError: if an argument is invalid, or there is no equilibrium at the first value.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> def hoop(q, v, t, p):  # a bead on a hoop of radius 1 that turns at the rate w
        ...     return (v[0] ** 2 + (p["w"] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])
        >>> bead = jm.System(hoop, coordinates=("angle",))
        >>> jm.analysis.continuation(bead, [0.0], {"w": 2.0}, "w", 5.0, step=0.1)
        Bifurcation: 3 branches
          Branch: 6 equilibria, w from 2 to 5, STABLE and UNSTABLE; ends: range
            branch point at w = 3.13209195
          Branch: 8 equilibria, w from 3.13209 to 5, STABLE; ends: range
          Branch: 8 equilibria, w from 3.13209 to 5, STABLE; ends: range
    """
    require_finite(to=to)
    require_positive("step", step)
    require_positive_integer("most", most, "such as 300")
    case = prepared(system, q, params, t, fixed, v, symmetries)
    require_plain_velocities(system.velocities, "Argument `system`", IN_RATES)
    symmetric = None if v is None else case.theta[3]
    start_equilibrium = equilibrium(system, q, params, t=t, fixed=fixed, v=v, symmetries=symmetric)
    place = place_of(case, params, parameter, fixed)
    first = float(all_numbers(case.theta)[0][place])
    if float(to) == first:
        raise ValueError(f"Argument `to` must differ from the first value of {parameter}, {first}.")
    params_, _, t_, _ = case.theta
    freedom = freedom_at(
        case.setup.system, State(start_equilibrium.q, start_equilibrium.v, t_, params_)
    )
    begin = PointOnCurve(
        np.asarray(start_equilibrium.q),
        np.asarray(start_equilibrium.v),
        first,
        start_equilibrium.assessment,
    )
    curve = Curve(case, place, freedom, first, float(to), 1.0)
    ahead = np.zeros(system.n + 1)
    ahead[-1] = 1.0
    near = curve.at(curve.scaled(begin) + ASIDE * step * ahead, ahead)
    if near is not None:
        ahead = (curve.scaled(near) - curve.scaled(begin)) / (ASIDE * step)  # the tangent
    sizes = np.abs([*begin.q, *ahead[:-1]])  # of q, and of its change over the range
    curve = replace(curve, size=float(sizes.max()) if sizes.max() > 1e-9 else 1.0)
    ahead[:-1] /= curve.size
    main = _follow(curve, begin, ahead / np.linalg.norm(ahead), step, most)
    branches = [_branch(curve, main, parameter)]
    for special in main.special if switch else ():
        if special.kind == "branch point":
            lines = _crossing(curve, main, special, step, most)
            branches += [_branch(curve, line, parameter) for line in lines]
    return Bifurcation(tuple(branches))


class _Line(NamedTuple):
    points: list[PointOnCurve]
    special: list[SpecialPoint]
    ended: str


def _follow(
    curve: Curve, begin: PointOnCurve, direction: Numbers, step: float, max_points: int
) -> _Line:
    """Points from `begin` on in a direction, until the parameter leaves its range."""
    points, special, length, ended = [begin], list[SpecialPoint](), step, "most"
    while len(points) < max_points:
        # Steps grow with q, whose size at the start may be accidental.
        larger = max(1.0, float(np.abs(points[-1].q).max()) / curve.size)
        curve = replace(curve, size=larger * curve.size)
        direction = np.append(direction[:-1] / larger, direction[-1])
        direction = direction / np.linalg.norm(direction)
        position = curve.scaled(points[-1])
        new = curve.at(position + length * direction, direction)
        moved = None if new is None else curve.scaled(new) - position
        distance = 0.0 if moved is None else float(np.linalg.norm(moved))
        straight = moved is not None and moved @ direction > 0.9 * distance
        # A turn by more than 25 degrees, or a very short step, may have jumped to another branch.
        if new is None or moved is None or not straight or distance < 0.1 * length:
            length /= 2
            if length < SMALLEST * step:
                ended = "no convergence"
                break
            continue
        part = curve.scaled(new)[-1]
        if not -1e-9 <= part <= 1 + 1e-9:
            # The last point is on the edge of the range: the plane is one of constant parameter.
            level = np.zeros_like(direction)
            level[-1] = 1.0
            edge = position + moved * ((float(part > 1) - position[-1]) / (part - position[-1]))
            new, ended = curve.at(edge, level), "range"
        if new is not None:
            special += _between(curve, points, new)
            points.append(new)
        if ended == "range":
            break
        direction = moved / distance
        length = min(1.5 * length, 4 * step)
    return _Line(points, special, ended)


def _between(curve: Curve, points: list[PointOnCurve], new: PointOnCurve) -> list[SpecialPoint]:
    """Special points between the last point of a branch and a new one."""
    previous = points[-1]
    position = curve.scaled(previous)
    length = float(np.linalg.norm(curve.scaled(new) - position))
    along = (curve.scaled(new) - position) / length
    specials = list[SpecialPoint]()

    def point_at(s: float) -> PointOnCurve | None:
        return curve.at(position + s * along, along)

    if len(points) == 1 and previous.assessment.zeros:
        return specials
    start, first = 0.0, previous
    while first.counts != new.counts:
        low, high, place = start, length, new
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            point = point_at(middle)
            if point is None:
                break
            low, high = (middle, high) if point.counts == first.counts else (low, middle)
            place = point
        start = high + ASIDE * length
        sides = point_at(low - ASIDE * length), point_at(start) if start < length else new
        following = sides[1] or new
        # Stability changes by a real eigenvalue at folds and branch points, by a pair at Hopf
        # points.
        changes = first.counts[0] != following.counts[0], first.counts[1] - following.counts[1]
        kind = "branch point" if changes[0] or changes[1] % 2 else "Hopf"
        if kind == "branch point" and sides[0] and sides[1]:
            turns = [side.value - place.value for side in sides if side]
            kind = "fold" if turns[0] * turns[1] > 0 else kind
        specials.append(SpecialPoint(kind, place.value, place.q, len(points) - 1))
        first = following
    return specials


def _crossing(
    curve: Curve, main: _Line, special: SpecialPoint, step: float, max_points: int
) -> list[_Line]:
    """The branches that leave a branch point on both sides."""
    case = curve.case
    points = main.points
    along = curve.scaled(points[special.behind + 1]) - curve.scaled(points[special.behind])
    along = along / np.linalg.norm(along)
    numbers, with_numbers = all_numbers(case.theta)
    params, _, t, symmetries = with_numbers(numbers.at[curve.where].set(special.value))
    q, v = jnp.asarray(special.q), jnp.asarray(points[special.behind].v)
    W = jnp.tensordot(symmetries.along(q, v), symmetries.W, 1)
    lin = linearized(case.setup.system, curve.freedom, NOTHING, State(q, v, t, params), W)
    if lin.reduced.K.shape[0] != lin.reduced.K.shape[1]:
        return []
    # Two branches cross where the stiffness is singular. Its null vector, minus its component along
    # this branch, leads to the other one.
    flat = np.asarray(lin.reduced.Z) @ np.linalg.svd(np.asarray(lin.reduced.K))[2][-1]
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
        line = _follow(curve, first, away / np.linalg.norm(away), step, max_points)
        start = begin._replace(assessment=first.assessment)
        lines.append(_Line([start, *line.points], line.special, line.ended))
    return lines


def _branch(curve: Curve, line: _Line, parameter: str) -> Branch:
    points = line.points
    return Branch(
        parameter=parameter,
        values=np.array([p.value for p in points]),
        q=np.stack([p.q for p in points]),
        v=np.stack([p.v for p in points]),
        stability=np.array([int(p.assessment.stability) for p in points]),
        index=np.array([p.counts[0] for p in points]),
        unstable=np.array([p.counts[1] for p in points]),
        special=tuple(line.special),
        ended=line.ended,
        coordinates=tuple(curve.case.setup.system.coordinates),
    )
