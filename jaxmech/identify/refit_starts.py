"""Errors of recordings with the parameters held and only their initial states fitted."""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.identifiable import Identifiable, Settings
from jaxmech.identify.optimize.levenberg_marquardt import LevenbergMarquardt, steps
from jaxmech.identify.problem.least_squares import Task
from jaxmech.identify.problem.parameters import parameters
from jaxmech.identify.problem.residuals import runs
from jaxmech.identify.problem.setup import prepare
from jaxmech.identify.result import Predicted
from jaxmech.system import Params

_POLICY = LevenbergMarquardt(iterations=50, tolerance=1e-10)


def errors_with_fitted_starts(
    subject: Identifiable, params: Params, recordings: Sequence[Recording],
    settings: Settings = Settings(),
) -> np.ndarray:  # fmt: skip
    """RMS errors (R,) of recordings with only their initial states fitted; NaN after a failure."""
    # A wrong model shows in them even where recorded initial states have larger errors than the
    # model, as long as the recordings are so long that an initial state cannot make up for it.
    first = parameters(params).layout.names[0].partition("[")[0]
    held = replace(subject, params=params, free=(first,), bounds={}, prior={})
    given = [one if one.weights is not None else replace(one, start_sd=None) for one in recordings]
    task = _without_parameters(
        prepare(held, given, replace(settings, initial_states="free", horizon=None))
    )
    y = task.y
    for at in steps(_POLICY, task, y, task.conditions) if y.size else ():
        y = at.y
    found = runs(task.problem, y, task.data)
    return Predicted(task.origin.recordings, task.origin.gathered(found.predicted)).errors


def _without_parameters(task: Task) -> Task:
    """The task with its initial states as the only unknowns."""
    layout = task.problem.layout
    none = replace(layout, free=(), transforms=(), entries=(), names=())
    prior = jnp.zeros(0)
    return replace(
        task,
        problem=replace(task.problem, layout=none),
        conditions=replace(task.conditions, prior_mean=prior, prior_weight=prior),
        y=task.y[layout.size :],
    )
