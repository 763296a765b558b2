"""Plots, which accept data and `ax=None`, return the Axes, and never show a window.

`panels` has the style, axes and grids of all. `trajectories` and `fit` draw into axes, and
implement `sol.plot()` and `fit.plot()`; `studies` implements `results.plot()`.

`mechanisms` draws bodies, joints and forces as solids. `motions` are what `animation` and `viewer`
show of a system, its shapes over time; a `scene` is a moment of them, as pictures and videos draw
it, and `viewer` makes the pages of `view`.
"""

from jaxmech.plot.animation import Animation as Animation
from jaxmech.plot.animation import animate as animate
from jaxmech.plot.fit import fit_over_data as fit_over_data
from jaxmech.plot.fit import plot_fit as plot_fit
from jaxmech.plot.fit import residuals as residuals
from jaxmech.plot.panels import Panels as Panels
from jaxmech.plot.panels import add_axes as add_axes
from jaxmech.plot.panels import legend_below as legend_below
from jaxmech.plot.panels import new_figure as new_figure
from jaxmech.plot.panels import styled as styled
from jaxmech.plot.studies import HIGH as HIGH
from jaxmech.plot.studies import LOW as LOW
from jaxmech.plot.studies import distribution as distribution
from jaxmech.plot.studies import is_series as is_series
from jaxmech.plot.studies import plot_results as plot_results
from jaxmech.plot.studies import statistic_drawings as statistic_drawings
from jaxmech.plot.studies import trajectory_figures as trajectory_figures
from jaxmech.plot.studies import trust_drawings as trust_drawings
from jaxmech.plot.trajectories import drift as drift
from jaxmech.plot.trajectories import energy_drift as energy_drift
from jaxmech.plot.trajectories import plot_motion as plot_motion
from jaxmech.plot.trajectories import quantile_bands as quantile_bands
from jaxmech.plot.viewer import view as view

__all__ = [
    "Panels",
    "drift",
    "energy_drift",
    "quantile_bands",
]
