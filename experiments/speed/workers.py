"""Processes that run routes, so that one that crashes or hangs does not end the others.

A worker holds one prepared job at a time, and only one worker computes at any moment.
"""

import gc
import os
import re
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

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
        self._process: Any = None
        self._pipe: Any = None

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
            self._pipe.close()
            self._process.kill()  # it has no state to lose
            self._process.join()
            self._process = None

    def _ask(self, *request: Any) -> Any:
        if self._process is None:
            self._start()
        try:
            self._pipe.send(request)
            if not self._pipe.poll(self._limit):
                self.close()
                raise JobError(f"took longer than {self._limit:g} s")
            problem, answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(self._limit)
            code = self._process.exitcode
            self.close()
            name = signal.Signals(-code).name if code and code < 0 else f"exit {code}"
            raise JobError(f"crashed ({name})") from None
        if problem:
            raise JobError(problem)
        return answer

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._platform), daemon=True)
        # Ctrl-C reaches every process of a terminal; only the benchmark itself handles it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()


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


def _serve(pipe: Connection, platform: str) -> None:
    """Answer requests until the benchmark ends."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several workers share the device
    os.environ["JAXMECH_KERNEL_CACHE"] = "off"  # compile times are measured
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_platforms", platform)
    jax.config.update("jax_enable_x64", True)
    held: list[Prepared] = []
    while True:
        try:
            request, *arguments = pipe.recv()
        except EOFError:
            return
        problem, answer = "", None
        try:
            answer = request(held, *arguments)
        except Unavailable as error:
            problem = f"unavailable: {error}"
        except Exception as error:  # noqa: BLE001  a failing route must not end the others
            problem = f"failed: {type(error).__name__}: {error}".partition("\n")[0]
        pipe.send((problem, answer))


def _environment(held: list[Prepared]) -> dict[str, Any]:
    """The environment of the process, with the version of NVIDIA's driver if that is used."""
    told, driver = Path("/proc/driver/nvidia/version"), ""
    if jax.devices()[0].platform == "gpu" and told.is_file():
        driver = next(iter(re.findall(r"Module.*?(\d+[\d.]+)", told.read_text())), "")
    return {**environment(), "driver": driver}


def _prepare(held: list[Prepared], job: Job) -> tuple[float, Arrays]:
    held.clear()
    jax.clear_caches()
    gc.collect()
    prepared = job()
    held.append(prepared)
    found = jax.tree.leaves(prepared.compared(prepared.run()))
    return prepared.compile_seconds, [np.asarray(x) for x in found]


def _seconds(held: list[Prepared], at_least: float) -> float:
    return mean_seconds(held[0].run, at_least)


def mean_seconds(run: Callable[[], Any], at_least: float) -> float:
    """Mean over as many runs as fill a given time; a run shorter than that first warms up."""
    begun = time.perf_counter()
    run()
    alone = time.perf_counter() - begun
    if alone >= at_least:
        return alone
    begun, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - begun < at_least:
        run()
        runs += 1
    return (time.perf_counter() - begun) / runs
