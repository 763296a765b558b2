"""`equilibria`: the distinct equilibria reached from many random starts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.equilibrium.equilibrium import equilibrium, solve
from jaxmech.analysis.equilibrium.problem import prepared
from jaxmech.analysis.equilibrium.result import Equilibrium, EquilibriumStatus, Stability
from jaxmech.analysis.symmetries import Symmetries
from jaxmech.system import Params, Subject, System, with_params
from jaxmech.utils.checks import (
    require_finite,
    require_positive_integer,
    require_seed,
    with_standard_promotion,
)

SAME = 1e-6  # relative distance of two starts' results that count as one equilibrium
STEPS = 30  # along a family from one equilibrium to another
LEAST = 0.05  # share of the way that free directions must cover in each step


@dataclass(frozen=True, repr=False)
class Equilibria:
    """Distinct equilibria by increasing energy; it prints itself as a table.

    Attributes:
        found: the equilibria, each an `Equilibrium`.
        energies: v . dL/dv - L of each [J]; at rest the potential energy.
        hits: number of starts that led to each.
        starts: number of starts.
    """

    found: tuple[Equilibrium, ...]
    energies: tuple[float, ...]
    hits: tuple[int, ...]
    starts: int

    def __repr__(self) -> str:
        failed = self.starts - sum(self.hits)
        lines = [f"Equilibria: {len(self.found)} from {self.starts} starts, {failed} without one"]
        for x, energy, hits in zip(self.found, self.energies, self.hits, strict=True):
            pose = ", ".join(
                f"{name} {0.0 if abs(q) < 1e-12 else float(q):.5g}"
                for name, q in list(zip(x.coordinates, np.asarray(x.q), strict=True))[:8]
            )
            pose += ", ..." if len(x.coordinates) > 8 else ""
            verdict = Stability(int(x.stability)).name
            lines.append(f"  {pose}: {verdict}, index {int(x.index)}, {energy:.6g} J, {hits} hits")
        return "\n".join(lines)


@with_standard_promotion
def equilibria(
    system: Subject,
    q: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    fixed: Sequence[str] = (),
    v: Mapping[str, Any] | Any = None,
    symmetries: Symmetries | None = None,
    starts: int = 100,
    spread: Any = 2.0,
    periods: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Equilibria:
    """The distinct equilibria, or steady motions, that many random starts lead to.

    A host function around one batch. That all are found is likely only where each attracts many
    starts: compare `hits`. A family of equilibria along a free direction counts as one.

    Args:
        system: the system, with n coordinates.
        q: coordinates at the center of the starts, also used as the first one, shape (n,).
        params: the parameters.
        t: time [s].
        fixed: as for `equilibrium`.
        v: as for `equilibrium`.
        symmetries: as for `equilibrium`.
        starts: number of starts.
        spread: largest deviation of the coordinates from q, a number or shape (n,).
        periods: periods of named coordinates, such as `{"angle": 2 * pi}`.
        seed: seed of the random starts.

    Raises:
        TypeError: if `system` is not a `System`.
        ValueError: if an argument is invalid, or no start led to an equilibrium.
    """
    require_positive_integer("starts", starts, "such as 100")
    require_seed(seed)
    require_finite(spread=spread)
    if np.any(np.asarray(spread) < 0):
        raise ValueError(f"Argument `spread` must not be negative, but is {spread}.")
    system, params = with_params(system, params)
    cycles = _periods(system, periods or {})
    case = prepared(system, q, params, t, fixed, v, symmetries)
    middle, is_fixed = np.asarray(case.q), np.isin(system.coordinates, fixed)
    away = np.random.default_rng(seed).uniform(-1, 1, (starts, system.n)) * np.asarray(spread)
    away[0], away[:, is_fixed] = 0.0, 0.0
    qs = jnp.asarray(middle + away, case.q.dtype)
    solutions = jax.vmap(lambda q: solve(case.setup, q, case.v, case.theta))(qs)
    good = np.asarray(solutions.status) == EquilibriumStatus.FOUND
    poses = np.asarray(solutions.q)[good]
    if not len(poses):
        raise ValueError(
            f"None of {starts} starts led to an equilibrium; take more `starts` or another "
            "`spread`, or check that there is one."
        )
    symmetric = None if v is None else case.theta[3]

    def equilibrium_near(pose: Any) -> tuple[Equilibrium, float]:
        start = np.where(is_fixed, middle, pose)
        solution = equilibrium(system, start, params, t=t, fixed=fixed, v=v, symmetries=symmetric)
        return solution, float(
            system.dynamics.energy(solution.q, solution.v, jnp.asarray(t, solution.q.dtype), params)
        )

    families = _Families(equilibrium_near, cycles, float(np.max(spread)))
    for pose in poses:
        families.add(pose)
    distinct = sorted(families.distinct, key=lambda x: x.energy)
    return Equilibria(
        tuple(x.found for x in distinct),
        tuple(x.energy for x in distinct),
        tuple(x.hits for x in distinct),
        starts,
    )


@dataclass(eq=False)
class _Distinct:
    """An equilibrium, its energy, and the number of starts that led to it."""

    found: Equilibrium
    energy: float
    hits: int = 0
    poses: list[np.ndarray] = field(default_factory=list)  # coordinates, of a family several


class _Families:
    """The equilibria found so far, those of a family along free directions as one.

    Args:
        at: the equilibrium reached from a pose, and its energy.
        cycles: periods of the coordinates, infinite for most.
        scale: size of the region that the starts fill.
    """

    def __init__(
        self,
        equilibrium_near: Callable[[Any], tuple[Equilibrium, float]],
        cycles: np.ndarray,
        scale: float,
    ) -> None:
        self.at, self.cycles, self.scale = equilibrium_near, cycles, scale
        self.distinct: list[_Distinct] = []

    def add(self, pose: np.ndarray) -> None:
        """Count a start that led to a pose."""
        matches = [x for x in self.distinct if self._same(x.found.q, pose)][:1]
        if not matches:
            new = _Distinct(*self.at(pose))
            matches = [x for x in self.distinct if self._is_one_family(new, x)]
            if not matches:
                matches = [new]
                self.distinct.append(new)
            matches[0].poses.append(np.asarray(new.found.q))
            # What joins two families shows that they are one.
            for duplicate in matches[1:]:
                matches[0].hits += duplicate.hits
                matches[0].poses += duplicate.poses
                self.distinct.remove(duplicate)
        matches[0].hits += 1

    def _way(self, q: Any, pose: Any) -> np.ndarray:
        """The shortest way from a pose to q, without whole periods."""
        difference = np.asarray(q) - np.asarray(pose)
        turns = np.where(np.isfinite(self.cycles), self.cycles, 0.0)
        return difference - turns * np.round(difference / self.cycles)

    def _same(self, q: Any, pose: np.ndarray) -> bool:
        distance = np.abs(self._way(q, pose)).max()
        return bool(distance <= SAME * (self.scale + np.abs(pose).max()))

    def _is_one_family(self, first: _Distinct, second: _Distinct) -> bool:
        """Whether free directions lead from an equilibrium to another one, or to its family."""
        a, b = first.found.assessment, second.found.assessment
        is_alike = (
            np.any(np.asarray(a.free_directions)) and a.index == b.index and a.zeros == b.zeros
        )
        is_alike = is_alike and abs(first.energy - second.energy) <= SAME * (1 + abs(first.energy))
        if not is_alike or not np.allclose(a.growth, b.growth, rtol=1e-5):
            return False
        # Equal energies are not enough: the wells of (x^2 - 1)^2 are two families if y is free.
        middle = first.found
        end = min(second.poses, key=lambda pose: np.abs(self._way(pose, middle.q)).max())
        for _ in range(STEPS):
            if self._same(middle.q, end):
                return True
            difference, free = self._way(end, middle.q), np.asarray(middle.free_directions)
            step = free @ (free.T @ difference)
            if np.abs(step).max() < LEAST * np.abs(difference).max():
                return False
            try:
                middle = self.at(middle.q + step)[0]
            except ValueError:  # no equilibrium in this direction, or a singular pose
                return False
        return False


def _periods(system: System, periods: Mapping[str, float]) -> np.ndarray:
    for name, period in periods.items():
        if name not in system.coordinates or not float(period) > 0:
            raise ValueError(
                f"Argument `periods` must give positive numbers for names of coordinates, but has "
                f"{name!r}: {period}; the coordinates are {', '.join(system.coordinates)}."
            )
    return np.array([float(periods.get(name, np.inf)) for name in system.coordinates])
