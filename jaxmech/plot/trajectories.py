"""Plots of trajectories: quantiles over time, constraint and energy drift.

`plot_motion` is `Solution.plot`: its columns over time or over each other, energy and residuals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from jaxmech.plot.panels import (
    BLUE,
    COLORS,
    GREEN,
    GREY,
    ORANGE,
    Drawing,
    Panels,
    axes_or_new,
    grouped_by_unit,
    keep_style,
    labelled,
    laid_out,
    legend_beside,
    styled,
)
from jaxmech.run import Solution
from jaxmech.status import succeeded
from jaxmech.utils.units import INTEGRALS, Named, columns, shown_coordinates, with_unit

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


def _curves(
    ts: np.ndarray, values: np.ndarray, *, order: int, name: str, ax: Axes, marker: str = ""
) -> None:
    """Draw trajectories of a quantity over time (N, T): one by one, or if many their quantiles.

    `order` counts colours and kinds of lines; with a marker dots are drawn.
    """
    color = COLORS[order % len(COLORS)]
    style = "" if marker else _STYLES[order // len(COLORS) % len(_STYLES)]
    if len(values) > MOST_LINES and not marker:
        quantile_bands(ts[0], values, color=color, ax=ax)
        ax.lines[-1].set(label=name, linestyle=style)
        for band in ax.collections[-len(BANDS) :] if order else ():
            band.set_label(None)
        return
    opacity = 1.0 if len(values) == 1 else 0.75
    for k, (t, row) in enumerate(zip(ts, values, strict=True)):
        label = name if k == 0 else None
        ax.plot(t, row, color=color, linestyle=style, marker=marker, alpha=opacity, label=label)


def drift(
    ts: ArrayLike, position: ArrayLike, velocity: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the median and the largest constraint residual over time, logarithmic.

    Args:
        ts: times [s], shape (T,).
        position: largest |phi| of each trajectory, shape (N, T).
        velocity: largest |dphi/dt| and |psi|, shape (N, T), if known.
        ax: axes to draw into.
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


_MOST_NAMES = 18  # in one panel: colours times kinds of lines
_WIDTH, _HEIGHT, _SQUARE = 7.0, 1.8, 4.2  # inches
_MOST_EVENTS = 40  # occurrences that are marked


def plot_motion(
    sol: Solution,
    chosen: Sequence[str | tuple[str, ...]],
    event: str | None,
    figure: Figure | None,
) -> Panels:
    """Draw the panels of `Solution.plot`, which explains the arguments."""
    status = np.ravel(sol.status)
    good = np.asarray(succeeded(status)) if status.size > 1 else np.ones(1, bool)
    if not good.any():
        raise ValueError(
            "The solution must have a trajectory to draw, but all of them failed; look at "
            "`status` and `t_failed`."
        )
    if event is not None and sol.events is None:
        raise ValueError("Argument `event` must be None for a simulation without events.")
    shown = _Shown(sol, good, event)
    over_time: dict[str, Drawing] = {}
    pairs: dict[str, Drawing] = {}
    for column in chosen:
        if isinstance(column, str):
            over_time[column] = shown.over_time((column,), with_unit(column, sol.unit(column)))
        elif isinstance(column, tuple) and len(column) == 2:
            pairs["{1} over {0}".format(*column)] = shown.over_each_other(*column)
        else:
            raise TypeError(
                "Argument `columns` must be names, or pairs of names as tuples, the second of "
                f"which is drawn over the first, but one is {column!r}."
            )
    if not chosen:
        over_time = {x: shown.over_time(names, x) for x, names in shown.groups()}
        over_time |= dict(shown.audit()) if event is None else {}
    panels = laid_out(
        over_time | pairs, shown.title, figure, is_shown=True, columns=1, width=_WIDTH,
        heights=[_HEIGHT] * len(over_time) + [_SQUARE] * len(pairs), legend=0,
    )  # fmt: skip
    stack = [panels.axes[name] for name in over_time]
    for ax in stack[:-1]:  # the same times, which are labelled at the lowest
        ax.sharex(stack[-1])
        ax.tick_params(labelbottom=False)
        ax.set_xlabel("")
    if stack:
        panels.figure.align_ylabels(stack)
    return panels


@dataclass(frozen=True, eq=False)
class _Shown:
    """The trajectories of a solution that did not fail, or their states at an event.

    A single trajectory is shown even if it failed.
    """

    sol: Solution
    good: np.ndarray  # (N,)
    event: str | None

    @property
    def record(self) -> Any:
        """The states at the event, if there is one."""
        return self.sol.events[self.event] if self.event and self.sol.events else None

    @property
    def title(self) -> str:
        failed = int((~self.good).sum())
        lost = f", {failed:,} failed and left out" if failed else ""
        many = f"{self.good.size:,} trajectories{lost}" if self.good.size > 1 else ""
        return ", ".join(filter(None, (many, self.event and f"at each {self.event}")))

    def each(self, values: object) -> np.ndarray:
        """An array of the solution with the good trajectories along its first axis."""
        array = np.asarray(values, float)
        flat = array.reshape(-1, *array.shape[np.ndim(self.sol.status) :])
        return np.asarray(flat[self.good])

    @property
    def ts(self) -> np.ndarray:
        """The times, (N, T)."""
        if self.record is not None:
            return self.each(self.record.t)
        return self.each(np.broadcast_to(self.sol.ts, np.shape(self.sol.energy)))

    def column(self, name: str) -> np.ndarray:
        """A column at these times, (N, T)."""
        if self.record is not None:
            return self.column_of(name, self.record.q, self.record.v)
        return self.each(self.sol[name])

    def column_of(self, name: str, q: Any, v: Any) -> np.ndarray:
        """A column of states, (N, K)."""
        entries = columns(self.sol.coordinates, self.sol.velocities)
        return self.each(Named(entries, {"q": q, "v": v}, "the solution")[name])

    def with_jumps(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Times and a column, and where they are drawn as lines its jumps at events, (N, T + J)."""
        times, values = [self.ts], [self.column(name)]
        # No controller acts at an event.
        events = self.sol.events if self.record is None and len(values[0]) <= MOST_LINES else None
        if events is not None and name in columns(self.sol.coordinates, self.sol.velocities):
            for x in map(events.__getitem__, events):
                if x.q_after is not None and x.v_after is not None:
                    times += [self.each(x.t)] * 2
                    values += [self.column_of(name, x.q, x.v)]
                    values += [self.column_of(name, x.q_after, x.v_after)]
        t, y = np.concatenate(times, axis=1), np.concatenate(values, axis=1)
        order = np.argsort(t, axis=1, kind="stable")  # what is before a jump comes first
        return np.take_along_axis(t, order, 1), np.take_along_axis(y, order, 1)

    def groups(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The labels and names of panels: columns of the same unit, rates apart."""
        sol = self.sol
        coordinates = shown_coordinates(sol.coordinates)
        states = tuple(x for x in sol.names if f"{INTEGRALS}{x}" in sol.coordinates)
        rates = tuple(x for x in sol.names if x not in {*coordinates, *states, *sol.memory_names})
        sampled = [x.removesuffix(".sample") for x in sol.memory_names if x.endswith(".sample")]
        own = tuple(f"{x}.{what}" for x in sampled for what in ("sample", "pending["))
        kept = tuple(x for x in sol.memory_names if not x.startswith(own))  # not what they count
        kinds = ("coordinates", coordinates), ("rates", rates), ("states", states)
        for kind, some in (*kinds, ("controllers", kept)):
            labels = [with_unit(name, sol.unit(name)) for name in some]
            for group in grouped_by_unit(labels):
                names = [some[k] for k in group]
                alone, unit = labels[group[0]], sol.unit(names[0])
                count = len(names)
                shown = f"{count} {kind}" if count > _MOST_NAMES or not unit else kind
                yield alone if count == 1 else with_unit(shown, unit), tuple(names)

    def over_time(self, names: Sequence[str], label: str) -> Drawing:
        """How columns are drawn over time."""

        def draw(ax: Axes) -> None:
            for k, name in enumerate(names[:_MOST_NAMES]):
                dots = "." if self.event else ""
                _curves(*self.with_jumps(name), order=k, name=name, ax=ax, marker=dots)
            labelled(ax, "t [s]", label)
            if len(names) > 1 or self.good.sum() > MOST_LINES:
                legend_beside(ax)
            if self.good.size > 1 or self.event or self.sol.events is None:
                return
            # The occurrences of events of a single trajectory.
            times = np.concatenate([np.ravel(self.sol.events[x].t) for x in self.sol.events])
            for t in times[np.isfinite(times)][:_MOST_EVENTS]:
                ax.axvline(t, color=GREY, linewidth=0.7, linestyle=":", zorder=1)

        return draw

    def over_each_other(self, x: str, y: str) -> Drawing:
        """How a column is drawn over another."""

        def draw(ax: Axes) -> None:
            across, up = self.column(x), self.column(y)
            if not self.event and len(across) > MOST_LINES:
                bins = int(np.clip(np.sqrt(across.size) / 4, 30, 100))
                states = np.ravel(across), np.ravel(up)
                style: Any = {"norm": LogNorm(vmin=1), "cmap": "viridis", "rasterized": True}
                *_, cells = ax.hist2d(*states, bins=bins, cmin=1, **style)
                with styled():
                    bar = ax.figure.colorbar(cells, ax=ax, label="saved states in a cell")
                keep_style(bar.ax).grid(False)
                bar.outline.set_visible(False)
            else:
                for k, states in enumerate(zip(across, up, strict=True)):
                    color = COLORS[k % len(COLORS)] if len(across) <= MOST_LINES else BLUE
                    style = "." if self.event else "-"
                    ax.plot(*states, style, color=color, markersize=3, linewidth=1.1)
                    if not self.event:
                        ax.plot(*(x[:1] for x in states), "o", color=color, markersize=3.5)
            units = self.sol.unit(x), self.sol.unit(y)
            labelled(ax, with_unit(x, units[0]), with_unit(y, units[1]))
            ax.margins(0.05)
            if units == ("m", "m"):
                ax.set_aspect("equal", adjustable="datalim")

        return draw

    def audit(self) -> Iterator[tuple[str, Drawing]]:
        """The panels that show how good the motion is."""
        sol, ts = self.sol, self.ts[0]
        energy = self.each(sol.energy)

        def draw_energy(ax: Axes) -> None:
            _curves(self.ts, energy, order=2, name="energy", ax=ax)
            labelled(ax, "t [s]", "energy [J]")

        if np.isfinite(sol.energy_drift).any():
            yield "energy drift", lambda ax: legend_beside(energy_drift(ts, energy, ax=ax))
        elif np.isfinite(energy).any():
            yield "energy", draw_energy
        position, velocity = self.each(sol.position_residual), self.each(sol.velocity_residual)
        if max(np.nanmax(position, initial=0.0), np.nanmax(velocity, initial=0.0)) > 0:
            yield "residual", lambda ax: legend_beside(drift(ts, position, velocity, ax=ax))
