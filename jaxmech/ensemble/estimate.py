"""The size of a block, and the memory and disk that a study will need, before any work."""

import os
import shutil
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import jax
import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.study import LANES, LARGEST_DEFAULT_BLOCK, Study, substeps_of

_BY_COORDINATE = {"q", "v", "qdd", "multipliers", "constraint_force"}
_ONCE = 7  # numbers of the audit, beside the series
_SLICE = 2**24  # bytes of the series of a slice of a block
_COPIES = 3  # of a block in memory: computed, in transfer, being stored
_ON_DEVICE = 2  # of a block in the memory of a GPU: computed, in transfer
LARGE = 2**30  # bytes from which a study is announced with its size
LONG = 60.0  # seconds from which the remaining time is announced
_MOST_STEPS = 2**31 - 1  # XLA counts the iterations of a loop in int32
# A GPU computes one trajectory in each thread. A large one runs some 34,000 threads at a time with
# the registers that a kernel needs; with twice as many trajectories, few threads idle at the end.
LARGEST_BLOCK = 2**16
LARGEST_RESULTS = 2**28  # bytes of a block, which is copied while the next one is computed
LARGEST_ON_A_CPU = 2**24  # bytes of a block there, so that few files hold short trajectories,
LONGEST_BLOCK = 2**24  # times the steps of its trajectories: the largest loss at an interruption
UNKNOWN_SUBSTEPS = 16
SHARE = 16  # of the memory of a device: largest part for the results of a block


@dataclass(frozen=True)
class StudyEstimate:
    """The requirements of a study, without compression, all in bytes."""

    disk: int  # its results
    memory: int  # the blocks that are computed and stored at a time, with their draws
    trajectory: int  # the results of one trajectory
    block: int  # the results of one block

    def __str__(self) -> str:
        return f"up to {in_bytes(self.disk)} of disk and {in_bytes(self.memory)} of memory"


def estimate(study: Study, coordinates: int) -> StudyEstimate:
    """Estimate the needs of a study, assuming as many multipliers as coordinates.

    Example:
        >>> from jaxmech.ensemble import Times
        >>> print(estimate(Study(model="pendulum", size=10**6, times=Times(end=1.0)), 2))
        up to 5.71 GB of disk and 29.1 MB of memory
    """
    rules = (study.start, study.coordinates, study.velocities, study.parameters)
    drawn = sum(map(len, rules))
    trajectory = _stored_bytes(study, coordinates) + 8 * drawn * (study.store != "statistics")
    block = study.block_size * trajectory
    at_a_time = len(study_devices())
    held = study.chunk_size // study.block_size + _COPIES - 2 + at_a_time
    slices = 2 * min(_SLICE, study.block_size * _computed_bytes(study, coordinates))
    memory = held * block + at_a_time * (slices + 16 * drawn * study.block_size)
    return StudyEstimate(study.size * trajectory, memory, trajectory, block)


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


def slice_of(study: Study, coordinates: int, group: int = 1) -> int:
    """Trajectories that are computed at a time: a part of a block, of whole groups.

    The series of as many fit into a cache or so; a device other than a CPU takes the whole block.
    """
    block = study.block_size
    if jax.devices()[0].platform != "cpu":
        return block
    most = max(_SLICE // _computed_bytes(study, coordinates), LANES)
    parts = (part for part in range(1, block + 1) if block % part == 0)
    whole = (block // part for part in parts if block // part <= most or block // part <= LANES)
    return next((size for size in whole if size % group == 0), block)


def _computed_bytes(study: Study, coordinates: int) -> int:
    """The bytes of the series of one trajectory, as they are computed."""
    width = np.dtype(study.precision).itemsize
    return width * study.times.saves * (2 * coordinates + 3 + len(study.observe))


def _stored_bytes(study: Study, coordinates: int) -> int:
    """The bytes of the results of one trajectory; an observed quantity counts as one number."""
    if study.store == "statistics":
        return 0
    width = np.dtype(study.precision).itemsize
    names = (*study.save, *study.observe) if isinstance(study.store, str) else study.store
    numbers = sum(coordinates if name in _BY_COORDINATE else 1 for name in names)
    saves = 1 if study.store == "final" else study.times.saves
    each = np.dtype(study.stored_precision or study.precision).itemsize
    events = sum(2 + one.keep * (1 + 2 * coordinates) for one in study.events.values())
    return each * saves * numbers + width * (_ONCE + events)


def require_possible(study: Study, coordinates: int, out: Path) -> StudyEstimate:
    """Estimate the requirements of a study; a StudyError names the key that makes it too large."""
    found, memory, free = estimate(study, coordinates), _available_memory(), _free_disk(out)
    steps = (study.times.saves - 1) * (substeps_of(study) or 1)

    def beyond_memory(what: str, count: int) -> str:
        return f"{what} takes {in_bytes(count)} of memory, but {in_bytes(memory)} are available"

    if (needed := found.trajectory * _COPIES) > memory:
        what = f"must be fewer: one trajectory with {study.times.saves} saves"
        raise refuse(("times", "saves"), beyond_memory(what, needed))
    if steps > _MOST_STEPS:
        text = f"must be fewer: {steps} steps in all are more than {_MOST_STEPS}"
        raise refuse(("method", "substeps"), text)
    if (needed := found.block * _COPIES) > memory:
        what = f"must be smaller: a block of {study.block_size} trajectories"
        raise refuse("block", beyond_memory(what, needed))
    if (needed := found.block * _ON_DEVICE) > (there := device_memory()):
        text = f"must be smaller: {_ON_DEVICE} blocks of {study.block_size} trajectories take"
        text += f" {in_bytes(needed)} on the device, which has {in_bytes(there)}"
        raise refuse("block", text)
    if found.memory > memory:
        raise refuse("chunk", beyond_memory("must be smaller: a chunk", found.memory))
    if found.disk > free:
        text = f"must be less: {study.size} trajectories take {in_bytes(found.disk)} of disk, and"
        text += f" {in_bytes(free)} are free; save fewer times or series"
        raise refuse("size", text)
    return found


def in_bytes(count: int | float) -> str:
    """A readable number of bytes, such as "3.2 GB"."""
    count = min(count, 10**30)  # larger integers may overflow a float
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} EB"


def in_time(seconds: float) -> str:
    """A readable duration, such as "1.5 h"."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


def study_devices() -> list[jax.Device]:
    """The devices that compute a block each: all, or the one of `jax.default_device`."""
    if jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return list(jax.numpy.zeros(()).devices())
    return jax.local_devices()


def device_memory() -> float:
    """The bytes of the first device that JAX may use; infinity where unknown."""
    stats = jax.devices()[0].memory_stats() or {}
    return float(stats.get("bytes_limit", inf))


def _free_disk(out: Path) -> float:
    """The free bytes, counting those that the run folder already occupies."""
    place = next((folder for folder in (out, *out.absolute().parents) if folder.is_dir()), Path())
    taken = sum(file.stat().st_size for file in out.glob("results.zarr/**/*") if file.is_file())
    return float(shutil.disk_usage(place).free + taken)


def _available_memory() -> float:
    """The free bytes, else all bytes of the machine, else infinity where neither is known."""
    listing = Path("/proc/meminfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return inf
