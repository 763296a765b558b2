"""Plots, which accept data and `ax=None`, return the Axes, and never show a window.

`style` and `panels` are shared by all, `stacked` by those of sensors; `motion`, `fit` and
`ensemble_figures` implement `sol.plot()`, `fit.plot()` and `results.plot()`. `trajectories`, `fit`,
`noise`, `derivatives`, `eigenvalues`, `methods` and `answers` draw into axes; `ensemble_figures`,
`failure_figures`, `replayed` and `fit` draw the pictures of a run folder, and `parameters` those of
a fit with their bounds. `animate` makes pictures and videos, by `animation`: `paths` are the shapes
over time, `links` makes solids of their lines and dots, `scene` draws a moment of them, with the
solids of `drawings`, `writers` write files, and `mode_track` makes a motion of a mode. `viewer` the
pages of `view`; both take the `motions` of a system.
"""

from jaxmech.plot.animate import animate as animate
from jaxmech.plot.animation import Animation as Animation
from jaxmech.plot.answers import HIGH as HIGH
from jaxmech.plot.answers import LOW as LOW
from jaxmech.plot.answers import BinnedDensity as BinnedDensity
from jaxmech.plot.answers import Influence as Influence
from jaxmech.plot.answers import distribution as distribution
from jaxmech.plot.answers import influences as influences
from jaxmech.plot.eigenvalues import modes as modes
from jaxmech.plot.eigenvalues import poles as poles
from jaxmech.plot.ensemble_figures import draw_pictures as draw_pictures
from jaxmech.plot.ensemble_figures import statistic_drawings as statistic_drawings
from jaxmech.plot.ensemble_figures import trajectory_figures as trajectory_figures
from jaxmech.plot.failure_figures import draw_failure as draw_failure
from jaxmech.plot.failure_figures import failure_figures as failure_figures
from jaxmech.plot.fit import draw_fit as draw_fit
from jaxmech.plot.fit import fit_over_data as fit_over_data
from jaxmech.plot.fit import loss as loss
from jaxmech.plot.fit import residuals as residuals
from jaxmech.plot.methods import work_precision as work_precision
from jaxmech.plot.noise import autocorrelation as autocorrelation
from jaxmech.plot.noise import normal_quantiles as normal_quantiles
from jaxmech.plot.noise import over_input as over_input
from jaxmech.plot.panels import Panels as Panels
from jaxmech.plot.panels import grid as grid
from jaxmech.plot.panels import labelled as labelled
from jaxmech.plot.panels import legend_below as legend_below
from jaxmech.plot.panels import save as save
from jaxmech.plot.panels import single as single
from jaxmech.plot.parameters import parameter_intervals as parameter_intervals
from jaxmech.plot.parameters import reliable_intervals as reliable_intervals
from jaxmech.plot.replayed import draw_replay as draw_replay
from jaxmech.plot.style import COLORS as COLORS
from jaxmech.plot.style import add_axes as add_axes
from jaxmech.plot.style import new_figure as new_figure
from jaxmech.plot.style import styled as styled
from jaxmech.plot.trajectories import drift as drift
from jaxmech.plot.trajectories import energy_drift as energy_drift
from jaxmech.plot.trajectories import phase_portrait as phase_portrait
from jaxmech.plot.trajectories import quantile_bands as quantile_bands
from jaxmech.plot.view import view as view

__all__ = [
    "Panels",
    "drift",
    "energy_drift",
    "modes",
    "phase_portrait",
    "poles",
    "quantile_bands",
    "work_precision",
]
