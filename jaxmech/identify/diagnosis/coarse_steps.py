"""Whether the steps of a fit are too coarse for its noise."""

from collections.abc import Iterator

from jaxmech.identify.inference.information import percent
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.rows import Task
from jaxmech.identify.problem.steps import is_too_coarse, largest_shift, needed_steps


def coarse_steps(task: Task, solved: Solved) -> Iterator[str]:
    """A warning if the integration error may move the estimates by more than the noise does."""
    error = solved.integration_error
    if not is_too_coarse(task, solved.y, error, converged=True):
        return
    remedy = "give smaller tolerances, such as `steps=Adaptive(rtol=1e-9)`"
    if solved.per_save is not None:
        number = needed_steps(task, solved.y)
        if number <= solved.per_save:
            return
        remedy = f"give `steps=FixedSteps(per_save={number})`"
        if not task.chooses_steps:
            remedy += ", or leave `steps` out to have them chosen"
    shift = largest_shift(task, solved.y, error)
    yield (
        f"Steps too coarse: the integration error, {percent(error)} of the motion, may move the "
        f"estimates by {shift:.2g} standard errors; {remedy}."
    )
