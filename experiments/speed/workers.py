"""Processes that run routes, so that one that crashes or hangs does not end the others.

A worker holds one prepared job at a time, and only one worker computes at any moment.
"""

import gc
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from experiments.measuring import mean_seconds
from experiments.speed.routes import Prepared, Unavailable
from jaxmech.config.run_folder import environment

Arrays = list[np.ndarray]
Job = Callable[[], Prepared]  # called in a worker; must be picklable


class JobError(Exception):
    """A job has no result; the text states the reason."""


class Worker:
    """A process for one job after another, restarted after a crash.

    Every answer is limited to `limit` seconds. If a job is unavailable, raises, crashes or takes
    longer, the methods raise a `JobError`.
    """

    def __init__(self, limit: float, platform: str = "cpu") -> None:
        self._limit, self._platform = limit, platform
        self._process: ProcessPoolExecutor | None = None

    def environment(self) -> dict[str, Any]:
        """The versions and settings of the process."""
        return self._ask(_environment)

    def prepare(self, job: Job) -> tuple[float, Arrays]:
        """Prepare a job in place of the previous one; return compile seconds and first arrays."""
        return self._ask(_prepare, job)

    def seconds(self, at_least: float) -> float:
        """Measure the seconds of a run of the prepared job, see `mean_seconds`."""
        return self._ask(_seconds, at_least)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            for process in [*(self._process._processes or {}).values()]:
                process.kill()  # it has no state to lose
            self._process.shutdown()
            self._process = None

    def _ask(self, request: Callable[..., Any], *arguments: Any) -> Any:
        if self._process is None:
            self._process = ProcessPoolExecutor(1, get_context("spawn"), _begin, (self._platform,))
        try:
            return self._process.submit(request, *arguments).result(self._limit)
        except TimeoutError:
            problem = f"took longer than {self._limit:g} s"
            self.close()
        except BrokenProcessPool:
            problem = "crashed"
            self.close()
        except Unavailable as error:
            problem = f"unavailable: {error}"
        except Exception as error:  # noqa: BLE001  a failing route must not end the others
            problem = f"failed: {type(error).__name__}: {error}".partition("\n")[0]
        raise JobError(problem)


class Pool:
    """One reusable worker per name, all on one platform."""

    def __init__(self, *kind: Any) -> None:
        self._kind = kind  # the arguments of a worker
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            worker.close()

    def worker(self, name: str) -> Worker:
        """Return the worker of this name."""
        if name not in self._workers:
            self._workers[name] = Worker(*self._kind)
        return self._workers[name]


_held: list[Prepared] = []  # in the process of a worker


def _begin(platform: str) -> None:
    """Set up the process of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the benchmark itself handles Ctrl-C
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several workers share the device
    os.environ["JAXMECH_KERNEL_CACHE"] = "off"  # compile times are measured
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_platforms", platform)
    jax.config.update("jax_enable_x64", True)


def _environment() -> dict[str, Any]:
    """The environment of the process, with the version of NVIDIA's driver if that is used."""
    told, driver = Path("/proc/driver/nvidia/version"), ""
    if jax.devices()[0].platform == "gpu" and told.is_file():
        driver = next(iter(re.findall(r"Module.*?(\d+[\d.]+)", told.read_text())), "")
    return {**environment(), "driver": driver}


def _prepare(job: Job) -> tuple[float, Arrays]:
    _held.clear()
    jax.clear_caches()
    gc.collect()
    prepared = job()
    _held.append(prepared)
    results = jax.tree.leaves(prepared.compared(prepared.run()))
    return prepared.compile_seconds, [np.asarray(x) for x in results]


def _seconds(at_least: float) -> float:
    return mean_seconds(_held[0].run, at_least, time.perf_counter)
