"""Standard errors and intervals of a fit, from the rows J (K, P) and r (K,) of its last step.

Three assumptions about the residuals give three covariances of the same estimate. With H = J^T J
and, of a group g of rows, H_g = J_g^T J_g, they are

    noise^2 H^-1                           if all residuals are independent ("white noise"),
    (R - 1) / R sum_g d_g d_g^T, a = -1    if only the R recordings are ("by recording"),
    sum_g d_g d_g^T, a = -1/2              if only blocks of consecutive samples are ("by block"),

    d_g = L^-T (I - L^-1 H_g L^-T)^a L^-1 J_g^T r_g,    H = L L^T.

With a = -1, d_g is how far the fit moves without the group: the jackknife (CV3 in MacKinnon,
Nielsen and Webb 2023, J. Econometrics 232). With a = -1/2 the covariance is exact on average for
independent residuals, of which the fit takes its part away (CR2; Bell and McCaffrey 2002, Survey
Methodology 28). G groups have G - 1 degrees of freedom (Cameron and Miller 2015, J. Human Resources
50). A prior counts as one more independent measurement, with its standard deviation.

Nothing of this depends on units: J gets columns of length 1. The eigenvectors of J^T J with the
eigenvalue zero are then changes of the parameters that leave all residuals as they are.

The covariance of a robust fit is that of a least-squares fit with other weights. With psi = w r of
n residuals r in units of the noise, p unknowns and the derivatives J, it is (Huber and Ronchetti,
"Robust Statistics", 2009, section 7.6)

    K^2 [sum psi^2 / (n - p)] / mean(psi')^2 (J^T J)^-1,   K = 1 + p / n var(psi') / mean(psi')^2.

The last round of a fit has J^T W J in place of mean(w) J^T J, and changes of the estimate by
samples left out are those of its normal equations times mean(w) / mean(psi').
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, compress
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxmech.identify.problem import (
    Conditions,
    Point,
    Task,
    column_sizes,
    residual_rows,
    samples,
    unrobust,
)
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import counted, percent, titled_lines

WHITE, BY_RECORDING, BY_BLOCK = "white noise", "by recording", "by block"
_LOST = 1e4  # largest loss of information by the elimination of initial states
_RANK = 1e-10  # eigenvalue of the rows of blocks, relative to the largest, that counts as zero


@dataclass(frozen=True, eq=False)
class Covariance:
    """A covariance of p fitted numbers, and what it assumes of the residuals.

    Attributes:
        kind: "white noise", "by recording" or "by block".
        matrix: of what is determined, (p, p).
        degrees: of freedom of its t distribution; infinite for a normal one.
        assumption: what it assumes, in words.
        values: the numbers, (p,).
        determined: flags of those that are determined, (p,).
    """

    kind: str
    matrix: HostArray
    degrees: float
    assumption: str
    values: HostArray
    determined: NDArray[np.bool_]

    @property
    def errors(self) -> HostArray:
        """Standard errors, (p,); infinite where not determined."""
        squares = np.maximum(np.diag(self.matrix), 0.0)
        return np.where(self.determined, np.sqrt(squares), np.inf)

    @property
    def correlation(self) -> HostArray:
        """The correlations, (p, p); NaN where a number is not determined."""
        sd = np.where(self.determined & (self.errors > 0), self.errors, np.nan)
        correlation = np.clip(self.matrix / sd / sd[:, None], -1.0, 1.0)
        np.fill_diagonal(correlation, np.where(np.isnan(sd), np.nan, 1.0))
        return correlation

    def interval(self, level: float = 0.95) -> HostArray:
        """Confidence intervals at a level, (p, 2)."""
        from scipy.special import ndtri, stdtrit  # slow to import, and seldom needed

        if not 0 < level < 1:
            raise ValueError(f"Argument `level` must lie between 0 and 1, but is {level:g}.")
        share = (1 + level) / 2
        t = float(ndtri(share) if np.isinf(self.degrees) else stdtrit(self.degrees, share))
        return self.values[:, None] + self.errors[:, None] * t * np.array([-1.0, 1.0])


@dataclass(frozen=True, eq=False, repr=False)
class Uncertainty:
    """The covariances of fitted parameters; prints itself as a table.

    A part of a `Fit`, the result of `fit`. `uncertainty["by block"]` is the `Covariance` of a kind:
    "white noise"; "by recording", which needs several recordings; or "by block", which is there
    where residuals are correlated in time.

    Attributes:
        names: names of the p fitted numbers.
        covariances: all of them, the one to rely on first.
        null_space: changes of the numbers that leave all residuals as they are, (p, r).
        units: changes of the single numbers by which residuals move by one, (p,).
        recordings: their number.
    """

    names: tuple[str, ...]
    covariances: tuple[Covariance, ...]
    null_space: HostArray
    units: HostArray
    recordings: int

    def __getitem__(self, kind: str) -> Covariance:
        for covariance in self.covariances:
            if covariance.kind == kind:
                return covariance
        kinds = tuple(covariance.kind for covariance in self.covariances)
        raise KeyError(f"The kind of a covariance must be one of {kinds}, but is {kind!r}.")

    @property
    def values(self) -> HostArray:
        """The fitted numbers, (p,)."""
        return self.covariances[0].values

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Flags of the determined numbers, (p,); the others have infinite errors."""
        return self.covariances[0].determined

    @property
    def standard_errors(self) -> HostArray:
        """Those for independent residuals, (p,); infinite where not determined."""
        return self[WHITE].errors

    def reliable_interval(self, level: float = 0.95) -> HostArray:
        """The intervals of the first covariance, (p, 2): where residuals are correlated, a robust.

        They are by recording if there are enough recordings, else by block if there are blocks.
        """
        return self.covariances[0].interval(level)

    def of(self, gradient: ArrayLike, kind: str = WHITE) -> float:
        """Standard error of a function with a gradient (p,), to first order (the delta method).

        Infinite where the function is not determined.
        """
        g = np.asarray(gradient, float)
        along, size = np.linalg.norm(g @ self.null_space), np.linalg.norm(g * self.units)
        if along > np.sqrt(tolerance(len(g))) * size:
            return float("inf")
        return float(np.sqrt(max(float(g @ self[kind].matrix @ g), 0.0)))

    def __repr__(self) -> str:
        width = max([14, *(len(name) + 2 for name in self.names)])
        # white noise and one other, the one to rely on first
        robust = next((x for x in self.covariances if x.kind != WHITE), None)
        shown = [x for x in self.covariances if x.kind == WHITE or x is robust]
        notes = [f"  {x.kind}: {x.assumption}" for x in shown]
        titles = [x.kind for x in shown]
        if robust is None:
            verb = "is" if self.recordings == 1 else "are"
            numbers = counted(len(self.names) - self.null_space.shape[1], "determined number")
            few = f"{counted(self.recordings, 'recording')} {verb} too few for {numbers}"
            titles.append(BY_RECORDING)
            notes.append(f"  {BY_RECORDING}: not known; {few}")
        head = (
            f"{counted(len(self.names), 'parameter')}, {self.determined.sum()} of them determined"
        )
        lines = [
            f"Uncertainty: {head}; {counted(self.recordings, 'recording')}; 95 % intervals",
            f"  {'':<{width}}{'value':>12}" + "".join(f"{title:>22}" for title in titles),
        ]
        halves = [np.ptp(x.interval(), axis=1) / 2 for x in shown]
        for k, name in enumerate(self.names):
            value = self.values[k]
            cells = f"{'not determined':>22}"
            if self.determined[k]:
                cells = ""
                for half in (x[k] for x in halves):
                    share = f"({percent(half / abs(value))})" if value else ""
                    share = share if len(share) < 10 else share.replace(" ", "")  # one stays before
                    cells += f"{f'+- {half:.2g}':>12}{share:>10}"
                cells += "" if robust else f"{'-':>22}"
            lines.append(f"  {name:<{width}}{value:>12.6g}{cells}")
        return "\n".join([*lines, *notes])


def uncertainty(
    names: Sequence[str], values: ArrayLike, J: HostArray, r: HostArray, recording: HostArray,
    blocks: Sequence[tuple[HostArray, HostArray]] = (), *, noise: float = 1.0,
    degrees: float | int = np.inf, factor: float = 1.0, correlated: bool = False,
) -> Uncertainty:  # fmt: skip
    """The uncertainty of a fit.

    Args:
        names: of its p numbers.
        values: of these, (p,).
        J: derivatives of all residuals by these numbers and, behind them, by others, (K, P).
        r: the residuals, (K,).
        recording: index of the recording of each, -1 for a prior, (K,).
        blocks: the same J and r of each block of consecutive samples.
        noise: standard deviation of a residual; 1 for trusted weights.
        degrees: residuals less everything fitted; infinite for trusted weights.
        factor: on changes of the estimate by groups of residuals, of a robust loss.
        correlated: whether residuals are correlated in time, so that white noise comes last.
    """
    values, W = np.asarray(values, float), eliminated(J, len(names))
    spanned = directions(values, W.T @ W)
    root, numbers = spanned.root, np.unique(recording[recording >= 0])
    prior = root @ (W[recording < 0] @ root).T
    added = prior @ prior.T  # by the priors, to all covariances; noise^2 H^-1 is of the rest of H
    doubt = "too small, since they are not" if correlated else "too small where they are not"
    kinds = [
        (WHITE, noise**2 * (root @ root.T - added), float(degrees),
         f"as if all residuals were independent; {doubt}")
    ]  # fmt: skip

    def group(kind: str, moves: Any, share: float, groups: str) -> None:
        spread, count = factor * np.stack(moves)[:, : len(names)], len(moves)
        text = f"{groups}; t distribution with {counted(count - 1, 'degree')} of freedom"
        # What hardly any sample depends on moves without bounds.
        with np.errstate(over="ignore", invalid="ignore"):
            matrix = share * spread.T @ spread
        matrix = np.where(np.isnan(matrix), np.inf, matrix)
        kinds.append((kind, matrix, float(count - 1), f"as if only {text}"))

    parts = [recording == k for k in numbers]
    moves, known = _moves(root, ((W[part], r[part]) for part in parts), -1.0)
    if len(numbers) > 1 and known:
        share = (len(numbers) - 1) / len(numbers)
        group(BY_RECORDING, moves, share, "the recordings were")
    if blocks:  # which share the initial states, that are not eliminated therefore
        sizes = column_sizes(J)
        squares, axes = np.linalg.eigh((J / sizes).T @ (J / sizes))
        kept = squares > _RANK * squares.max(initial=0.0)
        root = axes[:, kept] / np.sqrt(squares[kept]) / sizes[:, None]
        moves, _ = _moves(root, blocks, -0.5)
        group(BY_BLOCK, moves, 1.0, f"{len(blocks)} blocks of consecutive samples were")
    covariances = [
        Covariance(kind, matrix + added, freedom, text, values, spanned.determined)
        for kind, matrix, freedom, text in kinds
    ]
    order = (*covariances[1:], covariances[0]) if correlated else tuple(covariances)
    return Uncertainty(tuple(names), order, spanned.null_space, spanned.units, len(numbers))


def _moves(
    root: HostArray, groups: Iterable[tuple[HostArray, HostArray]], power: float
) -> tuple[list[HostArray], bool]:
    """How far the estimate moves by each group, and whether the others determine it alone."""
    moves, known = [], True
    for J, r in groups:
        unit = J @ root
        left, axes = np.linalg.eigh(np.eye(unit.shape[1]) - unit.T @ unit)
        # What nothing but this group tells has no residuals there.
        is_known = left > _RANK
        axes, known = axes[:, is_known], known and bool(is_known.all())
        moves.append(root @ (axes @ (left[is_known] ** power * (axes.T @ (unit.T @ r)))))
    return moves, known


def eliminated(J: HostArray, p: int) -> HostArray:
    """The rows (K, p) of the first p unknowns where the others follow them: J_p - J_u J_u^+ J_p.

    Their square is the Schur complement of J^T J, without the round-off of squaring first.
    """
    W, others = J[:, :p], J[:, p:]
    sizes = np.linalg.norm(others, axis=0)
    scaled = others[:, sizes > 0] / sizes[sizes > 0]
    if not scaled.size:
        return W
    from scipy.linalg import qr  # slow to import, and seldom needed

    Q, R, _ = qr(scaled, mode="economic", pivoting=True)
    Q = Q[:, np.abs(np.diag(R)) > 1e-9]  # the share of a column beyond the others
    return np.asarray(W - Q @ (Q.T @ W))


class Directions(NamedTuple):
    """The determined and undetermined directions of parameters."""

    scales: HostArray  # size by which a change of each parameter is measured, |value|, (p,)
    units: HostArray  # changes of the single parameters by which residuals move by one, (p,)
    root: HostArray  # a root of the inverse of the information, of what is determined, (p, rank)
    null_space: HostArray  # changes without effect on the residuals, (p, r)
    determined: NDArray[np.bool_]  # flags of parameters without a part in the null space, (p,)
    condition: float  # of the determined part of the information with a unit diagonal


def tolerance(p: int) -> float:
    """The eigenvalue, relative to the largest of p, up to which one counts as zero.

    The round-off of J^T J is p eps of its diagonal before initial states were eliminated.
    """
    return _LOST * p * float(np.finfo(float).eps)


def directions(values: HostArray, information: HostArray) -> Directions:
    """Split the space of parameters (p,) by the information J^T J (p, p) of a fit.

    With a unit diagonal it is, up to a factor p, as well conditioned as any diagonal scaling can
    make it (van der Sluis 1969).
    """
    if not np.isfinite(information).all():
        raise ValueError(
            "The information of a fit must be finite, but is not: it ended where its residuals "
            "have no derivative."
        )
    H, p = (information + information.T) / 2, len(values)
    diagonal, eps = np.diag(H), float(np.finfo(float).eps)
    scales = np.abs(values)
    # A change by 100 % has an effect if it is more than round-off of the largest effect. A value of
    # zero has no scale to compare with: any effect counts.
    effects = diagonal * scales**2
    effective = effects >= np.where(scales > 0, p * eps * effects.max(initial=0.0), 0.0)
    effective &= diagonal > 0
    scales = np.where(scales > 0, scales, 1.0)
    E = np.where(effective, 1 / np.sqrt(np.where(effective, diagonal, 1.0)), scales)
    U = np.where(effective[:, None] & effective, H * E * E[:, None], 0.0)
    eigenvalues, vectors = np.linalg.eigh(U)
    kept = eigenvalues > tolerance(p) * eigenvalues.max(initial=0.0)
    null, known = vectors[:, ~kept], eigenvalues[kept]
    determined = np.linalg.norm(null, axis=1) <= np.sqrt(tolerance(p))
    condition = float(known[-1] / known[0]) if known.size else 1.0
    root = E[:, None] * vectors[:, kept] / np.sqrt(known)
    return Directions(scales, E, root, E[:, None] * null, determined, condition)


_ENOUGH = 10  # samples of a sensor with moments of its own


def assessed(
    task: Task, at: Point, conditions: Conditions, *, noise: float, correlated: bool
) -> tuple[Uncertainty, HostArray]:
    """The uncertainty of a fit, and its information J^T J (p, p), initial states eliminated.

    Args:
        task: the fit.
        at: its end.
        conditions: those of the last round.
        noise: standard deviation of a residual; 1 for trusted weights.
        correlated: whether residuals are correlated in time, so that blocks of them are needed.
    """
    # Conditions with which J^T J is the inverse of the covariance, and a factor on the scores.
    factor = 1.0
    if task.loss is not None:
        seen, (r, _) = task.seen, samples(at, unrobust(conditions))
        weight, slope = task.loss.weight(r), task.loss.slope(r)
        share = min(task.unknowns / seen.sum(), 0.5)

        def moments(chosen: np.ndarray) -> tuple[float, float]:
            w, by_r = weight[chosen], slope[chosen]
            mean = max(float(by_r.mean()), 0.05)
            K = 1 + share * float(by_r.var()) / mean**2
            squares = float(((w * r[chosen]) ** 2).mean()) / (1 - share)
            return np.sqrt(squares * w.mean()) * K / mean, float(w.mean()) / mean

        size, factor = moments(seen)
        factors = np.full(r.shape[2], size)
        for j in np.flatnonzero(seen.sum((0, 1)) >= _ENOUGH):
            factors[j] = moments(seen & (np.arange(r.shape[2]) == j))[0]
        factors = np.where(factors > 0, factors, 1.0)
        conditions = replace(conditions, sensor_weight=conditions.sensor_weight / factors)

    names = task.problem.layout.names
    rows, p = residual_rows(task, at, conditions), len(names)
    by_numbers = np.eye(rows.jacobian.shape[1])
    by_z = np.asarray(at.by_z, float)
    sizes = column_sizes(by_z)
    by_numbers[:p, :p] = np.linalg.pinv(by_z / sizes) / sizes[:, None]
    J = rows.jacobian @ by_numbers
    parts = []
    if correlated:
        values, slopes = samples(at, conditions)
        for k, times in block_times(values, task.seen):
            by_segment = slopes[k][:, times].reshape(slopes.shape[1], -1).T
            by_unknowns = by_segment @ (at.map_of(k, task.data) @ by_numbers)
            parts.append((by_unknowns, values[k, times].ravel()))
        parts = parts if len(parts) >= _FEWEST else []
    degrees = np.inf if task.weighted else float(task.count - task.unknowns)
    result = uncertainty(
        names, at.numbers, J, rows.values, rows.recording, parts, noise=noise, degrees=degrees,
        factor=factor, correlated=correlated,
    )  # fmt: skip
    W = eliminated(J, p)
    return result, W.T @ W


_MOST, _FEWEST = 20, 4  # blocks
_LENGTH = 4.0  # shortest block, in integrated correlation times, unless there are the fewest


def block_times(values: np.ndarray, seen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Segments and indices of times of blocks of the residuals (S, T, d) that count."""
    times_seen = [np.flatnonzero(segment.any(1)) for segment in seen]
    total, longest = sum(map(len, times_seen)), 0.0
    for x, mask in zip(np.moveaxis(values, 2, 0), np.moveaxis(seen, 2, 0), strict=True):
        # The integrated correlation time, in samples of the sensor: twice the sum of correlations
        # up to the first that is not positive, less one (Geyer 1992, Statistical Science 7).
        parts = [a[b] for a, b in zip(x, mask, strict=True)]
        squares, length = sum(float(part @ part) for part in parts), 1.0
        for lag in range(1, max(map(len, parts)) if squares > 0 else 1):
            r = sum(float(part[lag:] @ part[:-lag]) for part in parts) / squares
            if r <= 0:
                break
            length += 2 * r
        # A slow sensor has samples at a few of the times only.
        longest = max(longest, length * total / max(int(mask.sum()), 1))
    if _FEWEST * longest > total:
        return
    shortest = min(max(total / _MOST, _LENGTH * longest), total / _FEWEST)
    for k, times in enumerate(times_seen):
        count = int(len(times) / shortest)
        if count:
            yield from ((k, part) for part in np.array_split(times, count))
        elif len(times):
            yield k, times


_NEGLIGIBLE = 1e-9  # share of a null vector up to which a component counts as round-off
_MOST_SUBSETS = 5000  # subsets to be tried


@dataclass(frozen=True, eq=False)
class Direction:
    """A change of several parameters together that leaves all residuals as they are."""

    names: tuple[str, ...]  # of all parameters
    # relative to the values, in multiples of the smallest where these are small integers, otherwise
    # of the largest, (p,)
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
            which = "one of " if self.undetermined[1:] else ""
            prior = f"prior={{{self.to_fix[0]!r}: (mean, sd)}}"
            fix = f"fix {which}{', '.join(self.undetermined)}, or give it a prior: {prior}"
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
    all_names = tuple(names)
    relative = spanned.null_space / spanned.scales[:, None]
    exact = tuple(
        Direction(all_names, z / np.abs(z[z != 0]).min() if _is_simple(z) else z)
        for z in _circuits(relative).T
    )
    to_fix: tuple[str, ...] = ()
    if exact:
        # Pivoting takes the largest relative parts in the null space: then the other parameters
        # depend on the values given to the fixed ones as little as possible.
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(np.linalg.qr(relative)[0].T, pivoting=True, mode="economic")[2]
        to_fix = tuple(all_names[k] for k in sorted(pivots[: relative.shape[1]]))
    return Identifiability(
        all_names, spanned.root.shape[1], spanned.condition, spanned.determined, exact, to_fix
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
    if comb(len(rows), r - 1) <= _MOST_SUBSETS:
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
