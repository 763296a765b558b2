"""The rate of a study with several processes of one core each, and the size of its output."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.config.toml import read
from jaxmech.ensemble import Cluster, Study, open_results, run_study
from jaxmech.ensemble.blocks.accumulate import Accumulator
from jaxmech.ensemble.blocks.kernel import compile_kernel
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.store.checksums import mark_of
from jaxmech.ensemble.store.layout import STATES, array_of


def scaling(config: Path, processes: list[int], out: Path) -> dict[str, Any]:
    """Measure a study in this process, on all cores, and with workers of one core each.

    The statistics must be equal, bit by bit, before any rate is reported.
    """
    study = read(config, Study)
    rows = [_row(study, config, out, 0), *(_row(study, config, out, n) for n in processes)]
    content = {(out / _name(n) / "statistics.npz").read_bytes() for n in (0, *processes)}
    if len(content) != 1:
        raise AssertionError("the statistics differ between numbers of processes")
    whole = out / _name(0)
    return {
        "study": config.name,
        "trajectories": study.size,
        "steps": (study.times.saves - 1) * (study.steps.per_save or 0),
        "same_statistics": True,
        "runs": rows,
        "written": _written(whole),
        "merge_seconds": _merging(study, config, whole),
    }


def _name(processes: int) -> str:
    return f"processes-{processes}"


def _row(study: Study, config: Path, out: Path, processes: int) -> dict[str, Any]:
    path = out / _name(processes)
    cluster = Cluster(scheduler=f"local:{processes}", cores=1) if processes else None
    begun = time.time()
    run_study(replace(study, cluster=cluster), path, folder=config.parent, tell=print)
    results = open_results(path)
    done = np.sort([mark_of(path, block).stat().st_mtime for block in results.blocks])
    # From the time at which every worker has compiled, to the last block.
    warm = min(3 * max(processes, 1), len(done) - 2)
    rate = (len(done) - 1 - warm) / (done[-1] - done[warm])
    block = int(results.config["block"])
    return {
        "processes": processes,
        "blocks": len(done),
        "seconds": time.time() - begun,
        "load": os.getloadavg()[0],
        "seconds_to_first_block": float(done[0] - begun),
        "trajectories_per_second": rate * block,
    }


def _written(path: Path) -> dict[str, Any]:
    """Count the files and bytes of a finished run per block."""
    blocks = len(open_results(path).blocks)
    marks = list((path / "blocks").iterdir())
    files = [file for file in (path / "results.zarr").glob("*/c/**/*") if file.is_file()]
    return {
        "blocks": blocks,
        "files_per_block": (len(files) + len(marks)) / blocks,
        "bytes_per_block": sum(file.stat().st_size for file in (*files, *marks)) / blocks,
        "state_bytes": json.loads((path / "results.zarr" / STATES / "zarr.json").read_text())[
            "shape"
        ][1],
    }


def _merging(study: Study, config: Path, path: Path) -> float:
    """Measure the seconds in which the states of one block are read and merged."""
    found = planned(study, path, config.parent)
    study = replace(found.study, **found.functions)
    kernel = compile_kernel(study, found.subject, found.sampler)
    accumulator = Accumulator(kernel, kernel.shapes().states, None)
    states = array_of(open_results(path).group, STATES)
    for block in (0, 1):  # the first one compiles
        accumulator.add(accumulator.unpacked(np.asarray(states[block])))
    begun = time.perf_counter()
    for block in range(2, states.shape[0]):
        accumulator.add(accumulator.unpacked(np.asarray(states[block])))
    return (time.perf_counter() - begun) / (states.shape[0] - 2)
