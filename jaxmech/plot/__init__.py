"""Plots, which accept data and `ax=None`, return the Axes, and never show a window.

`style` and `panels` are shared by all, `stacked` by those of sensors; `motion`, `fit` and
`ensemble_figures` implement `sol.plot()`, `fit.plot()` and `results.plot()`. `trajectories`, `fit`,
`noise`, `derivatives`, `eigenvalues`, `methods` and `answers` draw into axes; `ensemble_figures`,
`failure_figures`, `replayed` and `fit` draw the pictures of a run folder, and `parameters` those of
a fit with their bounds.
`animation` implements `jm.animate`: `paths` are the shapes over time, `links` makes solids of their
lines and dots, `scene` draws a moment of them, with the solids of `drawings`, `writers` write
files, and `mode_track` makes a motion of a mode. `viewer` implements `jm.view`.
"""

from jaxmech.plot.eigenvalues import modes as modes
from jaxmech.plot.eigenvalues import poles as poles
from jaxmech.plot.methods import work_precision as work_precision
from jaxmech.plot.panels import Panels as Panels
from jaxmech.plot.trajectories import drift as drift
from jaxmech.plot.trajectories import energy_drift as energy_drift
from jaxmech.plot.trajectories import phase_portrait as phase_portrait
from jaxmech.plot.trajectories import quantile_bands as quantile_bands
