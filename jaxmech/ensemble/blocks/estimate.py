"""The size of a block, and the disk that a study takes, before anything is compiled."""

import shutil
from dataclasses import replace
from math import inf, isqrt
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.study import LANES, LARGEST_DEFAULT_BLOCK, Study
from jaxmech.integrate import FixedSteps

_SLICE = 2**24  # bytes of the series of a slice of a block
_MOST_COUNTED = 2**31 - 1  # in int32, as XLA counts the iterations of a loop
# A GPU computes one trajectory in each thread. A large one runs some 34,000 threads at a time with
# the registers that a kernel needs; with twice as many trajectories, few threads idle at the end.
LARGEST_BLOCK = 2**16
LARGEST_RESULTS = 2**28  # bytes of a block, which is copied while the next one is computed
LARGEST_ON_A_CPU = 2**24  # bytes of a block there, so that few files hold short trajectories,
LONGEST_BLOCK = 2**24  # times the steps of its trajectories: the largest loss at an interruption
UNKNOWN_STEPS = 16
SHARE = 16  # of the memory of a device: largest part for the results of a block


def _steps_per_save(study: Study) -> int | None:
    return study.steps.per_save if isinstance(study.steps, FixedSteps) else None


def bytes_of(shapes: Any) -> int:
    """The bytes of arrays of some shapes and types."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))


def sized(study: Study, trajectory: int) -> Study:
    """The study with its block filled in, as large as is good for the first device.

    Args:
        study: the study; a block that it names is kept.
        trajectory: the bytes that one trajectory stores.
    """
    if study.block is not None:
        return study
    if jax.devices()[0].platform == "cpu":
        steps = (study.times.saves - 1) * (_steps_per_save(study) or UNKNOWN_STEPS)
        most = min(LARGEST_ON_A_CPU // max(trajectory, 1), LONGEST_BLOCK // steps)
    else:
        memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", inf)
        most = int(min(LARGEST_RESULTS, memory / SHARE)) // max(trajectory, 1)
    block = LARGEST_BLOCK
    while block > max(most, LARGEST_DEFAULT_BLOCK):
        block //= 2
    return replace(study, block=-(-min(block, study.size) // LANES) * LANES)


def slice_of(study: Study, coordinates: int, ends: int = 0) -> int:
    """Trajectories that are computed at a time: a part of a block.

    The series of as many fit into a cache or so, at the saved times and at those between them at
    which a step `ends`; a device other than a CPU takes the whole block.
    """
    block = study.block_size
    if jax.devices()[0].platform != "cpu":
        return block
    series = (study.times.saves + ends) * (2 * coordinates + 3 + len(study.observe))
    kept = sum(1 if event.terminal else event.keep for event in study.events.values())
    numbers = series + kept * (1 + 2 * coordinates)  # of one trajectory while it is computed
    largest = max(_SLICE // (np.dtype(study.precision).itemsize * numbers), LANES)
    small = [part for part in range(1, isqrt(block) + 1) if block % part == 0]
    sizes = {size for part in small for size in (part, block // part)}
    good = [size for size in sizes if LANES // 2 <= size <= largest]
    # Fewer than the lanes of native code would take many times as long: rather more memory.
    return max(good) if good else min((size for size in sizes if size > largest), default=block)


def require_possible(study: Study, trajectory: int, out: Path) -> None:
    """Raise a StudyError for a study that the disk cannot hold, or whose steps XLA cannot count.

    Args:
        study: the study, with its sizes.
        trajectory: the bytes that one trajectory stores.
        out: the run folder.
    """
    steps = (study.times.saves - 1) * (_steps_per_save(study) or 1)
    if steps > _MOST_COUNTED:
        problem = f"must be fewer: {steps} steps in all are more than {_MOST_COUNTED}"
        raise refuse(("steps", "per_save"), problem)
    if study.size > _MOST_COUNTED and not jax.config.read("jax_enable_x64"):
        problem = f"must be at most {_MOST_COUNTED} in float32, which counts trajectories in 32"
        raise refuse("size", f"{problem} bits, but is {study.size}")
    # With what the run folder occupies already, which a continued run does not write again.
    folder = next((x for x in (out, *out.absolute().parents) if x.is_dir()), Path())
    usage, disk = shutil.disk_usage(folder), study.size * trajectory
    occupied = sum(file.stat().st_size for file in out.glob("results.zarr/**/*") if file.is_file())
    free = usage.free + occupied if usage.total else inf  # /proc, which cannot be written
    if disk > free:
        message = f"must be smaller: {study.size} trajectories take {disk / 1e9:.3g} GB of disk, "
        message += f"of which {free / 1e9:.3g} GB are free; save fewer times or series"
        raise refuse("size", message)


def study_devices() -> list[jax.Device]:
    """The devices that compute a block each: all, or the one of `jax.default_device`."""
    if jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return list(jax.numpy.zeros(()).devices())
    return jax.local_devices()
