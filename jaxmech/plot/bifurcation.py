"""Plots of equilibria over a parameter, with folds, branch points and Hopf points."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxmech.analysis.equilibrium import Bifurcation, Stability
from jaxmech.plot.panels import COLORS, GREY, axes_or_new, labelled

MARKS = {"fold": "o", "branch point": "D", "Hopf": "s"}


def bifurcation(
    diagram: Bifurcation, *, coordinate: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a coordinate of equilibria over the parameter: solid where stable, else dashed.

    Args:
        diagram: a result of `continuation`.
        coordinate: name of the coordinate; by default the one that changes most.
        ax: axes to draw into.

    Returns:
        The axes, with special points as marks.

    Raises:
        ValueError: if the coordinate does not exist.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> def hoop(q, v, t, p):
        ...     return (v[0] ** 2 + (p["w"] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])
        >>> bead = jm.System(hoop, coordinates=("angle",))
        >>> ax = bifurcation(jm.analysis.continuation(bead, [0.0], {"w": 2.0}, "w", 5.0, step=0.1))
        >>> ax.get_ylabel()
        'angle'
    """
    names = diagram.branches[0].coordinates
    if coordinate is not None and coordinate not in names:
        raise ValueError(
            f"Argument `coordinate` must be one of {', '.join(names)}, but is {coordinate!r}."
        )
    positions = np.concatenate([branch.q for branch in diagram.branches])
    column = names.index(coordinate) if coordinate else int(np.argmax(np.ptp(positions, axis=0)))
    ax = axes_or_new(ax)
    for number, branch in enumerate(diagram.branches):
        color = COLORS[number % len(COLORS)]
        stable = branch.stability > Stability.UNSTABLE
        x, y = branch.values, branch.q[:, column]
        cuts = np.flatnonzero(np.diff(stable)) + 1
        special_points = {point.behind: (point.value, point.q[column]) for point in branch.special}
        for piece in np.split(np.arange(len(x)), cuts):
            first, last = int(piece[0]), int(piece[-1])
            start: list[Any] = [special_points[first - 1]] if first - 1 in special_points else []
            end: list[Any] = [special_points[last]] if last in special_points else []
            end = end or [*zip(x[last + 1 : last + 2], y[last + 1 : last + 2], strict=True)]
            points = np.array([*start, *zip(x[piece], y[piece], strict=True), *end], float)
            style = "-" if stable[first] else "--"
            ax.plot(*points.T, color=color, linestyle=style, linewidth=1.4)
    for kind, mark in MARKS.items():
        marks = [(s.value, float(s.q[column])) for s in diagram.special if s.kind == kind]
        if marks:
            ax.plot(*zip(*marks, strict=True), mark, color=GREY, markersize=5, label=kind)
    ax.plot([], [], color=GREY, label="stable")
    ax.plot([], [], color=GREY, linestyle="--", label="unstable")
    return labelled(ax, diagram.branches[0].parameter, names[column], legend=True)
