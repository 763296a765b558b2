"""Standard errors and intervals of the parameters of a fit, under several assumptions.

The residuals of a motion that is sampled a thousand times a second are correlated over many
samples. The usual covariance, which assumes that all residuals are independent, is then far too
small; others assume only that groups of them are independent of each other: whole recordings, or
blocks of a recording (`normal_equations`).

At the end of a fit, with H = J^T J and, of each of R recordings, the information H_s and the
gradient g_s of half the squared residuals, the covariance of the parameters is

    noise^2 H^-1                                                   if all residuals are independent,
    (R - 1) / R sum_s d_s d_s^T,   d_s = (H - H_s)^-1 g_s          if only the recordings are.

The second is the jackknife (CV3 in MacKinnon, Nielsen and Webb 2023, J. Econometrics 232): d_s is
how far the fit moves without a recording. Its intervals are those of a t distribution with R - 1
degrees of freedom (Cameron and Miller 2015, J. Human Resources 50, sections II.C and VI).

A prior counts as one more independent measurement, with its standard deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxmech.identify.inference.information import (
    Directions,
    Information,
    directions,
    percent,
)
from jaxmech.utils.arrays import HostArray

WHITE, BY_RECORDING, BY_BLOCK = "white noise", "by recording", "by block"


@dataclass(frozen=True, eq=False)
class Covariance:
    """A covariance of the parameters, and what it assumes of the residuals."""

    kind: str  # "white noise", "by recording" or "by block"
    matrix: HostArray  # of what is determined, (p, p)
    degrees: float | int  # of freedom of its t distribution; infinite for a normal one
    assumption: str


@dataclass(frozen=True, eq=False, repr=False)
class Uncertainty:
    """Standard errors and intervals of fitted parameters; prints itself as a table.

    A part of a `Fit`, the result of `fit`. Methods take the `kind` of one of the `covariances`:
    "white noise", "by recording", which needs several recordings, or "by block", which is there
    where residuals are correlated in time.
    """

    directions: Directions  # parameter space split by the information
    covariances: tuple[Covariance, ...]  # the one to rely on first
    recordings: int  # their number

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self.directions.names

    @property
    def values(self) -> HostArray:
        """The values of the parameters, shape (p,)."""
        return self.directions.values

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Flags of the determined parameters, shape (p,); the others have infinite errors."""
        return self.directions.determined

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of covariances that are known, the one to rely on first."""
        return tuple(one.kind for one in self.covariances)

    def of_kind(self, kind: str) -> Covariance:
        """The covariance of a kind."""
        for one in self.covariances:
            if one.kind == kind:
                return one
        raise ValueError(f"Argument `kind` must be one of {self.kinds}, but is {kind!r}.")

    @property
    def covariance(self) -> HostArray:
        """The covariance as if all residuals were independent, (p, p)."""
        return self.of_kind(WHITE).matrix

    @property
    def standard_errors(self) -> HostArray:
        """Standard errors for independent residuals, shape (p,); infinite where not determined."""
        return self.errors()

    def errors(self, kind: str = WHITE) -> HostArray:
        """Standard errors, shape (p,); infinite where not determined."""
        return self.directions.errors(self.of_kind(kind).matrix)

    def correlation(self, kind: str = WHITE) -> HostArray:
        """The correlations, shape (p, p); NaN where a parameter is not determined."""
        sd = self.errors(kind)
        sd = np.where((sd > 0) & self.determined, sd, np.nan)
        correlation = np.clip(self.of_kind(kind).matrix / sd / sd[:, None], -1.0, 1.0)
        np.fill_diagonal(correlation, np.where(np.isnan(sd), np.nan, 1.0))
        return correlation

    def interval(self, level: float | int = 0.95, kind: str = WHITE) -> HostArray:
        """Confidence intervals at a level, shape (p, 2)."""
        from scipy.special import ndtri, stdtrit  # slow to import, and seldom needed

        if not 0 < level < 1:
            raise ValueError(f"Argument `level` must lie between 0 and 1, but is {level:g}.")
        share, degrees = (1 + level) / 2, self.of_kind(kind).degrees
        t = float(ndtri(share) if np.isinf(degrees) else stdtrit(degrees, share))
        return self.values[:, None] + self.errors(kind)[:, None] * t * np.array([-1.0, 1.0])

    def reliable_interval(self, level: float | int = 0.95) -> HostArray:
        """The intervals that are shown first, (p, 2): where residuals are correlated, the robust.

        They are by recording if there are enough recordings, else by block if there are blocks.
        """
        return self.interval(level, self.kinds[0])

    def of(self, gradient: ArrayLike, kind: str = WHITE) -> float:
        """Standard error of a function with a gradient (p,), to first order (the delta method).

        Infinite where the function is not determined.
        """
        g = np.asarray(gradient, float)
        if not self.directions.notices(g):
            return np.inf
        return float(np.sqrt(max(float(g @ self.of_kind(kind).matrix @ g), 0.0)))

    def __repr__(self) -> str:
        count, determined = len(self.names), int(self.determined.sum())
        width = max([14, *(len(name) + 2 for name in self.names)])
        # white noise and one other, the one to rely on first
        robust = next((one for one in self.covariances if one.kind != WHITE), None)
        shown = [one for one in self.covariances if one.kind == WHITE or one is robust]
        notes = [f"  {one.kind}: {one.assumption}" for one in shown]
        titles = [one.kind for one in shown]
        if robust is None:
            verb = "is" if self.recordings == 1 else "are"
            numbers = counted(self.directions.rank, "determined number")
            few = f"{counted(self.recordings, 'recording')} {verb} too few for {numbers}"
            titles.append(BY_RECORDING)
            notes.append(f"  {BY_RECORDING}: not known; {few}")
        head = f"Uncertainty: {counted(count, 'parameter')}, {determined} of them determined"
        lines = [
            f"{head}; {counted(self.recordings, 'recording')}; 95 % intervals",
            f"  {'':<{width}}{'value':>12}" + "".join(f"{title:>22}" for title in titles),
        ]
        ends = [self.interval(kind=one.kind) for one in shown]
        for k, name in enumerate(self.names):
            cells = "".join(_cell(interval[k], self.values[k]) for interval in ends)
            cells += "" if robust else f"{'-':>22}"
            if not self.determined[k]:
                cells = f"{'not determined':>22}"
            lines.append(f"  {name:<{width}}{self.values[k]:>12.6g}{cells}")
        return "\n".join([*lines, *notes])


def uncertainty(
    names: Sequence[str], values: ArrayLike, information: Information, noise: float | int,
    degrees: float | int, *, correlated: bool = False,
) -> Uncertainty:  # fmt: skip
    """The uncertainty of a fit.

    Args:
        names: of its p numbers.
        values: of these, (p,).
        information: what R recordings say about them.
        noise: standard deviation of the weighted residuals; 1 for trusted weights.
        degrees: residuals less everything fitted; infinite for trusted weights.
        correlated: whether residuals are correlated in time, so that white noise comes last.
    """
    spanned = directions(names, values, information.total)
    inverse, count = spanned.inverse, len(information.scores)
    # what the prior adds to all covariances; noise^2 H^-1 is of the rest of H
    added = inverse @ information.prior @ inverse
    doubt = "too small, since they are not" if correlated else "too small where they are not"
    white = Covariance(
        WHITE, noise**2 * (inverse - added) + added, float(degrees),
        f"as if all residuals were independent; {doubt}",
    )  # fmt: skip
    robust = []
    reduced = [
        directions(names, values, information.total - share, scales=spanned.scales)
        for share in (information.by_recording if count > 1 else ())
    ]
    if reduced and min(one.rank for one in reduced) == spanned.rank:
        pairs = zip(reduced, information.scores, strict=True)
        moves = np.stack([one.inverse @ score for one, score in pairs])
        spread, law = (count - 1) / count * moves.T @ moves, _law(count - 1)
        text = f"as if only the recordings were; {law}"
        robust.append(Covariance(BY_RECORDING, spread + added, count - 1, text))
    if information.block_covariance is not None:
        blocks, law = information.blocks, _law(information.blocks - 1)
        text = f"as if only {blocks} blocks of consecutive samples were; {law}"
        robust.append(Covariance(BY_BLOCK, information.block_covariance + added, blocks - 1, text))
    return Uncertainty(spanned, (*robust, white) if correlated else (white, *robust), count)


def _law(degrees: int) -> str:
    return f"t distribution with {counted(degrees, 'degree')} of freedom"


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as "1 recording"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def _cell(ends: HostArray, value: float) -> str:
    half = (ends[1] - ends[0]) / 2
    share = f"({percent(half / abs(value))})" if value else ""
    share = share if len(share) < 10 else share.replace(" ", "")  # a space stays before it
    return f"{f'+- {half:.2g}':>12}{share:>10}"
