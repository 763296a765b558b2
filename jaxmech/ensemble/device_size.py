"""How many trajectories of a study a device computes at a time."""

import jax

from jaxmech.ensemble.estimate import device_memory, estimate
from jaxmech.ensemble.study import LARGEST_DEFAULT_BLOCK, Study

# A GPU computes one trajectory in each thread. A large one runs some 34,000 threads at a time, with
# as many registers as a kernel takes, and few of them wait at the end of twice as many.
LARGEST_ON_A_GPU = 2**16
LARGEST_RESULTS = 2**28  # bytes of a block, which is copied while the next one is computed
SHARE = 16  # of the memory of a device: the part that the results of a block take at most


def sized(study: Study, coordinates: int) -> Study:
    """The study with its block and chunk filled in, as large as is good for the first device.

    Args:
        study: a study; a block that it names is kept.
        coordinates: of its system.
    """
    if study.block is not None or jax.devices()[0].platform == "cpu":
        return study.resolved()
    most = int(min(LARGEST_RESULTS, device_memory() / SHARE))
    trajectories = most // estimate(study, coordinates).trajectory
    block = LARGEST_ON_A_GPU
    while block > max(trajectories, LARGEST_DEFAULT_BLOCK):
        block //= 2
    return study.resolved(block)
