"""Plots of analyses: eigenvalues and modes, and the work and precision of methods."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from jaxmech.analysis import Modes
from jaxmech.plot.panels import BLUE, COLORS, GREY, ORANGE, axes_or_new, heat_map, labelled

_UPRIGHT = 6  # modes whose frequencies have room side by side
_AXIS = 1e-9  # relative to the largest eigenvalue: real parts that count as positive


def poles(spectrum: Modes | np.ndarray, *, ax: Axes | None = None) -> Axes:
    """Draw eigenvalues in the complex plane, those to the right of the imaginary axis in orange.

    Args:
        spectrum: a result of `modes`, also for a batch; or eigenvalues, shape (..., j).
        ax: axes to draw into.

    Returns:
        The axes, both in 1/s.
    """
    ax = axes_or_new(ax)
    eigenvalues = np.asarray(spectrum.eigenvalues if isinstance(spectrum, Modes) else spectrum)
    values, is_batch = eigenvalues[np.isfinite(eigenvalues)], eigenvalues.ndim > 1
    is_unstable = values.real > _AXIS * np.abs(values).max(initial=0.0)
    style: dict[str, Any] = {"linestyle": "", "marker": "." if is_batch else "x"}
    style |= {"markersize": 3 if is_batch else 8, "alpha": 0.5 if is_batch else 1.0}
    for chosen, color, label in (
        (~is_unstable, BLUE, "not growing"),
        (is_unstable, ORANGE, "growing"),
    ):
        if chosen.any():
            ax.plot(values.real[chosen], values.imag[chosen], color=color, label=label, **style)
    _imaginary_axis(ax)
    labelled(ax, "real part [1/s]", "imaginary part [1/s]", legend=bool(is_unstable.any()))
    return _with_room(ax)


def modes(spectrum: Modes, *, ax: Axes | None = None) -> Axes:
    """Draw the shapes of the modes: one column for each, with its frequency below.

    A cell shows the deviation of a coordinate relative to the largest, and its colour the part in
    phase with it. One of each conjugate pair is drawn; modes of eigenvalue zero are not.

    Args:
        spectrum: a result of `modes` for one linearization.
        ax: axes to draw into.

    Raises:
        ValueError: if the modes are a batch.

    Example:
        >>> import jaxmech as jm
        >>> model = jm.models.double_pendulum()
        >>> hanging = jm.analysis.equilibrium(model.system, [0.0, -1.0, 0.0, -2.0], model.params)
        >>> ax = modes(jm.analysis.modes(hanging.linearization))
        >>> [label.get_text() for label in ax.get_xticklabels()]
        ['0.382 Hz', '0.921 Hz']
    """
    if np.ndim(spectrum.eigenvalues) != 1:
        raise ValueError("Argument `found` must be the modes of one linearization, not a batch.")
    ax, values = axes_or_new(ax), np.asarray(spectrum.eigenvalues)
    is_vibration = (values.imag >= 0) & ~np.asarray(spectrum.zero)
    shapes, values = np.asarray(spectrum.shapes)[:, is_vibration], values[is_vibration]
    texts = [[_cell(complex(x)) for x in row] for row in shapes]
    columns = [_column(complex(x)) for x in values]
    names = spectrum.coordinates
    slant = {"rotation": 45, "ha": "right"} if len(columns) > _UPRIGHT else {}
    return heat_map(ax, shapes.real, texts, names, columns, aspect="auto", **slant)


def _imaginary_axis(ax: Axes) -> None:
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.axhline(0, color=GREY, linewidth=0.4)


def _with_room(ax: Axes) -> Axes:
    ax.margins(0.08)
    ax.autoscale_view()
    return ax


def _cell(x: complex) -> str:
    """Format a number, with its phase if it is neither 0 nor half a turn."""
    if abs(x.imag) <= 1e-6 * max(abs(x), 1e-3):
        return f"{round(x.real, 2) + 0.0:.2f}"
    return f"{abs(x):.2f}∠{np.degrees(np.angle(x)):.0f}°"


def _column(x: complex) -> str:
    return f"{x.imag / (2 * np.pi):.3g} Hz" if x.imag else f"{x.real:.3g} /s"


_STYLES = ("o-", "s--", "x:")


def work_precision(
    runs: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    work: str = "processor time [s]",
    error: str = "error at the end",
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the error of methods over their work, for several tolerances or steps of each.

    Args:
        runs: by the name of a method, its work and its errors, shape (k,) each; errors that are
            zero or not finite are left out.
        work: label of the horizontal axis.
        error: label of the vertical axis.
        legend: whether to name the methods.
        ax: axes to draw into.

    Returns:
        The axes, both logarithmic.
    """
    ax = axes_or_new(ax)
    for k, (name, (times, errors)) in enumerate(runs.items()):
        cost, size = np.asarray(times, float), np.asarray(errors, float)
        known = np.isfinite(size) & (size > 0)
        style = _STYLES[k // len(COLORS) % len(_STYLES)]
        color = COLORS[k % len(COLORS)]
        ax.loglog(cost[known], size[known], style, color=color, linewidth=1, label=name)
    labelled(ax, work, error, legend=legend)
    ax.margins(0.04)
    return ax
