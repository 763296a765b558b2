"""Pins the process of a worker to some cores: Dask loads this file before the worker starts."""

import os
from pathlib import Path
from typing import Any

CORES = "JAXMECH_WORKER_CORES"  # numbers with commas


def dask_setup(worker: Any) -> None:
    """Pin all threads of this process, and those that JAX will start, to the named cores."""
    setting = os.environ.get(CORES)
    if not setting or not hasattr(os, "sched_setaffinity"):  # only Linux has it
        return
    cores = {int(number) for number in setting.split(",")}
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)
