"""Pictures of the answers of a study: the distribution of a quantity, and what it depends on."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from jaxmech.plot.panels import BLUE, GREY, INK, ORANGE, axes_or_new, bare, labelled

LOW, HIGH = 0.05, 0.95  # the probabilities between which most members lie
_MOST_BINS = 60
_MOST_INPUTS = 12


class BinnedDensity(NamedTuple):
    """A density in bins, and the values below which a few, half and most of its members lie.

    Attributes:
        edges: of the bins, shape (k + 1,).
        heights: the density in each bin, shape (k,).
        quantiles: of 5, 50 and 95 %, shape (3,).
    """

    edges: np.ndarray
    heights: np.ndarray
    quantiles: np.ndarray

    @staticmethod
    def of_values(values: ArrayLike) -> "BinnedDensity":
        """The density of finite values, one for each member."""
        x = np.asarray(values, float)
        low, high = x.min(), x.max()
        count = len(np.histogram_bin_edges(x, "auto")) - 1 if high > low else 1
        heights, edges = np.histogram(x, min(count, _MOST_BINS), density=high > low)
        return BinnedDensity(edges, heights, np.quantile(x, (LOW, 0.5, HIGH)))

    @staticmethod
    def of_counts(
        counts: ArrayLike, edges: ArrayLike, below: float = 0, above: float = 0
    ) -> "BinnedDensity":
        """The density of members that were counted in bins, some of them below and above all."""
        number, ends = np.asarray(counts, float), np.asarray(edges, float)
        total = number.sum() + below + above
        reached = (below + np.concatenate([[0.0], np.cumsum(number)])) / total
        known = np.interp((LOW, 0.5, HIGH), reached, ends, left=np.nan, right=np.nan)
        return BinnedDensity(ends, number / np.diff(ends) / total, known)


def distribution(
    density: BinnedDensity,
    *,
    name: str = "",
    mean: tuple[float, float, float] | None = None,
    limits: Sequence[float] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw the density of a quantity over all members, with its median and its mean.

    Args:
        density: the density; members between its quantiles of 5 and 95 % are darker.
        name: label of the horizontal axis, with the unit.
        mean: the mean with the ends of its interval, drawn as a bar above the density.
        limits: values whose probability was asked for.
        ax: axes to draw into.
    """
    ax = axes_or_new(ax)
    low, middle, high = density.quantiles
    ax.stairs(density.heights, density.edges, fill=True, color=BLUE, alpha=0.25, label="others")
    steps = np.append(density.heights, density.heights[-1])
    span = np.union1d(density.edges, [x for x in (low, high) if np.isfinite(x)])
    index = np.clip(np.searchsorted(density.edges, span, "right") - 1, 0, len(steps) - 1)
    inside = (span >= low) & (span <= high)
    ax.fill_between(
        span, steps[index], where=inside, step="post", color=BLUE, alpha=0.45, linewidth=0,
        label=f"{100 * LOW:g} to {100 * HIGH:g} %",
    )  # fmt: skip
    ax.axvline(middle, color=BLUE, linewidth=1.4, label="median")
    top = float(density.heights.max())
    ax.set_ylim(0, 1.15 * top or 1.0)
    if mean is not None and np.isfinite(mean).all():
        value, *ends = mean
        error = np.abs(np.array(ends)[:, None] - value)
        bar = {"color": INK, "markersize": 4, "capsize": 4, "label": "mean and its interval"}
        ax.errorbar([value], [1.07 * top], xerr=error, fmt="o", **bar)
    for k, limit in enumerate(limits):
        label = "limit" if k == 0 else None
        ax.axvline(limit, color=ORANGE, linestyle="--", linewidth=1.2, label=label)
    return labelled(ax, name, "probability density", legend=True)


class Influence(NamedTuple):
    """How much a quantity depends on the drawn inputs that it depends on most, in order.

    Attributes:
        measure: what is measured, such as "rank correlation".
        names: of the inputs.
        values: of the measure, shape (k,).
        low: lower ends of its intervals, shape (k,).
        high: upper ends, shape (k,).
    """

    measure: str
    names: tuple[str, ...]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, measure: str, names: Sequence[str], *parts: ArrayLike) -> "Influence | None":
        """That of values, lower and upper ends; None if it is known of no input."""
        values, low, high = numbers = np.array(parts, float)
        order = np.argsort(-np.abs(values), kind="stable")
        order = order[np.isfinite(numbers[:, order]).all(axis=0)][:_MOST_INPUTS]
        chosen = tuple(names[k] for k in order)
        return cls(measure, chosen, values[order], low[order], high[order]) if chosen else None


def influences(influence: Influence, *, ax: Axes | None = None) -> Axes:
    """Draw how much a quantity depends on each input, the strongest on top."""
    ax, shown = axes_or_new(ax), influence
    rows = np.arange(len(shown.names))
    error = np.maximum([shown.values - shown.low, shown.high - shown.values], 0)
    colors = [BLUE if x >= 0 else ORANGE for x in shown.values]
    ax.barh(rows, shown.values, 0.62, xerr=error, color=colors, ecolor=GREY, capsize=3)
    ax.set_yticks(rows, shown.names)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.axvline(0, color=GREY, linewidth=0.8)
    labelled(bare(ax), shown.measure, "")
    low, high = float(min([*shown.low, 0.0])), float(max([*shown.high, 0.0]))
    room = 0.06 * (high - low) or 1.0
    ax.set_xlim(low - room * (low < 0), high + room * (high >= 0))
    return ax
