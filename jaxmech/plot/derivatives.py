"""Plots of derivatives: differences over their step sizes."""

import numpy as np
from matplotlib.axes import Axes

from jaxmech.plot.panels import axes_or_new, labelled
from jaxmech.plot.style import COLORS, GREY
from jaxmech.sensitivity import GradientCheck

STYLES = ("-", "--", ":")
_SMALLEST = 1e-16  # stands in for an exact zero on a logarithmic axis


def gradient_sweep(check: GradientCheck, *, ax: Axes | None = None) -> Axes:
    """Draw the difference of extrapolated finite differences and the gradient over the step size.

    A correct gradient yields a V, with round-off on the left and truncation error on the right; the
    curve of a wrong one levels off at its error. A dot marks the selected step size.

    Args:
        check: a result of `check_gradients`.
        ax: axes to draw into.

    Returns:
        The axes, both logarithmic; errors relative to the largest derivative of each number.

    Example:
        >>> from jaxmech.sensitivity.tangents import sweep
        >>> one, sizes = np.ones(1), 10.0 ** -np.arange(1, 9)
        >>> found = sweep(sizes, one, np.sinh(sizes)[None] / sizes, 2e-16)
        >>> check = GradientCheck(("x",), one, one, found, 1.0, 100, 1e-6, 1e-12 * one, {})
        >>> gradient_sweep(check).get_xlabel()
        'relative step size'
    """
    ax = axes_or_new(ax)
    sweep = check.sweep
    for k, name in enumerate(check.names):
        size = max(abs(check.reverse[k]), np.nanmax(abs(sweep.extrapolated[k]), initial=0.0))
        error = np.abs(sweep.extrapolated[k] - check.reverse[k]) / (size or 1.0)
        errors = np.maximum(error, _SMALLEST)
        color, style = COLORS[k % len(COLORS)], STYLES[k // len(COLORS) % len(STYLES)]
        ax.plot(sweep.sizes[1:], errors, color=color, linestyle=style, linewidth=1.2, label=name)
        if sweep.chosen[k] >= 0:
            ax.plot(
                sweep.sizes[1:][sweep.chosen[k]], errors[sweep.chosen[k]], "o", color=GREY, ms=4
            )
    ax.axhline(check.tolerance, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    return labelled(ax, "relative step size", "|difference - gradient|, relative", legend=True)
