"""`Growth`: the result of `sensitivity_growth`, and its meaning for a gradient."""

from dataclasses import dataclass

import numpy as np

from jaxmech.sensitivity.differences import Numbers
from jaxmech.utils.checks import require_positive


@dataclass(frozen=True, eq=False, repr=False)
class Growth:
    """The growth of small changes of the initial state along one motion; prints itself.

    Attributes:
        ts: save times [s], shape (T,).
        logarithm: natural logarithm of the growth at the save times, shape (T,), 0 at the start.
        rate: factor that makes changes of coordinates comparable with those of velocities [1/s];
            None where the sizes of both were given.
        eps: the relative round-off of the computation.
    """

    ts: Numbers
    logarithm: Numbers
    rate: float | None
    eps: float

    @property
    def factor(self) -> Numbers:
        """The growth as a factor, shape (T,), infinite where it overflows."""
        with np.errstate(over="ignore"):
            return np.exp(self.logarithm)

    @property
    def span(self) -> float:
        """The time from the first to the last save [s]."""
        return float(abs(self.ts[-1] - self.ts[0]))

    @property
    def exponent(self) -> float:
        """The finite-time Lyapunov exponent [1/s]: logarithm of the growth over the whole time."""
        return float(self.logarithm[-1] / self.span)

    @property
    def doubling_time(self) -> float:
        """Time in which a change doubles on average [s]; infinite if it does not grow."""
        return float(np.log(2) / self.exponent) if self.exponent > 0 else float("inf")

    def horizon(self, sd: float, tolerance: float) -> float:
        """The time from the start [s] at which an initial uncertainty has grown to a tolerance.

        Interpolated between save times; infinite if the tolerance is not reached.

        Args:
            sd: the uncertainty of the initial state, in any unit.
            tolerance: the uncertainty allowed later, in the same unit.

        Raises:
            ValueError: one of them is not positive.

        Example:
            >>> ts = np.linspace(0.0, 4.0, 5)
            >>> Growth(ts, 2 * ts, rate=1.0, eps=2e-16).horizon(1e-3, 1e-3 * np.exp(3.0))
            1.5
        """
        require_positive("sd", sd)
        require_positive("tolerance", tolerance)
        level = float(np.log(tolerance) - np.log(sd))
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
    """exp(logarithm) in three digits, however large."""
    tens, rest = divmod(logarithm / np.log(10), 1.0)
    return f"{10.0**rest * 10.0**tens:.3g}" if abs(tens) < 5 else f"{10.0**rest:.2f}e{tens:+03.0f}"


def growth_warning(
    growth: Growth, *, change: float = 1e-3, size: float = 1.0, accuracy: float = 1e-3
) -> str:
    """A warning if a motion is too long for its gradient, or an empty text.

    Example:
        >>> ts = np.linspace(0.0, 4.0, 5)
        >>> growth_warning(Growth(ts, 3.0 * ts, rate=1.0, eps=2.2e-16)).split(":")[0]
        'Gradients through this motion are meaningful only for the first 2.3 of its 4 s'
    """
    # A gradient predicts changes in proportion. When a change of the size that matters has grown to
    # the motion itself, the true change stays bounded while the predicted one goes on growing: the
    # loss has many minima. When round-off has grown to the accuracy that is wanted, the motion
    # depends on the order of the operations.
    predicted = growth.horizon(change, size)
    computed = growth.horizon(growth.eps, accuracy)
    first = min(predicted, computed)
    if np.isinf(first):
        return ""
    if predicted <= computed:
        part = f"{change / size:.1g} of the motion"
        reason = f"a change of the initial state by {part} has grown as large as the motion"
    else:
        reason = f"round-off has grown to {accuracy:.1g} of the motion"
    length = min(growth.horizon(1.0, 10.0), 0.5 * first)
    return (
        f"Gradients through this motion are meaningful only for the first {first:.3g} of its "
        f"{growth.span:.3g} s: then {reason} (changes grow by {power(growth.logarithm[-1])} to the "
        f"end, doubling every {growth.doubling_time:.2g} s). Use shorter segments, such as "
        f"`horizon=Shooting(length={length:.2g})`."
    )
