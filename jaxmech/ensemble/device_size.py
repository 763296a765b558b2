"""The number of trajectories of a study that a device computes at a time."""

from dataclasses import replace

import jax

from jaxmech.config.errors import refuse
from jaxmech.ensemble.estimate import device_memory, estimate
from jaxmech.ensemble.study import LANES, LARGEST_DEFAULT_BLOCK, Study, substeps_of

# A GPU computes one trajectory in each thread. A large one runs some 34,000 threads at a time with
# the registers that a kernel needs; with twice as many trajectories, few threads idle at the end.
LARGEST_BLOCK = 2**16
LARGEST_RESULTS = 2**28  # bytes of a block, which is copied while the next one is computed
LARGEST_ON_A_CPU = 2**24  # bytes of a block there, so that few files hold short trajectories,
LONGEST_BLOCK = 2**24  # times the steps of its trajectories: the largest loss at an interruption
UNKNOWN_SUBSTEPS = 16
SHARE = 16  # of the memory of a device: largest part for the results of a block


def sized(study: Study, coordinates: int, group: int = 1) -> Study:
    """The study with its block and chunk filled in, as large as is good for the first device."""
    if study.block is not None:
        if study.block % group:
            text = f"must be a multiple of {group}, the trajectories of a group of the design "
            raise refuse("block", f'{text}"{study.sampling.design}", but is {study.block}')
        return study.resolved()
    block, unit = _largest(study, coordinates), group if group > 1 else LANES
    return replace(study, block=-(-min(block, study.size) // unit) * unit).resolved()


def _largest(study: Study, coordinates: int) -> int:
    each = max(estimate(study, coordinates).trajectory, 1)
    if jax.devices()[0].platform == "cpu":
        steps = (study.times.saves - 1) * (substeps_of(study) or UNKNOWN_SUBSTEPS)
        trajectories = min(LARGEST_ON_A_CPU // each, LONGEST_BLOCK // steps)
    else:
        trajectories = int(min(LARGEST_RESULTS, device_memory() / SHARE)) // each
    block = LARGEST_BLOCK
    while block > max(trajectories, LARGEST_DEFAULT_BLOCK):
        block //= 2
    return block
