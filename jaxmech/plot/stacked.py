"""Axes below each other for sensors that cannot share one: of unlike units, or of unlike sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from jaxmech.identify import Predicted
from jaxmech.plot.panels import labelled
from jaxmech.plot.style import COLORS

_ALIKE = 10.0  # ratio of sizes up to which curves are drawn into the same axes
_NAMES = 3  # of sensors in the label of an axis


@dataclass(frozen=True)
class SensorAxes:
    """The axes of a recording, and the sensors that each of them shows."""

    axes: list[Axes]
    groups: list[list[int]]
    names: tuple[str, ...]

    @staticmethod
    def of(
        part: Predicted, recording: int, names: Sequence[str], sizes: np.ndarray, ax: Axes
    ) -> "SensorAxes":
        """The axes in the place of one, with the title of the recording."""
        count = len(sizes)
        titles = tuple(names) or (
            ("",) if count == 1 else tuple(f"sensor {k}" for k in range(count))
        )
        groups = sensor_groups(sizes.tolist(), titles)
        one, residual = part.recordings[recording], part.residuals[recording]
        measured = np.isfinite(one.observed)  # NaN of a failed prediction is not left out
        squares = [residual[:, group][measured[:, group]] ** 2 for group in groups]
        spread = ", ".join(f"{np.sqrt(x.mean()):.3g}" for x in squares)
        ax.set_title(f"{one.name}: RMS {spread}", fontsize="small")
        return SensorAxes(_divided(ax, len(groups)), groups, titles)

    def curves(self) -> Iterator[tuple[int, str, str, Axes]]:
        """The index, name, colour and axes of each sensor."""
        for ax, group in zip(self.axes, self.groups, strict=True):
            for k in group:
                yield k, self.names[k], COLORS[k % len(COLORS)], ax

    def labelled(self, alone: str, before: str) -> list[Axes]:
        """The axes with labels: of one `alone`, of several the names of their sensors."""
        for ax, group in zip(self.axes, self.groups, strict=True):
            names = _label([self.names[k] for k in group])
            unit = _unit(self.names[group[0]])
            one = f"{alone} [{unit}]" if unit else alone
            several = len(set(self.axes)) > 1
            labelled(ax, "t [s]" if ax is self.axes[-1] else "", before + names if several else one)
        return self.axes


def sensor_groups(sizes: Sequence[float], names: Sequence[str]) -> list[list[int]]:
    """The indices of the sensors that share axes, in the order of the first of each group.

    Those whose names end in the same unit in brackets; where a name has none, those of like size.

    Example:
        >>> sensor_groups([1.0, 2.0, 900.0], ["x", "y", "turn"])
        [[0, 1], [2]]
        >>> sensor_groups([1.0, 2.0, 900.0], ["x [m]", "turn [rad]", "y [m]"])
        [[0, 2], [1]]
    """
    units = [_unit(name) for name in names]
    if all(units):
        return [[k for k, x in enumerate(units) if x == unit] for unit in dict.fromkeys(units)]
    groups: list[list[int]] = []
    largest = 0.0
    for k in np.argsort(-np.asarray(sizes, float), kind="stable").tolist():
        if not groups or sizes[k] * _ALIKE < largest:
            groups.append([])
            largest = sizes[k]
        groups[-1].append(k)
    return sorted(map(sorted, groups))


def _unit(name: str) -> str:
    """The unit in brackets at the end of a name; empty if it has none."""
    head, _, unit = name.rpartition("[")
    return unit.removesuffix("]") if head and unit.endswith("]") else ""


def _label(names: Sequence[str]) -> str:
    """The names of the sensors of an axis, as far as they have room."""
    shown = [name for name in names if name]
    if len(shown) > _NAMES:
        return f"{shown[0]}, ..., {shown[-1]}"
    return ", ".join(shown)


def _divided(ax: Axes, count: int) -> list[Axes]:
    """Divide the area of axes in a figure among several with the same times, from the top."""
    slot = ax.get_subplotspec()
    if count == 1 or slot is None:
        return [ax] * count  # axes that are not part of a grid cannot be divided
    rows = slot.subgridspec(count, 1, hspace=0.08)
    ax.set_subplotspec(rows[0])
    figure = ax.get_figure()
    assert figure is not None
    parts = [ax, *(figure.add_subplot(rows[k], sharex=ax) for k in range(1, count))]
    for part in parts[:-1]:
        part.tick_params(labelbottom=False)
    return parts


def root_mean_squares(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The root mean square of each sensor over all recordings, (d,)."""
    rows = np.concatenate(columns)
    known = np.isfinite(rows)
    squares = np.where(known, rows, 0.0) ** 2
    roots: np.ndarray = np.sqrt(squares.sum(0) / np.maximum(known.sum(0), 1))
    return roots
