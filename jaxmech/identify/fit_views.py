"""The view of a `Fit` in notebooks: its numbers with intervals, and lines of its residuals."""

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from jaxmech.utils.text import html_table, sparkline

_MOST_LINES = 12  # sparklines of a card
_POINTS = 240  # of a line


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
    ends = uncertainty.interval()
    if uncertainty.correlated:
        by_recording, by_block = (
            uncertainty.interval_by_recording(),
            uncertainty.interval_by_block(),
        )
        ends = next((x for x in (by_recording, by_block) if x is not None), ends)
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
