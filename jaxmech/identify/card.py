"""How a fit prints itself."""

from typing import Any

import numpy as np

from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import counted


def fit_as_text(fit: Any) -> str:
    """The printed fit: its warnings, its intervals, its errors, and its noise."""
    state = "converged" if fit.converged else "not converged"
    recordings = counted(len(fit.train.recordings), "recording")
    head = f"Fit: {counted(len(fit.names), 'parameter')} to {recordings}"
    after = f"{fit.optimization.evaluations} evaluations ({fit.optimization.reason})"
    lines = [
        f"{head} ({fit.count:,} measurements), {state}",
        *(f"  WARNING: {warning}" for warning in fit.warnings),
        *(f"  {line}" for line in repr(fit.uncertainty).splitlines()),
        f"  ended                       after {after}",
        f"  RMS error, fitted starts    {_spread(fit.errors)}",
        f"  RMS error, recorded starts  {_spread(fit.predicted_errors)}",
    ]
    if len(fit.validation.recordings):
        lines.append(f"  RMS error, validation       {_spread(fit.validation_errors)}")
    noise = fit.noise
    lines.append(f"  noise                       {noise.in_words()}")
    if not noise.correlated and np.isfinite(noise.log_likelihood):
        criteria = f"{fit.aic:.1f}, {fit.bic:.1f} (noise: {noise.law})"
        lines.append(f"  AIC, BIC                    {criteria}")
    if not noise.correlated and noise.residuals and len(fit.outliers):
        lines += [f"  {line}" for line in repr(fit.outliers).splitlines()]
    lines += [f"  data                        {note}" for note in fit.data_notes]
    return "\n".join(lines)


def _spread(errors: HostArray) -> str:
    if errors.size == 1:
        return f"{errors[0]:.3g}"
    return f"{errors.mean():.3g} on average, {errors.min():.3g} to {errors.max():.3g}"
