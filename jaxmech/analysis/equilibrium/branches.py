"""The result of `continuation`: branches of equilibria and their special points."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxmech.analysis.equilibrium.assessment import Stability
from jaxmech.analysis.states import Numbers


class SpecialPoint(NamedTuple):
    """A fold, a branch point or a Hopf point of a branch.

    Found by `continuation`.

    Attributes:
        kind: "fold" (the parameter turns back), "branch point" (another branch crosses) or "Hopf"
            (a pair of eigenvalues crosses the imaginary axis).
        value: value of the parameter.
        q: coordinates, shape (n,).
        behind: index of the point of the branch after which it lies.
    """

    kind: str
    value: float
    q: Numbers
    behind: int


@dataclass(frozen=True, repr=False)
class Branch:
    """Equilibria along one curve of solutions.

    Attributes:
        parameter: name of the parameter.
        values: values of the parameter, shape (T,).
        q: coordinates, shape (T, n).
        v: velocities, shape (T, n).
        stability: a `Stability` for each point, shape (T,).
        index: number of negative eigenvalues of the projected Hessian, shape (T,).
        unstable: number of eigenvalues with a positive real part, shape (T,).
        special: folds, branch points and Hopf points in the order of the branch.
        ended: reason for its end: "range", "most" points, or "no convergence".
        coordinates: names of the coordinates.
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
    """The result of `continuation`: the branch through the guess, then those that cross it."""

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
