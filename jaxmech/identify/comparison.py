"""`compare`: fits of several models to the same recordings, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jaxmech.identify.result import Fit
from jaxmech.utils.arrays import HostArray


@dataclass(frozen=True, eq=False, repr=False)
class FitComparison:
    """Fits by name; prints itself as a table, with the smallest AIC first.

    The result of `compare`.

    Attributes:
        fits: the fits by the names of their models.
    """

    fits: Mapping[str, Fit]

    @property
    def aic(self) -> HostArray:
        """Akaike's criterion of each fit, (F,)."""
        return np.array([fit.aic for fit in self.fits.values()])

    @property
    def bic(self) -> HostArray:
        """The Bayesian criterion of each fit, (F,)."""
        return np.array([fit.bic for fit in self.fits.values()])

    @property
    def best(self) -> str:
        """The name of the fit with the smallest AIC."""
        return list(self.fits)[int(np.argmin(self.aic))]

    def __repr__(self) -> str:
        names, first = list(self.fits), next(iter(self.fits.values()))
        width = max(10, *(len(name) + 2 for name in names))
        heads = ("unknowns", "log L", "AIC", "less best", "BIC", "less best")
        lines = [
            f"Comparison of {len(names)} fits to {first.count:,} measurements",
            f"  {'':<{width}}" + "".join(f"{head:>12}" for head in heads) + "  noise",
        ]
        for k in np.argsort(self.aic):
            fit = self.fits[names[k]]
            numbers = (
                fit.noise.log_likelihood, fit.aic, fit.aic - self.aic.min(), fit.bic,
                fit.bic - self.bic.min(),
            )  # fmt: skip
            cells = "".join(f"{x:>12.1f}" for x in numbers)
            count = fit.unknowns + fit.noise.parameters
            lines.append(f"  {names[k]:<{width}}{count:>12}{cells}  {fit.noise.law}")
        return "\n".join(lines)


def compare(fits: Mapping[str, Fit]) -> FitComparison:
    """Compare fits of several models, or of several kinds of noise, to the same recordings.

    Uses the criteria of Akaike and of Schwarz, under the noise that each fit assumed. They require
    that residuals are noise, and that there are many of them; `cross_validate` assumes less.

    Args:
        fits: the fits by the names of their models.

    Raises:
        ValueError: if there is no fit, a fit has no likelihood, or the recordings are not the same.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> noise = 1e-3 * np.random.default_rng(0).normal(size=(101, 1))
        >>> sol = jm.simulate(model.system, q0, v0, ts, model.params)
        >>> swing = jm.Recording(ts, sol.q + noise, q0, v0)
        >>> fits = {
        ...     free: jm.fit(model.system, swing, {**model.params, "g": 9.5}, free=[free])
        ...     for free in ("g", "m")
        ... }
        >>> compare(fits).best
        'g'
    """
    if not fits:
        raise ValueError(
            "Argument `fits` must hold fits by the names of their models, but is empty."
        )
    first = next(iter(fits.values()))
    for name, fit in fits.items():
        if not np.isfinite(fit.noise.log_likelihood):
            raise ValueError(
                f"Argument `fits` must hold fits with a likelihood, but {name!r} has none: its "
                "residuals are zero, or it was saved by an earlier version; fit again."
            )
        pairs = zip(fit.train.recordings, first.train.recordings, strict=False)
        same = fit.count == first.count and all(
            np.array_equal(a.observed, b.observed, equal_nan=True) for a, b in pairs
        )
        if not same:
            raise ValueError(
                f"Argument `fits` must hold fits to the same recordings, but {name!r} has others; "
                "likelihoods of different measurements cannot be compared."
            )
    return FitComparison(dict(fits))
