"""The plots of a `Solution`: its columns over time or over each other, energy and residuals."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.plot.panels import Panels, entitled, labelled, legend_beside, share_time, shown_figure
from jaxmech.plot.stacked import sensor_groups
from jaxmech.plot.style import GREY, add_axes
from jaxmech.plot.trajectories import MOST_LINES, curves, drift, energy_drift, phase_portrait
from jaxmech.solution import Solution
from jaxmech.status import succeeded
from jaxmech.utils.units import INTEGRALS, Named, columns, shown_coordinates, with_unit

Drawing = Callable[[Axes], object]
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
    shown = Shown.of(sol, event)
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
    heights = [_HEIGHT] * len(over_time) + [_SQUARE] * len(pairs)
    width = _WIDTH if over_time else _SQUARE + 0.8
    figure = figure or shown_figure(width, sum(heights) + 0.4)
    rows = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    panels = {}
    for k, (name, draw) in enumerate((over_time | pairs).items()):
        panels[name] = add_axes(figure, rows[k])
        draw(panels[name])
    share_time([panels[name] for name in over_time])
    return Panels(entitled(figure, shown.title), panels)


@dataclass(frozen=True, eq=False)
class Shown:
    """The trajectories of a solution that did not fail, or their states at an event."""

    sol: Solution
    good: np.ndarray  # (N,)
    event: str | None

    @staticmethod
    def of(sol: Solution, event: str | None) -> "Shown":
        """Leave out trajectories that failed, unless there is only one."""
        status = np.ravel(sol.status)
        good = np.asarray(succeeded(status)) if status.size > 1 else np.ones(1, bool)
        if not good.any():
            raise ValueError(
                "The solution must have a trajectory to draw, but all of them failed; look at "
                "`status` and `t_failed`."
            )
        if event is not None and sol.events is None:
            raise ValueError("Argument `event` must be None for a simulation without events.")
        return Shown(sol, good, event)

    @property
    def title(self) -> str:
        """How many trajectories there are, and at which event they are drawn."""
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
        if self.event is not None and self.sol.events is not None:
            return self.each(self.sol.events[self.event].t)
        return self.each(np.broadcast_to(self.sol.ts, np.shape(self.sol.energy)))

    def column(self, name: str) -> np.ndarray:
        """A column at these times, (N, T)."""
        if self.event is None or self.sol.events is None:
            return self.each(self.sol[name])
        record = self.sol.events[self.event]
        entries = columns(self.sol.coordinates, self.sol.velocities)
        return self.each(Named(entries, {"q": record.q, "v": record.v}, "the solution")[name])

    def groups(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The labels and names of panels: columns of the same unit or like size, rates apart."""
        sol = self.sol
        names = shown_coordinates(sol.coordinates)
        states = tuple(x for x in sol.names if f"{INTEGRALS}{x}" in sol.coordinates)
        rates = tuple(x for x in sol.names if x not in {*names, *states})
        for kind, some in (("coordinates", names), ("rates", rates), ("states", states)):
            labels = [with_unit(name, sol.unit(name)) for name in some]
            sizes = [float(np.sqrt(np.nanmean(self.column(name) ** 2))) for name in some]
            for group in sensor_groups(sizes, labels):
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
                curves(self.ts, self.column(name), order=k, name=name, ax=ax, marker=dots)
            labelled(ax, "t [s]", label)
            if len(names) > 1 or self.good.sum() > MOST_LINES:
                legend_beside(ax)
            self._mark_events(ax)

        return draw

    def over_each_other(self, x: str, y: str) -> Drawing:
        """How a column is drawn over another."""

        def draw(ax: Axes) -> None:
            phase_portrait(self.column(x), self.column(y), ax=ax, dots=bool(self.event))
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
        if np.isfinite(sol.energy_drift).any():
            yield "energy drift", lambda ax: legend_beside(energy_drift(ts, energy, ax=ax))
        elif np.isfinite(energy).any():
            yield "energy", lambda ax: _energy(ax, self.ts, energy)
        position, velocity = self.each(sol.position_residual), self.each(sol.velocity_residual)
        if max(np.nanmax(position, initial=0.0), np.nanmax(velocity, initial=0.0)) > 0:
            yield "residual", lambda ax: legend_beside(drift(ts, position, velocity, ax=ax))

    def _mark_events(self, ax: Axes) -> None:
        """Mark the occurrences of events of a single trajectory by dotted lines."""
        if self.good.size > 1 or self.event or self.sol.events is None:
            return
        times = [np.ravel(self.sol.events[name].t) for name in self.sol.events]
        times = [t[np.isfinite(t)] for t in times]
        for t in np.concatenate(times)[:_MOST_EVENTS]:
            ax.axvline(t, color=GREY, linewidth=0.7, linestyle=":", zorder=1)


def _energy(ax: Axes, ts: np.ndarray, energy: np.ndarray) -> None:
    curves(ts, energy, order=2, name="energy", ax=ax)
    labelled(ax, "t [s]", "energy [J]")
