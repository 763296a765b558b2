"""Commands on clusters of this machine, from the outside, and the processes to be killed."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.ensemble.studies import STUDY

ROOT = Path(__file__).resolve().parents[3]
STATISTICS = """
[statistics]
energy = { statistic = "moments", of = "energy" }
band = { statistic = "quantiles", of = "x", bins = 64 }
"""


def many(blocks: int, per_save: int = 3000) -> str:
    """A study of blocks of four trajectories, some 30 ms each."""
    text = STUDY.replace("size = 20", f"size = {4 * blocks - 1}")
    return text.replace("per_save = 8", f"per_save = {per_save}") + STATISTICS


def begun(*arguments: object) -> subprocess.Popen[str]:
    """A process of this environment."""
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def study_on(config: Path, out: Path, *options: object) -> subprocess.Popen[str]:
    return begun("jaxmech", "ensemble", config, "--out", out, "--progress", "none", *options)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of its workers, which its nannies have spawned."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def wait_until(true: Callable[[], object], process: subprocess.Popen[str], most: float = 180.0):
    """Waits while a process runs."""
    end = time.monotonic() + most
    while not true() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    return true()


@contextmanager
def running_cluster(folder: Path, workers: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A scheduler and workers with nannies, each a process of its own: address and scheduler."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    own = ["--scheduler-file", file, "--no-dashboard"]
    scheduler = begun("dask", "scheduler", "--port", "0", *own)
    more = ["--local-directory", folder, "--death-timeout", "60"]
    crew = [begun("dask", "worker", *own, "--nthreads", "1", *more) for _ in range(workers)]
    try:
        assert wait_until(file.exists, scheduler)
        yield f"file:{file}", scheduler
    finally:
        for process in (*crew, scheduler):
            for one in (*_children(process), process):
                if isinstance(one, subprocess.Popen):
                    one.kill()
                    one.communicate()
                elif one.is_running():
                    one.kill()


def _children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []
