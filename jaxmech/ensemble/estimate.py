"""Memory and disk that a study will need, estimated from its sizes before any work."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

import jax

from jaxmech.config.errors import Problem, StudyError
from jaxmech.ensemble.study import Study

_BY_COORDINATE = {"q", "v", "qdd", "multipliers", "constraint_force"}
_ONCE = 7  # numbers of the audit, beside the series
_COPIES = 3  # of a block in memory: computed, in transfer, being stored
_ON_DEVICE = 2  # of a block in the memory of a GPU: computed, in transfer
LARGE = 2**30  # bytes from which a study is announced with its size
LONG = 60.0  # seconds from which the remaining time is announced
_MOST_STEPS = 2**31 - 1  # XLA counts the iterations of a loop in int32


@dataclass(frozen=True)
class StudyEstimate:
    """What a study needs, without compression, all in bytes.

    Attributes:
        disk: its results.
        memory: its draws and the blocks that are computed at a time.
        trajectory: the results of one trajectory.
        block: the results of one block.
        draws: all that is drawn.
    """

    disk: int
    memory: int
    trajectory: int
    block: int
    draws: int

    def __str__(self) -> str:
        return f"up to {in_bytes(self.disk)} of disk and {in_bytes(self.memory)} of memory"


def estimate(study: Study, coordinates: int) -> StudyEstimate:
    """What a study of so many coordinates needs, as many multipliers assumed.

    Example:
        >>> from jaxmech.ensemble import Times
        >>> print(estimate(Study(model="pendulum", size=10**6, times=Times(end=1.0)), 2))
        up to 5.71 GB of disk and 17.5 MB of memory
    """
    width = 8 if study.precision == "float64" else 4
    numbers = sum(coordinates if name in _BY_COORDINATE else 1 for name in study.save)
    trajectory = width * (study.times.saves * numbers + _ONCE)
    rules = (study.start, study.coordinates, study.velocities, study.parameters)
    draws = 8 * study.size * sum(map(len, rules))
    block = study.block_size * trajectory
    held = study.chunk_size // study.block_size + _COPIES - 1
    return StudyEstimate(study.size * trajectory, draws + held * block, trajectory, block, draws)


def require_possible(study: Study, coordinates: int, out: Path) -> StudyEstimate:
    """What a study needs, or a StudyError that names the key that makes it too large."""
    found = estimate(study, coordinates)
    problems = [*_problems(study, found, out)]
    if problems:
        raise StudyError(problems[:1])
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


def _problems(study: Study, found: StudyEstimate, out: Path) -> Iterator[Problem]:
    free, memory = _free_disk(out), _available_memory()
    steps = (study.times.saves - 1) * (study.method.substeps or 1)

    def beyond_memory(what: str, count: int) -> str:
        return f"{what} takes {in_bytes(count)} of memory, and {in_bytes(memory)} are there"

    if found.trajectory * _COPIES > memory:
        what = f"must be fewer: one trajectory with {study.times.saves} saves"
        yield Problem(("times", "saves"), beyond_memory(what, found.trajectory))
    if steps > _MOST_STEPS:
        text = f"must be fewer: {steps} steps in all are more than {_MOST_STEPS}"
        yield Problem(("method", "substeps"), text)
    if found.draws > memory:
        what = f"must be less: what is drawn for {study.size} trajectories"
        yield Problem(("size",), beyond_memory(what, found.draws))
    if found.block * _COPIES > memory:
        what = f"must be smaller: a block of {study.block_size} trajectories"
        yield Problem(("block",), beyond_memory(what, found.block * _COPIES))
    if found.block * _ON_DEVICE > (there := device_memory()):
        text = f"must be smaller: {_ON_DEVICE} blocks of {study.block_size} trajectories take"
        text += f" {in_bytes(found.block * _ON_DEVICE)} on the device, which has {in_bytes(there)}"
        yield Problem(("block",), text)
    if found.memory > memory:
        what = "must be smaller: what it holds"
        yield Problem(("chunk",), beyond_memory(what, found.memory))
    if found.disk > free:
        text = f"must be less: {study.size} trajectories take {in_bytes(found.disk)} of disk, and"
        text += f" {in_bytes(free)} are free; save fewer times or series"
        yield Problem(("size",), text)


def device_memory() -> float:
    """Bytes of the first device that JAX may use; infinity where it is unknown."""
    stats = jax.devices()[0].memory_stats() or {}
    return float(stats.get("bytes_limit", inf))


def _free_disk(out: Path) -> float:
    """Free bytes, counting those that the run folder already takes."""
    place = next((folder for folder in (out, *out.absolute().parents) if folder.is_dir()), Path())
    taken = sum(file.stat().st_size for file in out.glob("results.zarr/**/*") if file.is_file())
    return float(shutil.disk_usage(place).free + taken)


def _available_memory() -> float:
    """Free bytes, else all bytes of the machine, else infinity where neither is known."""
    listing = Path("/proc/meminfo")
    lines = listing.read_text().splitlines() if listing.is_file() else []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return inf
