"""`Uncertainty`: standard errors and intervals of the parameters of a fit, in two ways.

The residuals of a motion that is sampled a thousand times a second are correlated over many
samples. The usual covariance, which assumes that all residuals are independent, is then far too
small; the other one assumes only that whole recordings are independent of each other.

At the end of a fit, with H = J^T J and, of each of R recordings, the information H_s and the
gradient g_s of half the squared residuals, the covariance of the parameters is

    noise^2 H^-1                                          if all residuals are independent, and
    R / (R - 1) sum_s (H^-1 g_s)(H^-1 g_s)^T              if only the recordings are, or better
    (R - 1) / R sum_s d_s d_s^T,  d_s = (H - H_s)^-1 g_s.

The second is the sandwich of Liang and Zeger (1986, Biometrika 73), with the factor and the t
distribution with R - 1 degrees of freedom of Cameron and Miller (2015, J. Human Resources 50,
sections II.C and VI). The third is the jackknife (CV3 in MacKinnon, Nielsen and Webb 2023, J.
Econometrics 232): d_s is how far the fit moves without a recording. It remains valid for few or
unequal recordings, for which the second is too small.

A prior counts as one more independent measurement, with its standard deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxmech.identify.inference.information import (
    Directions,
    checked,
    directions,
    percent,
    require_noise,
    row,
    square,
)
from jaxmech.utils.arrays import HostArray


@dataclass(frozen=True, eq=False, repr=False)
class Uncertainty:
    """Standard errors and intervals of fitted parameters; prints itself as a table.

    A part of a `Fit`, the result of `fit`.
    """

    directions: Directions  # parameter space split by the information
    covariance: HostArray  # as if all residuals were independent; of what is determined, (p, p)
    covariance_by_recording: (
        HostArray | None
    )  # as if only recordings were; None with too few of them
    degrees: float | int  # of freedom of the first: residuals less parameters
    recordings: int  # their number R; the second has R - 1 degrees of freedom
    correlated: bool = False  # whether the residuals are not independent; the first comes last
    covariance_by_block: HostArray | None = None  # as if only blocks of the recordings were, (p, p)
    blocks: int = 0  # their number B; this one has B - 1 degrees of freedom

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
    def standard_errors(self) -> HostArray:
        """Standard errors for independent residuals, shape (p,); infinite where not determined."""
        return self.directions.errors(self.covariance)

    @property
    def standard_errors_by_recording(self) -> HostArray | None:
        """Standard errors for independent recordings, shape (p,); None with too few of them."""
        covariance = self.covariance_by_recording
        return None if covariance is None else self.directions.errors(covariance)

    @property
    def standard_errors_by_block(self) -> HostArray | None:
        """Standard errors for correlated residuals, (p,); None where they look independent."""
        covariance = self.covariance_by_block
        return None if covariance is None else self.directions.errors(covariance)

    @property
    def correlation(self) -> HostArray:
        """The correlations, shape (p, p); NaN where a parameter is not determined."""
        return self._correlation(self.covariance)

    @property
    def correlation_by_recording(self) -> HostArray | None:
        """Correlations as if only the recordings were independent; None with too few of them."""
        covariance = self.covariance_by_recording
        return None if covariance is None else self._correlation(covariance)

    def interval(self, level: float | int = 0.95) -> HostArray:
        """Confidence intervals at a level, as if all residuals were independent, shape (p, 2)."""
        return self._interval(self.standard_errors, self.degrees, level)

    def interval_by_recording(self, level: float | int = 0.95) -> HostArray | None:
        """Intervals as if only the recordings were independent; None with too few of them."""
        errors = self.standard_errors_by_recording
        return None if errors is None else self._interval(errors, self.recordings - 1, level)

    def interval_by_block(self, level: float | int = 0.95) -> HostArray | None:
        """Intervals as if only blocks of the recordings were independent, shape (p, 2).

        None where the residuals look independent, or where there are too few of them.
        """
        errors = self.standard_errors_by_block
        return None if errors is None else self._interval(errors, self.blocks - 1, level)

    def reliable_interval(self, level: float | int = 0.95) -> HostArray:
        """The intervals that are shown first, (p, 2): where residuals are correlated, the robust.

        They are by recording if there are enough recordings, else by block if there are blocks.
        """
        robust = (self.interval_by_recording(level), self.interval_by_block(level))
        known = (ends for ends in robust if ends is not None and self.correlated)
        return next(known, self.interval(level))

    def of(self, gradient: ArrayLike) -> tuple[float, float | None]:
        """Standard errors of a function with a gradient (p,), to first order (the delta method).

        As if all residuals were independent, and as if only the recordings were; infinite where
        the function is not determined, the second None with too few recordings.
        """
        g = row(gradient, len(self.names))
        determined = self.directions.notices(g)

        def error(covariance: HostArray) -> float:
            return float(np.sqrt(max(float(g @ covariance @ g), 0.0))) if determined else np.inf

        robust = self.covariance_by_recording
        return error(self.covariance), None if robust is None else error(robust)

    def _correlation(self, covariance: HostArray) -> HostArray:
        sd = self.directions.errors(covariance)
        sd = np.where((sd > 0) & self.determined, sd, np.nan)
        correlation = np.clip(covariance / sd / sd[:, None], -1.0, 1.0)
        np.fill_diagonal(correlation, np.where(np.isnan(sd), np.nan, 1.0))
        return correlation

    def _interval(self, errors: HostArray, degrees: float | int, level: float | int) -> HostArray:
        from scipy.special import ndtri, stdtrit  # slow to import, and seldom needed

        if not 0 < level < 1:
            raise ValueError(f"Argument `level` must lie between 0 and 1, but is {level:g}.")
        share = (1 + level) / 2
        t = float(ndtri(share) if np.isinf(degrees) else stdtrit(degrees, share))
        return self.values[:, None] + errors[:, None] * t * np.array([-1.0, 1.0])

    def _ordered(self, white: str, robust: str) -> tuple[str, str]:
        """What is shown of both, the one that holds first."""
        return (robust, white) if self.correlated else (white, robust)

    def _doubt(self) -> str:
        return (
            "too small, since they are not" if self.correlated else "too small where they are not"
        )

    def _robust(self) -> tuple[str, HostArray | None, str]:
        """The interval that needs no independent residuals: its name, ends, and an explanation."""
        by_recording, by_block = self.interval_by_recording(), self.interval_by_block()
        if by_recording is not None:
            degrees = counted(self.recordings - 1, "degree")
            note = f"as if only the recordings were; t distribution with {degrees} of freedom"
            return "by recording", by_recording, note
        if by_block is not None:
            degrees = counted(self.blocks - 1, "degree")
            note = (
                f"as if only {self.blocks} blocks of consecutive samples were; t distribution with "
                f"{degrees} of freedom"
            )
            return "by block", by_block, note
        verb = "is" if self.recordings == 1 else "are"
        few = f"{counted(self.recordings, 'recording')} {verb} too few"
        numbers = counted(self.directions.rank, "determined number")
        return "by recording", None, f"not known; {few} for {numbers}"

    def __repr__(self) -> str:
        count, determined = len(self.names), int(self.determined.sum())
        width = max([14, *(len(name) + 2 for name in self.names)])
        white, (title, robust, note) = self.interval(), self._robust()
        law, meaning = "white noise", f"as if all residuals were independent; {self._doubt()}"
        head = f"Uncertainty: {counted(count, 'parameter')}, {determined} of them determined"
        lines = [
            f"{head}; {counted(self.recordings, 'recording')}; 95 % intervals",
            f"  {'':<{width}}{'value':>12}"
            + "".join(f"{one:>22}" for one in self._ordered(law, title)),
        ]
        for k, name in enumerate(self.names):
            independent = _cell(white[k], self.values[k])
            other = _cell(robust[k], self.values[k]) if robust is not None else f"{'-':>22}"
            cells = "".join(self._ordered(independent, other))
            if not self.determined[k]:
                cells = f"{'not determined':>22}"
            lines.append(f"  {name:<{width}}{self.values[k]:>12.6g}{cells}")
        lines += self._ordered(
            f"  {law}: {meaning}",
            f"  {title}: {note}",
        )
        return "\n".join(lines)


def uncertainty(
    names: Sequence[str],
    values: ArrayLike,  # (p,)
    information: ArrayLike,  # J^T J of the weighted residuals, the prior included, (p, p)
    scores: ArrayLike,  # gradient of half the squares of each recording, without the prior, (R, p)
    noise: float | int,  # standard deviation of the weighted residuals; 1 for trusted weights
    degrees: float | int,  # residuals less everything fitted; infinite for trusted weights
    *,
    informations: ArrayLike | None = None,  # J^T J of each recording, for the jackknife, (R, p, p)
    prior: ArrayLike | None = None,  # the part of the information that comes from a prior
    scales: ArrayLike | None = None,
    tolerance: float | None = None,
    correlated: bool = False,
    block_covariance: HostArray | None = None,  # without that of the prior
    blocks: int = 0,
) -> Uncertainty:
    """The uncertainty of a fit of p parameters to R recordings."""
    spanned = directions(names, values, information, scales=scales, tolerance=tolerance)
    p = len(spanned.names)
    gradients = np.asarray(scores, float)
    g = checked("scores", gradients, ("recordings", p), "one gradient per recording")
    require_noise(noise)
    if not degrees > 0:
        raise ValueError(
            f"Argument `degrees` must be positive, but is {degrees:g}: there are no more residuals "
            "than fitted numbers; fit fewer, or give the noise by `weights`."
        )
    stated = np.zeros((p, p)) if prior is None else square(prior, p, "prior")
    moves = _sandwich(spanned, g) if informations is None else _jackknife(spanned, g, informations)
    # what the prior adds to all covariances; noise^2 H^-1 is of the rest of H
    covariance = spanned.inverse @ stated @ spanned.inverse
    white = noise**2 * (spanned.inverse - covariance) + covariance
    by_recording = None if moves is None else moves + covariance
    by_block = None if block_covariance is None else block_covariance + covariance
    return Uncertainty(
        spanned, white, by_recording, float(degrees), len(g), correlated, by_block, blocks,
    )  # fmt: skip


def _sandwich(spanned: Directions, scores: HostArray) -> HostArray | None:
    """R / (R - 1) sum_s (H^-1 g_s)(H^-1 g_s)^T, (p, p), or None with too few recordings."""
    count = len(scores)
    # the scores of R recordings span R - 1 directions at most: in the others the covariance would
    # be zero, as if they were known exactly
    if count <= max(spanned.rank, 1):
        return None
    moves = scores @ spanned.inverse
    spread: HostArray = count / (count - 1) * moves.T @ moves
    return spread


def _jackknife(spanned: Directions, scores: HostArray, informations: ArrayLike) -> HostArray | None:
    """(R - 1) / R sum_s d_s d_s^T, (p, p), or None if one recording alone determines something."""
    count, p = scores.shape
    shape = count, p, p
    H = checked("informations", np.asarray(informations, float), shape, "one matrix per recording")
    if count < 2:
        return None
    moves = []
    for share, score in zip(H, scores, strict=True):
        reduced = directions(
            spanned.names, spanned.values, spanned.information - share, scales=spanned.scales
        )
        if reduced.rank < spanned.rank:
            return None
        moves.append(reduced.inverse @ score)
    spread: HostArray = (count - 1) / count * np.transpose(moves) @ moves
    return spread


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as "1 recording"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def _cell(ends: HostArray, value: float) -> str:
    half = (ends[1] - ends[0]) / 2
    share = f"({percent(half / abs(value))})" if value else ""
    share = share if len(share) < 10 else share.replace(" ", "")  # a space stays before it
    return f"{f'+- {half:.2g}':>12}{share:>10}"
