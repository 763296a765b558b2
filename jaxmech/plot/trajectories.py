"""Plots of trajectories: quantiles over time, phase portraits, constraint and energy drift."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from numpy.typing import ArrayLike

from jaxmech.plot.panels import axes_or_new, labelled
from jaxmech.plot.style import BLUE, COLORS, GREEN, ORANGE, scale_beside
from jaxmech.utils.units import RATE, unit_of, with_unit

BANDS = ((0.05, 0.95, 0.2), (0.25, 0.75, 0.35))  # low, high, opacity
MOST_LINES = 12  # trajectories drawn one by one; of more the quantiles or the density
_STYLES = ("-", "--", ":")
_SMALLEST = 1e-18  # stands in for an exact zero on a logarithmic axis


def quantile_bands(
    ts: ArrayLike, values: ArrayLike, *, name: str = "", color: str = BLUE, ax: Axes | None = None
) -> Axes:
    """Draw the median of all trajectories over time, and the bands of 50 % and 90 % around it.

    Args:
        ts: times [s], shape (T,).
        values: one value per trajectory and time, shape (N, T), finite.
        name: label of the vertical axis, with the unit.
        color: color of the bands and the median.
        ax: axes to draw into.

    Example:
        >>> ax = quantile_bands([0.0, 1.0], [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]], name="x [m]")
        >>> ax.get_ylabel()
        'x [m]'
    """
    ax = axes_or_new(ax)
    ends = [end for low, high, _ in BANDS for end in (low, high)]
    median, *edges = np.quantile(np.asarray(values), [0.5, *ends], axis=0)
    for k, (low, high, opacity) in enumerate(BANDS):
        label = f"{100 * low:g} to {100 * high:g} %"
        band = edges[2 * k : 2 * k + 2]
        ax.fill_between(ts, *band, color=color, alpha=opacity, linewidth=0, label=label)
    ax.plot(ts, median, color=color, linewidth=1.2, label="median")
    return labelled(ax, "t [s]", name)


def curves(
    ts: np.ndarray, values: np.ndarray, *, order: int, name: str, ax: Axes, marker: str = ""
) -> None:
    """Draw trajectories of a quantity over time (N, T): one by one, or if many their quantiles.

    Args:
        ts: times [s], shape (N, T).
        values: the quantity, shape (N, T).
        order: which colour and kind of line, 0 for the first.
        name: name in the legend.
        ax: axes to draw into.
        marker: draw dots instead of lines.
    """
    color = COLORS[order % len(COLORS)]
    style = "" if marker else _STYLES[order // len(COLORS) % len(_STYLES)]
    if len(values) > MOST_LINES and not marker:
        known = len(ax.get_legend_handles_labels()[1])
        quantile_bands(ts[0], values, color=color, ax=ax)
        *bands, median = ax.get_legend_handles_labels()[0][known:]
        median.set(label=name, linestyle=style)
        for band in bands if order else ():
            band.set_label(None)
        return
    opacity = 1.0 if len(values) == 1 else 0.75
    for k, (t, row) in enumerate(zip(ts, values, strict=True)):
        label = name if k == 0 else None
        ax.plot(t, row, color=color, linestyle=style, marker=marker, alpha=opacity, label=label)


def phase_portrait(
    q: ArrayLike,
    v: ArrayLike,
    *,
    name: str = "q",
    unit: str = "",
    bins: int | None = None,
    dots: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the velocity of a coordinate over it: lines of a few trajectories, or their density.

    Args:
        q: a coordinate, shape (T,) or (N, T), finite.
        v: velocity of the coordinate, same shape.
        name: name of the coordinate.
        unit: its unit.
        bins: cells of the density in each direction; by default lines for up to 12 trajectories,
            and cells for more, 30 to 100, more for more states.
        dots: whether to draw each state as a dot, as for a Poincaré section.
        ax: axes to draw into.

    Returns:
        The axes, with the start of each line as a dot, or with the density of the states in
        logarithmic colours and their scale beside.

    Example:
        >>> ax = phase_portrait([[0.0, 1.0]], [[1.0, 0.0]], name="x", unit="m")
        >>> ax.get_ylabel()
        'd x/dt [m/s]'
    """
    ax = axes_or_new(ax)
    q, v = (np.atleast_2d(np.asarray(x, float)) for x in (q, v))
    if dots:
        for k, states in enumerate(zip(q, v, strict=True)):
            color = COLORS[k % len(COLORS)] if len(q) <= len(COLORS) else BLUE
            ax.plot(*states, ".", color=color, markersize=3)
    elif bins is None and len(q) <= MOST_LINES:
        for k, (x, y) in enumerate(zip(q, v, strict=True)):
            color = COLORS[k % len(COLORS)]
            ax.plot(x, y, color=color, linewidth=1.1)
            ax.plot(x[:1], y[:1], "o", color=color, markersize=3.5)
    else:
        _density(ax, q, v, bins or int(np.clip(np.sqrt(q.size) / 4, 30, 100)))
    rate = unit_of(((name, unit),), f"{name}{RATE}") if unit else ""
    return labelled(ax, with_unit(name, unit), with_unit(f"d {name}/dt", rate))


def _density(ax: Axes, q: np.ndarray, v: np.ndarray, bins: int) -> None:
    counts, q_edges, v_edges = np.histogram2d(np.ravel(q), np.ravel(v), bins=bins)
    density = np.ma.masked_equal(counts.T, 0)
    norm = LogNorm(vmin=1, vmax=max(2, counts.max()))
    cells = ax.pcolormesh(q_edges, v_edges, density, norm=norm, cmap="viridis", rasterized=True)
    scale_beside(cells, ax, "saved states in a cell")


def drift(
    ts: ArrayLike, position: ArrayLike, velocity: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the median and the largest constraint residual over time, logarithmic.

    Args:
        ts: times [s], shape (T,).
        position: largest |phi| of each trajectory, shape (N, T).
        velocity: largest |dphi/dt| and |psi|, shape (N, T), if known.
        ax: axes to draw into.

    Example:
        >>> ax = drift([0.0, 1.0], [[1e-16, 2e-16]])
        >>> ax.get_yscale()
        'log'
    """
    ax = axes_or_new(ax)
    if velocity is None or np.any(position):  # all zero without holonomic constraints
        _magnitude(ax, ts, position, BLUE, "position")
    if velocity is not None:
        _magnitude(ax, ts, velocity, ORANGE, "velocity")
    ax.set_yscale("log")
    return labelled(ax, "t [s]", "constraint residual", legend=True)


def energy_drift(ts: ArrayLike, energy: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the change of the energy over time, |E - E(start)|, logarithmic.

    Args:
        ts: times [s], shape (T,).
        energy: energy of each trajectory [J], shape (N, T).
        ax: axes to draw into.

    Example:
        >>> ax = energy_drift([0.0, 1.0], [[2.0, 2.0000001]])
        >>> ax.get_ylabel()
        '|E - E(start)| [J]'
    """
    ax = axes_or_new(ax)
    E = np.asarray(energy)
    _magnitude(ax, np.asarray(ts)[1:], np.abs(E - E[:, :1])[:, 1:], GREEN, "")
    ax.set_yscale("log")
    labelled(ax, "t [s]", "|E - E(start)| [J]", legend=len(E) > 1)
    ax.set_xlim(np.min(ts), np.max(ts))  # the change at the first time, zero, is not drawn
    return ax


def _magnitude(ax: Axes, ts: ArrayLike, values: ArrayLike, color: str, name: str) -> None:
    """Draw the median, the band of 90 % and the maximum of residuals that may be zero."""
    size = np.maximum(np.asarray(values), _SMALLEST)
    if len(size) == 1:
        ax.plot(ts, size[0], color=color, linewidth=1.2, label=name or None)
        return
    low, median, high = np.quantile(size, [0.05, 0.5, 0.95], axis=0)
    lead = f"{name}, " if name else ""
    ax.fill_between(ts, low, high, color=color, alpha=0.25, linewidth=0, label=f"{lead}5 to 95 %")
    ax.plot(ts, median, color=color, linewidth=1.2, label=f"{lead}median")
    ax.plot(ts, size.max(axis=0), color=color, linewidth=1, linestyle=":", label=f"{lead}largest")
