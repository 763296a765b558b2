"""`Growth`: what `sensitivity_growth` finds, and what it means for a gradient."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating]


@dataclass(frozen=True, eq=False, repr=False)
class Growth:
    """How small changes of the start grow along one motion; prints itself.

    Attributes:
        ts: save times [s], shape (T,).
        logarithm: natural logarithm of the growth at the save times, shape (T,), 0 at the start.
        rate: what one unit of the coordinates is worth in velocities [1/s]; None where the sizes
            of both were given.
        eps: the relative round-off of the numbers that the motion was computed with.
    """

    ts: Numbers
    logarithm: Numbers
    rate: float | None
    eps: float

    @property
    def factor(self) -> Numbers:
        """The growth itself, shape (T,), infinite where it is too large for a number."""
        with np.errstate(over="ignore"):
            return np.exp(self.logarithm)

    @property
    def span(self) -> float:
        """From the first to the last save time [s]."""
        return float(abs(self.ts[-1] - self.ts[0]))

    @property
    def exponent(self) -> float:
        """The finite-time Lyapunov exponent [1/s]: logarithm of the growth over the whole time."""
        return float(self.logarithm[-1] / self.span)

    @property
    def doubling_time(self) -> float:
        """In which a change doubles on the average [s]; infinite if it does not grow."""
        return float(np.log(2) / self.exponent) if self.exponent > 0 else float("inf")

    def horizon(self, sd: float, tolerance: float) -> float:
        """The time from the start [s] at which an initial uncertainty has grown to a tolerance.

        Args:
            sd: the uncertainty of the start, in any unit.
            tolerance: what it may grow to, in the same unit.

        Returns:
            The first such time, between save times by interpolation of the logarithm; infinite if
            it is not reached.

        Raises:
            ValueError: one of them is not positive.

        Example:
            >>> ts = np.linspace(0.0, 4.0, 5)
            >>> Growth(ts, 2 * ts, rate=1.0, eps=2e-16).horizon(1e-3, 1e-3 * np.exp(3.0))
            1.5
        """
        for name, value in (("sd", sd), ("tolerance", tolerance)):
            if not value > 0:
                raise ValueError(f"Argument `{name}` must be positive, but is {value}.")
        return self._reaches(float(np.log(tolerance) - np.log(sd)))

    def _reaches(self, level: float) -> float:
        """When the logarithm first reaches a level, from the start on."""
        above = np.flatnonzero(self.logarithm >= level)
        if not above.size:
            return float("inf")
        k, since = int(above[0]), np.abs(self.ts - self.ts[0])
        if k == 0:
            return 0.0
        return float(np.interp(level, self.logarithm[k - 1 : k + 1], since[k - 1 : k + 1]))

    def __repr__(self) -> str:
        scaling = "as given" if self.rate is None else f"by mass, dq times {self.rate:.3g} 1/s"
        digits = -(np.log(self.eps) + self.logarithm[-1]) / np.log(10)
        doubles = f"; doubles every {self.doubling_time:.3g} s" if self.exponent > 0 else ""
        lines = [
            ("time", f"{self.ts[0]:g} to {self.ts[-1]:g} s"),
            ("at the end", f"{power(self.logarithm[-1])}, at most {power(self.logarithm.max())}"),
            ("exponent", f"{self.exponent:.3g} 1/s{doubles}"),
            ("scaling", scaling),
            ("round-off", f"leaves about {max(digits, 0.0):.0f} digits of the end"),
        ]
        return "\n".join(["Growth", *(f"  {title:<12}{text}" for title, text in lines)])


def power(logarithm: float) -> str:
    """exp(logarithm) in three digits, however large.

    Example:
        >>> power(np.log(20.0)), power(5000.0)
        ('20', '2.97e+2171')
    """
    tens, rest = divmod(logarithm / np.log(10), 1.0)
    return f"{10.0**rest * 10.0**tens:.3g}" if abs(tens) < 5 else f"{10.0**rest:.2f}e{tens:+03.0f}"


def beyond(
    growth: Growth, *, change: float = 1e-3, size: float = 1.0, accuracy: float = 1e-3
) -> str:
    """What to say where a motion is longer than a gradient through it means something; or nothing.

    A gradient predicts a change of the motion by a change of the start in proportion. Two things
    end that. A change of the size that matters, when multiplied by the growth, reaches the size of
    the motion itself: the true change stays bounded while the predicted one goes on growing, so the
    gradient points nowhere useful and the loss has many minima. And round-off, when multiplied by
    the growth, reaches the accuracy that is wanted: then the motion itself, and with it the
    gradient, depends on the order of the operations.

    Args:
        growth: along the motion.
        change: of the start that matters: the noise of the recording, or how far off the first
            guess is.
        size: of the motion, in the unit of `change`.
        accuracy: wanted of the motion, as a fraction of it.

    Returns:
        The warning, empty if the whole motion is within both.

    Example:
        >>> ts = np.linspace(0.0, 4.0, 5)
        >>> calm, wild = (Growth(ts, rate * ts, rate=1.0, eps=2.2e-16) for rate in (0.5, 3.0))
        >>> beyond(calm)
        ''
        >>> beyond(wild).split(":")[0]
        'A gradient through this motion means little beyond 2.3 of its 4 s'
    """
    predicted = growth.horizon(change, size)
    computed = growth.horizon(growth.eps, accuracy)
    first = min(predicted, computed)
    if np.isinf(first):
        return ""
    if predicted <= computed:
        reason = (
            f"a change of the start by {change / size:.1g} of the motion has grown to the motion "
            "itself"
        )
    else:
        reason = f"round-off has grown to {accuracy:.1g} of the motion"
    length = min(growth.horizon(1.0, 10.0), 0.5 * first)
    return (
        f"A gradient through this motion means little beyond {first:.3g} of its {growth.span:.3g} "
        f"s: there {reason} (changes grow by {power(growth.logarithm[-1])} to the end, doubling "
        f"every {growth.doubling_time:.2g} s). Take shorter stretches, such as "
        f"`horizon=Shooting(length={length:.2g})`."
    )
