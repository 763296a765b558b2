"""The plot of work and precision, by which methods are compared."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from jaxmech.plot.panels import axes_or_new, labelled
from jaxmech.plot.style import COLORS

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

    Example:
        >>> ax = work_precision({"RK4": ([1e-3, 2e-3], [1e-5, 6e-7])})
        >>> ax.get_xscale(), ax.get_ylabel()
        ('log', 'error at the end')
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
