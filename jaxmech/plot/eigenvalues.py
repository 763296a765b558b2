"""`modes`: the shapes of the modes of a linearization."""

import numpy as np
from matplotlib.axes import Axes

from jaxmech.analysis import Modes
from jaxmech.plot.panels import axes_or_new, heat_map

_UPRIGHT = 6  # modes whose frequencies have room side by side


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
        raise ValueError("Argument `spectrum` must be the modes of one linearization, not a batch.")
    ax, values = axes_or_new(ax), np.asarray(spectrum.eigenvalues)
    is_vibration = (values.imag >= 0) & ~np.asarray(spectrum.zero)
    shapes, values = np.asarray(spectrum.shapes)[:, is_vibration], values[is_vibration]
    texts = [[_cell(complex(x)) for x in row] for row in shapes]
    columns = [_column(complex(x)) for x in values]
    names = spectrum.coordinates
    slant = {"rotation": 45, "ha": "right"} if len(columns) > _UPRIGHT else {}
    return heat_map(ax, shapes.real, texts, names, columns, aspect="auto", **slant)


def _cell(x: complex) -> str:
    """Format a number, with its phase if it is neither 0 nor half a turn."""
    if abs(x.imag) <= 1e-6 * max(abs(x), 1e-3):
        return f"{round(x.real, 2) + 0.0:.2f}"
    return f"{abs(x):.2f}∠{np.degrees(np.angle(x)):.0f}°"


def _column(x: complex) -> str:
    return f"{x.imag / (2 * np.pi):.3g} Hz" if x.imag else f"{x.real:.3g} /s"
