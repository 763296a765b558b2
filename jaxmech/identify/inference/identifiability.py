"""`Identifiability`: determined and undetermined parameters, and possible remedies.

All of it follows from the information of the fit (`directions`), to first order, at the fitted
values. Changes without any effect on the residuals are kept apart from those with an effect below
the noise: only the latter are cured by more data of the same kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, compress
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from jaxmech.identify.inference.information import (
    Directions,
    directions,
    index_of,
    percent,
)
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import titled_lines

_SHOWN = 0.05  # share of the largest change from which a weak direction mentions a parameter


@dataclass(frozen=True, eq=False)
class Direction:
    """A change of several parameters together."""

    names: tuple[str, ...]
    # relative to the scales, usually |value|; in multiples of the smallest change where these are
    # small integers, otherwise of the largest, (p,)
    changes: HostArray
    standard_error: float  # of the number of such steps; infinite where no residual changes

    def __str__(self) -> str:
        exact = np.isinf(self.standard_error)
        least = 0.0 if exact else _SHOWN * np.abs(self.changes).max()
        pairs = zip(self.names, self.changes, strict=True)
        changes = ", ".join(f"{name} {x:+.3g} %" for name, x in pairs if abs(x) > least)
        if exact:
            return f"{changes} leaves every residual unchanged"
        return f"{changes} is known to +- {100 * self.standard_error:.2g} such steps only"


@dataclass(frozen=True, eq=False)
class FixedParameter:
    """The effect of fixing one parameter.

    An entry of the result of `identifiability`.
    """

    name: str
    determined: tuple[str, ...]  # the parameters that become determined by it
    undetermined: tuple[str, ...]  # those that stay undetermined
    standard_errors: HostArray  # of all parameters, zero for the fixed one, (p,)


@dataclass(frozen=True, eq=False, repr=False)
class Identifiability:
    """The determined and undetermined parameters; prints itself.

    The result of `identifiability`, and a part of a `Fit`.
    """

    directions: Directions  # parameter space split by the information
    noise: float  # standard deviation of the weighted residuals
    exact: tuple[Direction, ...]  # changes without effect on the residuals, of few parameters each
    weak: tuple[Direction, ...]  # changes with a relative standard error above `weak_above`

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self.directions.names

    @property
    def rank(self) -> int:
        """The number of determined independent numbers."""
        return self.directions.rank

    @property
    def condition(self) -> float:
        """The condition number of the determined part of the information with a unit diagonal."""
        return self.directions.condition

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The parameters that are not determined."""
        return tuple(compress(self.names, ~self.directions.determined))

    @property
    def standard_errors(self) -> HostArray:
        """Standard errors for independent residuals, shape (p,); infinite where not determined."""
        return self.directions.errors(self.noise**2 * self.directions.inverse)

    @property
    def to_fix(self) -> tuple[str, ...]:
        """A smallest set of parameters that would make all others determined."""
        directions = self.directions
        null = directions.null_space / directions.scales[:, None]
        if not null.shape[1]:
            return ()
        # pivoting takes the largest relative parts in the null space: then the other parameters
        # depend on the values given to the fixed ones as little as possible
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(np.linalg.qr(null)[0].T, pivoting=True, mode="economic")[2]
        return tuple(directions.names[k] for k in sorted(pivots[: null.shape[1]]))

    def if_fixed(self, name: str) -> FixedParameter:
        """The effect of knowing the named parameter on the others, and on their standard errors."""
        directions, k = self.directions, index_of(name, self.names)
        remaining = directions.without(name)
        determined = np.insert(remaining.determined, k, True)
        gained = determined & ~directions.determined & (np.arange(len(determined)) != k)
        errors = np.insert(remaining.errors(self.noise**2 * remaining.inverse), k, 0.0)
        became, stayed = (
            tuple(compress(self.names, selection)) for selection in (gained, ~determined)
        )
        return FixedParameter(name, became, stayed, errors)

    def determined(self, gradient: ArrayLike) -> tuple[bool, float]:
        """Whether a function with a gradient (p,) is determined, and its standard error.

        To first order (the delta method), and as if all residuals were independent.
        """
        g, found = np.asarray(gradient, float), self.directions
        if not found.notices(g):
            return False, np.inf
        return True, float(self.noise * np.sqrt(np.sum((g @ found.kept) ** 2 / found.eigenvalues)))

    def __repr__(self) -> str:
        undetermined = self.undetermined
        lines = [("not determined", ", ".join(undetermined) or "none")]
        alone = [x for x in self.exact if np.count_nonzero(x.changes) == 1]
        if len(alone) > 1:  # those of single parameters in one line
            idle = [name for x in alone for name in compress(x.names, x.changes)]
            lines.append(("no effect", f"{', '.join(idle)}: no residual depends on them"))
        rest = [x for x in self.exact if len(alone) < 2 or x not in alone]
        lines += [("no effect", str(x)) for x in rest] + [("weak", str(x)) for x in self.weak]
        if self.exact:
            gains = [self.if_fixed(name) for name in undetermined]
            for gain in gains:
                if gain.determined:
                    stay = f", {len(gain.undetermined)} stay open" if gain.undetermined else ""
                    known = f"{gain.name}: determines {', '.join(gain.determined)} too{stay}"
                    lines.append(("fixing", known))
            if vain := [gain.name for gain in gains if not gain.determined]:
                stay = f", {len(gains) - 1} stay open" if len(gains) > 1 else ""
                verb = "determine" if vain[1:] else "determines"
                lines.append(("fixing", f"{', '.join(vain)}: {verb} nothing else{stay}"))
        elif self.weak:
            scales = self.directions.scales
            worst = percent(np.max(self.standard_errors / scales))
            for gain in map(self.if_fixed, self.names):
                best = percent(np.max(gain.standard_errors / scales))
                text = f"{gain.name}: largest standard error {best} instead of {worst}"
                lines.append(("fixing", text))
        fix = self.to_fix
        if len(fix) == 1:
            one = "one of " if undetermined[1:] else ""
            prior = f"prior={{{fix[0]!r}: (mean, sd)}}"
            advice = f"fix {one}{', '.join(undetermined)}, or give it a prior: {prior}"
        elif fix:
            advice = f"{len(fix)} numbers must come from elsewhere: fix for instance "
            advice += f"{', '.join(fix)}, or give them priors"
        else:
            advice = "recordings with more motion, less noise, or a prior on one parameter of each"
        lines += [("remedy", advice)] if fix or self.weak else []
        head = f"Identifiability: {len(self.names)} parameters, rank {self.rank}"
        return "\n".join([f"{head}, condition {self.condition:.2g}", *titled_lines(lines, 16)])


def identifiability(
    names: Sequence[str],
    values: ArrayLike,
    information: ArrayLike,
    noise: float | int,
    *,
    weak_above: float | int = 1.0,  # relative standard error from which a direction is weak
    scales: ArrayLike | None = None,
    tolerance: float | None = None,
) -> Identifiability:
    """Examine the parameters that a fit determines, from its information J^T J with the prior."""
    center = directions(names, values, information, scales=scales, tolerance=tolerance)
    relative = center.null_space / center.scales[:, None]
    return Identifiability(
        directions=center,
        noise=float(noise),
        exact=tuple(Direction(center.names, _readable(z), np.inf) for z in _circuits(relative).T),
        weak=tuple(_weak_directions(center, noise, weak_above)),
    )


def _weak_directions(
    directions: Directions, noise: float | int, threshold: float | int
) -> Iterator[Direction]:
    """The axes of the error ellipsoid with a relative standard error above a limit, worst first."""
    null = directions.null_space / directions.scales[:, None]
    # the axes are taken in relative changes, orthogonal to the null space
    basis = np.linalg.qr(np.hstack([null, np.eye(len(directions.names))]))[0][:, null.shape[1] :]
    H = directions.information * directions.scales * directions.scales[:, None]
    eigenvalues, vectors = np.linalg.eigh(basis.T @ H @ basis)
    errors = noise / np.sqrt(np.maximum(eigenvalues, np.finfo(H.dtype).tiny))
    for error, z in zip(errors, (basis @ vectors).T, strict=True):
        if error > threshold:
            changes = _readable(_tidy(z, 1e-12))
            yield Direction(directions.names, changes, float(error / np.linalg.norm(changes)))


def _readable(z: HostArray) -> HostArray:
    """A `tidy` vector in multiples of its smallest component, where these are small integers."""
    return z / np.abs(z[z != 0]).min() if _is_simple(z) else z


_NEGLIGIBLE = 1e-9  # share of a null vector up to which a component counts as round-off
_MOST = 5000  # subsets to be tried


def _circuits(null_space: HostArray) -> HostArray:
    """A basis (p, r) of the space of independent columns (p, r), as sparse as possible."""
    p, r = null_space.shape
    if not r:
        return null_space
    basis = np.linalg.qr(null_space / np.linalg.norm(null_space, axis=0))[0]
    rows = [k for k in range(p) if np.abs(basis[k]).max() > _NEGLIGIBLE]
    vectors = []
    # A vector of an r-dimensional space that is zero in r - 1 given entries is unique in general,
    # so all choices of entries are tried (the vectors are the circuits of the matroid of the rows;
    # Oxley, Matroid Theory, 2011, section 1.1). Where they are too many, one elimination serves.
    if comb(len(rows), r - 1) <= _MOST:
        for zero in combinations(rows, r - 1):
            _, s, vt = np.linalg.svd(basis[list(zero)])
            if np.all(s > 1e-6):
                vectors.append(_tidy(basis @ vt[-1]))
    else:
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(basis.T, pivoting=True, mode="economic")[2][:r]
        vectors = [_tidy(z) for z in (basis @ np.linalg.inv(basis[pivots])).T]
    # few parameters first, then simple ratios, then the first parameters
    vectors.sort(key=lambda z: (np.count_nonzero(z), not _is_simple(z), (z == 0).tolist()))
    chosen: list[HostArray] = []
    for z in vectors:
        unit = np.stack([x / np.linalg.norm(x) for x in (*chosen, z)])
        if len(chosen) < r and np.linalg.matrix_rank(unit, tol=1e-6) == len(unit):
            chosen.append(z)
    return np.transpose(chosen)


def _is_simple(z: HostArray) -> bool:
    """Whether the nonzero numbers are multiples of the smallest by integers up to 9."""
    z = z / np.abs(z[z != 0]).min()
    return bool(np.all(np.abs(z - z.round()) < 1e-6) and np.abs(z).max() < 9.5)


def _tidy(z: HostArray, negligible: float = _NEGLIGIBLE) -> HostArray:
    """The vector without round-off, its largest component 1 or -1, its first positive."""
    z = np.where(np.abs(z) > negligible * np.abs(z).max(), z, 0.0)
    z = z / np.abs(z).max()
    return z * np.sign(z[np.flatnonzero(z)[0]])
