"""`Identifiability`: determined and undetermined parameters, and possible remedies.

All of it follows from the information of the fit, to first order, at the fitted values. Changes of
parameters without any effect on the residuals are not cured by more data of the same kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, compress
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxmech.identify.inference.uncertainty import directions
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import titled_lines

_NEGLIGIBLE = 1e-9  # share of a null vector up to which a component counts as round-off
_MOST = 5000  # subsets to be tried


@dataclass(frozen=True, eq=False)
class Direction:
    """A change of several parameters together that leaves all residuals as they are.

    Attributes:
        names: of all parameters.
        changes: relative to the values, in multiples of the smallest change where these are small
            integers, otherwise of the largest, (p,).
    """

    names: tuple[str, ...]
    changes: HostArray

    def __str__(self) -> str:
        pairs = zip(self.names, self.changes, strict=True)
        changes = ", ".join(f"{name} {x:+.3g} %" for name, x in pairs if x)
        return f"{changes} leaves every residual unchanged"


@dataclass(frozen=True, eq=False, repr=False)
class Identifiability:
    """The determined and undetermined parameters; prints itself. A part of a `Fit`.

    Attributes:
        names: names of the p parameters.
        rank: number of determined independent numbers.
        condition: condition number of the determined part of the information, of unit diagonal.
        determined: flags of the parameters that are determined, (p,).
        exact: changes without effect on the residuals, of few parameters each.
        to_fix: a smallest set of parameters that would make all others determined.
    """

    names: tuple[str, ...]
    rank: int
    condition: float
    determined: NDArray[np.bool_]
    exact: tuple[Direction, ...]
    to_fix: tuple[str, ...]

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The parameters that are not determined."""
        return tuple(compress(self.names, ~self.determined))

    def __repr__(self) -> str:
        lines = [("not determined", ", ".join(self.undetermined) or "none")]
        alone = [x for x in self.exact if np.count_nonzero(x.changes) == 1]
        if len(alone) > 1:  # those of single parameters in one line
            idle = [name for x in alone for name in compress(x.names, x.changes)]
            lines.append(("no effect", f"{', '.join(idle)}: no residual depends on them"))
        rest = [x for x in self.exact if len(alone) < 2 or x not in alone]
        lines += [("no effect", str(x)) for x in rest]
        if len(self.to_fix) == 1:
            one = "one of " if self.undetermined[1:] else ""
            prior = f"prior={{{self.to_fix[0]!r}: (mean, sd)}}"
            fix = f"fix {one}{', '.join(self.undetermined)}, or give it a prior: {prior}"
            lines.append(("remedy", fix))
        elif self.to_fix:
            fix = f"{len(self.to_fix)} numbers must come from elsewhere: fix for instance "
            lines.append(("remedy", f"{fix}{', '.join(self.to_fix)}, or give them priors"))
        head = f"Identifiability: {len(self.names)} parameters, rank {self.rank}"
        return "\n".join([f"{head}, condition {self.condition:.2g}", *titled_lines(lines, 16)])


def identifiability(
    names: Sequence[str], values: ArrayLike, information: ArrayLike
) -> Identifiability:
    """Examine what a fit determines, from its information J^T J (p, p) with the prior."""
    spanned = directions(np.asarray(values, float), np.asarray(information, float))
    every = tuple(names)
    relative = spanned.null_space / spanned.scales[:, None]
    exact = tuple(
        Direction(every, z / np.abs(z[z != 0]).min() if _is_simple(z) else z)
        for z in _circuits(relative).T
    )
    to_fix: tuple[str, ...] = ()
    if exact:
        # Pivoting takes the largest relative parts in the null space: then the other parameters
        # depend on the values given to the fixed ones as little as possible.
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(np.linalg.qr(relative)[0].T, pivoting=True, mode="economic")[2]
        to_fix = tuple(every[k] for k in sorted(pivots[: relative.shape[1]]))
    return Identifiability(
        every, spanned.root.shape[1], spanned.condition, spanned.determined, exact, to_fix
    )


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


def _tidy(z: HostArray) -> HostArray:
    """The vector without round-off, its largest component 1 or -1, its first positive."""
    z = np.where(np.abs(z) > _NEGLIGIBLE * np.abs(z).max(), z, 0.0)
    z = z / np.abs(z).max()
    return z * np.sign(z[np.flatnonzero(z)[0]])
