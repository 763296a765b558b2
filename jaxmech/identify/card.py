"""How a fit prints itself: as text, and as HTML in a notebook."""

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from jaxmech.identify.inference.uncertainty import counted
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import html_table, sparkline

_MOST_LINES = 12  # sparklines of a card
_POINTS = 240  # of a line


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


def fit_as_html(fit: Any) -> str:
    """The first lines of the printed fit, its intervals, and its residuals over time."""
    head, *rest = repr(fit).splitlines()
    warnings = "".join(f"<p>{escape(one.strip())}</p>" for one in rest if "WARNING:" in one)
    intervals = html_table(list(_intervals(fit)), ("", "value", "95 % interval"))
    lines = html_table(list(_lines(fit)), ("residuals", "over time", "RMS"))
    return (
        f"<div><p><b>{escape(head)}</b></p>{warnings}{intervals}{lines}"
        f"<details><summary>more</summary><pre>{escape(repr(fit))}</pre></details></div>"
    )


def _intervals(fit: Any) -> Iterator[tuple[str, str, str]]:
    uncertainty = fit.uncertainty
    ends = uncertainty.reliable_interval()
    for k, name in enumerate(fit.names):
        if uncertainty.determined[k]:
            half = (ends[k, 1] - ends[k, 0]) / 2
            yield name, f"{fit.values[k]:.6g}", f"± {half:.2g}"
        else:
            yield name, f"{fit.values[k]:.6g}", "not determined"


def _lines(fit: Any) -> Iterator[tuple[str, str, str]]:
    several = fit.train.values[0].shape[1] > 1
    rows = [
        (f"{one.name}, sensor {j}" if several else one.name, r[:, j])
        for one, r in zip(fit.train.recordings, fit.residuals, strict=True)
        for j in range(r.shape[1])
    ]
    for name, values in rows[:_MOST_LINES]:
        known = values[np.isfinite(values)]
        if known.size:
            shown = known[:: -(-known.size // _POINTS)]
            yield name, sparkline(shown), f"{np.sqrt((known**2).mean()):.3g}"


def _spread(errors: HostArray) -> str:
    if errors.size == 1:
        return f"{errors[0]:.3g}"
    return f"{errors.mean():.3g} on average, {errors.min():.3g} to {errors.max():.3g}"
