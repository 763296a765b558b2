"""The size of a block, and the memory and disk that a study will need, before any work."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isqrt
from pathlib import Path

import jax
import numpy as np

from jaxmech.config.errors import Key, refuse
from jaxmech.ensemble.members.events import OF_ALL
from jaxmech.ensemble.members.observed import AUDIT
from jaxmech.ensemble.study import (
    LANES,
    LARGEST_DEFAULT_BLOCK,
    Study,
    steps_per_save,
)

_BY_COORDINATE = {"q", "v", "qdd", "multipliers", "constraint_force", "rates"}
_ONCE = 7  # numbers of the audit, beside the series
_SLICE = 2**24  # bytes of the series of a slice of a block
_COPIES = 3  # of a block in memory: computed, in transfer, being stored
_OF_STATES = 6  # of the states of statistics: before and after an update, of the total, packed
_ON_DEVICE = 2  # of a block in the memory of a GPU: computed, in transfer
_MOST_PARTS = 10**6  # of a block that are looked at
LARGE = 2**30  # bytes from which a study is announced with its size
LONG = 60.0  # seconds from which the remaining time is announced
_MOST_COUNTED = 2**31 - 1  # in int32, as XLA counts the iterations of a loop
# A GPU computes one trajectory in each thread. A large one runs some 34,000 threads at a time with
# the registers that a kernel needs; with twice as many trajectories, few threads idle at the end.
LARGEST_BLOCK = 2**16
LARGEST_RESULTS = 2**28  # bytes of a block, which is copied while the next one is computed
LARGEST_ON_A_CPU = 2**24  # bytes of a block there, so that few files hold short trajectories,
LONGEST_BLOCK = 2**24  # times the steps of its trajectories: the largest loss at an interruption
UNKNOWN_STEPS = 16
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
    """Estimate the needs of a study, assuming as many multipliers as coordinates."""
    drawn = _count_of_rules(study)
    members = study.store != "statistics"
    trajectory = _stored_bytes(study, coordinates) + 8 * drawn * members
    block = study.block_size * trajectory
    states = sum(_state_bytes(study, coordinates).values())
    at_a_time = len(study_devices())
    blocks_in_memory = study.chunk_size // study.block_size + _COPIES - 2 + at_a_time
    of_device = _slice_bytes(study, coordinates) + 16 * drawn * study.block_size
    of_device += _OF_STATES * states
    disk = study.size * trajectory + -(-study.size // study.block_size) * states
    return StudyEstimate(disk, blocks_in_memory * block + at_a_time * of_device, trajectory, block)


def sized(study: Study, coordinates: int, group: int = 1) -> Study:
    """The study with its block and chunk filled in, as large as is good for the first device."""
    if study.block is not None:
        if study.block % group:
            message = f"must be a multiple of {group}, the trajectories of a group of the design "
            raise refuse("block", f'{message}"{study.sampling.design}", but is {study.block}')
        return study.resolved()
    block, unit = _largest(study, coordinates), group if group > 1 else LANES
    return replace(study, block=-(-min(block, study.size) // unit) * unit).resolved()


def _largest(study: Study, coordinates: int) -> int:
    member_bytes = max(estimate(study, coordinates).trajectory, 1)
    if jax.devices()[0].platform == "cpu":
        steps = (study.times.saves - 1) * (steps_per_save(study) or UNKNOWN_STEPS)
        trajectories = min(LARGEST_ON_A_CPU // member_bytes, LONGEST_BLOCK // steps)
    else:
        trajectories = int(min(LARGEST_RESULTS, device_memory() / SHARE)) // member_bytes
    block = LARGEST_BLOCK
    while block > max(trajectories, LARGEST_DEFAULT_BLOCK):
        block //= 2
    return block


def slice_of(study: Study, coordinates: int, group: int = 1, ends: int = 0) -> int:
    """Trajectories that are computed at a time: a part of a block, of whole groups.

    The series of as many fit into a cache or so, at the saved times and at those between them at
    which a step `ends`; a device other than a CPU takes the whole block.
    """
    block = study.block_size
    if jax.devices()[0].platform != "cpu":
        return block
    largest = max(_SLICE // _computed_bytes(study, coordinates, ends), LANES)
    small = [part for part in range(1, min(isqrt(block), _MOST_PARTS) + 1) if block % part == 0]
    sizes = {size for part in small for size in (part, block // part) if size % group == 0}
    good = [size for size in sizes if LANES // 2 <= size <= largest]
    # Fewer than the lanes of native code would take many times as long: rather more memory.
    return max(good) if good else min((size for size in sizes if size > largest), default=block)


def _count_of_rules(study: Study) -> int:
    return sum(map(len, (study.start, study.coordinates, study.velocities, study.parameters)))


def _slice_bytes(study: Study, coordinates: int) -> int:
    member_bytes = _computed_bytes(study, coordinates)
    if jax.devices()[0].platform != "cpu":
        return 2 * min(_SLICE, study.block_size * member_bytes)
    return 2 * slice_of(study, coordinates) * member_bytes


def _computed_bytes(study: Study, coordinates: int, ends: int = 0) -> int:
    width = np.dtype(study.precision).itemsize
    series = (study.times.saves + ends) * (2 * coordinates + 3 + len(study.observe))
    return width * (series + sum(_event_numbers(study, coordinates).values()))


def _event_numbers(study: Study, coordinates: int) -> dict[str, int]:
    occurrences = {
        name: 1 if event.terminal else event.keep for name, event in study.events.items()
    }
    return {name: count * (1 + 2 * coordinates) for name, count in occurrences.items()}


def _state_bytes(study: Study, coordinates: int) -> dict[str, int]:
    # An observed quantity counts as one number: its shape is not known before it is traced.
    width = np.dtype(study.precision).itemsize

    def numbers(name: str) -> int:
        if (quantity := study.observe.get(name)) is not None:
            return 1 if quantity.keep != "all" else -(-study.times.saves // quantity.every)
        if name in (*AUDIT, *OF_ALL):
            return 1
        return study.times.saves * (coordinates if name in _BY_COORDINATE else 1)

    return {
        name: width * statistic.state_numbers(numbers, _count_of_rules(study))
        for name, statistic in study.statistics.items()
    }


def _stored_bytes(study: Study, coordinates: int) -> int:
    # An observed quantity counts as one number: its shape is not known before it is traced.
    if study.store == "statistics":
        return 0
    width = np.dtype(study.precision).itemsize
    names = (*study.save, *study.observe) if isinstance(study.store, str) else study.store
    numbers = sum(coordinates if name in _BY_COORDINATE else 1 for name in names)
    saves = 1 if study.store == "final" else study.times.saves
    stored_width = np.dtype(study.stored_precision or study.precision).itemsize
    events = sum(2 + event.keep * (1 + 2 * coordinates) for event in study.events.values())
    return stored_width * saves * numbers + width * (_ONCE + events)


def require_possible(study: Study, coordinates: int, out: Path) -> StudyEstimate:
    """Estimate the requirements of a study; a StudyError names the key that makes it too large."""
    forecast, memory, free = estimate(study, coordinates), _available_memory(), _free_disk(out)
    for key, message, required in _needs(study, coordinates, forecast):
        if required > memory:
            problem = f"{in_bytes(required)} of memory, but {in_bytes(memory)} are available"
            raise refuse(key, f"{message} {problem}")
    if (required := forecast.block * _ON_DEVICE) > (on_device := device_memory()):
        problem = f"must be smaller: {_ON_DEVICE} blocks of {study.block_size} trajectories take"
        problem += f" {in_bytes(required)} on the device, which has {in_bytes(on_device)}"
        raise refuse("block", problem)
    if study.size > _MOST_COUNTED and not jax.config.read("jax_enable_x64"):
        problem = (
            f"must be at most {_MOST_COUNTED} in float32, where trajectories are counted in 32"
        )
        raise refuse("size", f"{problem} bits, but is {study.size}")
    steps = (study.times.saves - 1) * (steps_per_save(study) or 1)
    if steps > _MOST_COUNTED:
        problem = f"must be fewer: {steps} steps in all are more than {_MOST_COUNTED}"
        raise refuse(("steps", "per_save"), problem)
    if forecast.disk > free:
        problem = (
            f"must be less: {study.size} trajectories take {in_bytes(forecast.disk)} of disk, and"
        )
        problem += f" {in_bytes(free)} are free; save fewer times or series"
        raise refuse("size", problem)
    return forecast


def _needs(
    study: Study, coordinates: int, forecast: StudyEstimate
) -> Iterator[tuple[Key, str, int]]:
    """The bytes of memory of each part of a study, by the key that makes it smaller."""
    yield from _needs_of_motions(study, coordinates, forecast)
    for name, count in _state_bytes(study, coordinates).items():
        key = ("statistics", name, study.statistics[name].size_key)
        yield key, "must be smaller: the state of this statistic takes", count * _OF_STATES
    message = f"must be smaller: a block of {study.block_size} trajectories takes"
    drawn = 16 * study.block_size * _count_of_rules(study)
    block_bytes = forecast.block * _COPIES + drawn + _slice_bytes(study, coordinates)
    yield ("block",), message, block_bytes
    yield ("chunk",), "must be smaller: a chunk takes", forecast.memory


def _needs_of_motions(
    study: Study, coordinates: int, forecast: StudyEstimate
) -> Iterator[tuple[Key, str, int]]:
    width = np.dtype(study.precision).itemsize
    for name, numbers in _event_numbers(study, coordinates).items():
        # Native code computes as many trajectories, however few are in a block.
        message = f"must be fewer: {study.events[name].keep} occurrences in each of {LANES}"
        event_bytes = LANES * numbers * width * _COPIES
        yield ("events", name, "keep"), f"{message} trajectories take", event_bytes
    saves = ("times", "saves")
    length = f"with {study.times.saves} saves"
    yield saves, f"must be fewer: one trajectory {length} takes", forecast.trajectory * _COPIES
    lanes = min(LANES, study.block_size)
    series = 2 * lanes * _computed_bytes(study, coordinates)
    yield saves, f"must be fewer: {lanes} trajectories {length} take", series


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
    # With what the run folder occupies already, which a continued run does not write again.
    location = next(
        (folder for folder in (out, *out.absolute().parents) if folder.is_dir()), Path()
    )
    occupied = sum(file.stat().st_size for file in out.glob("results.zarr/**/*") if file.is_file())
    disk = shutil.disk_usage(location)
    return float(disk.free + occupied) if disk.total else inf  # /proc, which cannot be written


def _available_memory() -> float:
    # The free bytes, else all of the machine, else infinity: an unknown limit refuses no study.
    listing = Path("/proc/meminfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return inf
