"""The information of a fit: the directions of parameter space that change its residuals.

The information H = J^T J of a fit has the units of its parameters, so neither its eigenvalues nor
its rank mean anything as they stand. Scaled to a unit diagonal,

    U = E H E,    E = diag(H)^-1/2,

it is the matrix of the cosines between the columns of J: free of units, and, up to a factor p, as
well conditioned as any diagonal scaling can make it (van der Sluis 1969). An eigenvector of U
with the eigenvalue zero is a change of the parameters that leaves the residuals as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxmech.identify.data.recording import Recording
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import not_one_of

LOST = 1e4  # largest loss of information by the elimination of initial states


@dataclass(frozen=True, eq=False)
class Information:
    """What the recordings say about the fitted numbers, to second order.

    Attributes:
        total: Gauss-Newton matrix of the numbers, initial states eliminated, shape (p, p).
        by_recording: the information of each recording, shape (R, p, p).
        prior: the part of the information that comes from the prior, shape (p, p).
        scores: gradient of half the sum of squares of each recording, shape (R, p).
        block_covariance: covariance of the numbers from blocks of the recordings, shape (p, p);
            None if the residuals are independent, or too few.
        blocks: number of these blocks.
    """

    total: HostArray
    by_recording: HostArray
    prior: HostArray
    scores: HostArray
    block_covariance: HostArray | None = None
    blocks: int = 0


@dataclass(frozen=True, eq=False)
class Directions:
    """Parameter space split into determined and undetermined directions."""

    names: tuple[str, ...]
    values: HostArray  # (p,)
    scales: HostArray  # size by which a change of each parameter is measured, |value|, (p,)
    information: HostArray  # H, symmetric, (p, p)
    E: HostArray  # the diagonal that scales H, (p,)
    eigenvalues: HostArray  # of U, descending, without those that count as zero, (rank,)
    kept: HostArray  # E w for the eigenvectors w of these, (p, rank)
    null_space: HostArray  # E w for the others: changes without effect on the residuals, (p, r)
    determined: NDArray[np.bool_]  # flags of the parameters without a part in the null space, (p,)
    threshold: float  # cosine up to which a gradient counts as orthogonal to a null direction

    @property
    def rank(self) -> int:
        """The number of independent numbers that the residuals determine."""
        return self.eigenvalues.size

    @property
    def condition(self) -> float:
        """The condition number of the determined part of U."""
        return float(self.eigenvalues[0] / self.eigenvalues[-1]) if self.rank else 1.0

    @property
    def inverse(self) -> HostArray:
        """A generalized inverse of H: the pseudo-inverse of U, scaled back."""
        return (self.kept / self.eigenvalues) @ self.kept.T

    def errors(self, covariance: HostArray) -> HostArray:
        """The standard errors (p,) of a covariance (p, p), infinite where not determined."""
        return np.where(self.determined, np.sqrt(np.maximum(np.diag(covariance), 0.0)), np.inf)

    def notices(self, gradient: ArrayLike) -> bool:
        """Whether a function of the parameters with this gradient (p,) is determined."""
        g = np.asarray(gradient, float)
        size = np.linalg.norm(g * self.E)
        return bool(np.linalg.norm(g @ self.null_space) <= self.threshold * size)

    def without(self, name: str) -> "Directions":
        """The same with one parameter known."""
        keep = np.arange(len(self.names)) != index_of(name, self.names)
        return directions(
            list(compress(self.names, keep)),
            self.values[keep],
            self.information[np.ix_(keep, keep)],
            scales=self.scales[keep],
            tolerance=self.threshold**2,
        )


def directions(
    names: Sequence[str],
    values: ArrayLike,
    information: ArrayLike,
    *,
    scales: ArrayLike | None = None,  # in place of |value|, where they are not zero
    tolerance: float | None = None,  # eigenvalue, relative to the largest, that counts as zero
) -> Directions:
    """Split parameter space by the information (p, p) of a fit."""
    p = len(names)
    values, H = np.asarray(values, float), np.asarray(information)
    if not np.isfinite(H).all():
        raise ValueError(
            "Argument `information` must be finite, but is not: the fit ended where its residuals "
            "have no derivative."
        )
    H = (H + H.T) / 2
    units = np.zeros(p) if scales is None else np.abs(np.asarray(scales, float))
    scales = np.where(units > 0, units, np.abs(values))
    eps = float(np.finfo(H.dtype).eps)
    # the round-off of J^T J is p eps of its diagonal before initial states were eliminated
    tolerance = LOST * p * eps if tolerance is None else tolerance
    effective = _effective(np.diag(H), scales, p * eps)
    scales = np.where(scales > 0, scales, 1.0)
    E = np.where(effective, 1 / np.sqrt(np.where(effective, np.diag(H), 1.0)), scales)
    U = np.where(effective[:, None] & effective, H * E * E[:, None], 0.0)
    eigenvalues, vectors = np.linalg.eigh(U)
    largest = eigenvalues.max(initial=0.0)
    if eigenvalues.min(initial=0.0) < -100 * tolerance * max(largest, 1.0):
        raise _indefinite(f"smallest eigenvalue with a unit diagonal is {eigenvalues.min():.2g}")
    keep = eigenvalues > tolerance * largest
    null = vectors[:, ~keep]
    return Directions(
        names=tuple(names),
        values=values,
        scales=scales,
        information=H,
        E=E,
        eigenvalues=eigenvalues[keep][::-1],
        kept=E[:, None] * vectors[:, keep][:, ::-1],
        null_space=E[:, None] * null,
        determined=np.linalg.norm(null, axis=1) <= np.sqrt(tolerance),
        threshold=float(np.sqrt(tolerance)),
    )


def index_of(name: str, names: Sequence[str]) -> int:
    """The index of a parameter, or an error that suggests the nearest name."""
    if name not in names:
        message = not_one_of(name, names, "a parameter that was fitted")
        raise ValueError(f"Argument `name` must name a parameter, but {name!r} {message}.")
    return list(names).index(name)


def percent(share: float) -> str:
    """A share as a percentage in two digits, from 100 % on without an exponent."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _effective(diagonal: HostArray, scales: HostArray, tolerance: float) -> NDArray[np.bool_]:
    """Flags of the parameters whose change by 100 % changes residuals by more than round-off."""
    effects = diagonal * scales**2
    # a parameter of value zero has no scale to compare with: any effect counts
    least = np.where(scales > 0, tolerance * np.abs(effects).max(initial=0.0), 0.0)
    if np.any(effects < -100 * least):
        raise _indefinite(f"diagonal has the entry {diagonal.min():.2g}")
    return (diagonal > 0) & (effects >= least)


def _indefinite(defect: str) -> ValueError:
    return ValueError(
        f"Argument `information` must be positive semidefinite, but its {defect}; give J^T J of "
        "the residuals."
    )


CHANCE = 1e-3  # probability with which independent residuals are called correlated
LEAST = 0.1  # correlation, over all lags, that makes a difference to the intervals
_LAGS = 10
_PER_LAG = 5  # samples of a sensor, in the longest recording, for each lag


class Autocorrelation(NamedTuple):
    """Residuals that are not independent."""

    neighbours: float  # correlation of neighbours in time
    chance: float  # probability of such correlations between independent residuals


def correlation(
    residuals: Sequence[HostArray], recordings: Sequence[Recording]
) -> Autocorrelation | None:
    """The correlation of residuals (T, d) in time, None if it may be chance or is negligible."""
    from scipy.special import chdtrc  # slow to import, and seldom needed

    totals, degrees, strongest, neighbours = np.zeros(2), np.zeros(2), 0.0, 0.0
    for columns in samples_of_sensors(residuals, recordings):
        values = np.concatenate(columns)
        size = np.abs(values).max(initial=0.0)
        if not (size > 0 and np.isfinite(size)):
            continue
        squares, terms = ((values / size) ** 2).sum(), []
        longest = max(len(x) for x in columns)
        for lag in range(1, 1 + max(1, min(_LAGS, longest // _PER_LAG))):
            products = np.concatenate([x[lag:] / size * (x[:-lag] / size) for x in columns])
            terms.append((float(products.sum() / squares), products.size))
        r = np.array([r for r, count in terms if count])
        counts = np.array([count for _, count in terms if count])
        if not r.size:
            continue
        terms_of_Q = values.size**2 / counts * r**2
        totals += terms_of_Q[0], terms_of_Q.sum()
        degrees += 1, r.size
        if (total := float((r**2).sum())) > strongest:
            strongest, neighbours = total, float(r[0])
    chance = min(1.0, 2 * float(chdtrc(degrees, totals).min())) if degrees.any() else 1.0
    return Autocorrelation(neighbours, chance) if chance < CHANCE and strongest > LEAST**2 else None


def samples_of_sensors(
    residuals: Sequence[HostArray], recordings: Sequence[Recording]
) -> list[list[HostArray]]:
    """Of each sensor its residuals in each recording, without the times at which it has no sample.

    A sensor may be slower than others, and than the times of a recording.
    """
    pairs = zip(residuals, recordings, strict=True)
    samples = [np.where(recording.measured, r, np.nan).T for r, recording in pairs]
    return [[x[np.isfinite(x)] for x in columns] for columns in zip(*samples, strict=True)]
