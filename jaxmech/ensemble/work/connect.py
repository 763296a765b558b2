"""The Dask cluster of a table `cluster`: a running one, or one that is started here."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from jaxmech.config.errors import InputError, refuse
from jaxmech.ensemble.work.pinning import CORES
from jaxmech.ensemble.work.settings import Cluster
from jaxmech.ensemble.work.tasks import ClusterError, Tasks

if TYPE_CHECKING:
    from distributed import Client, SpecCluster

_SCHEDULER_FAILURES = 3  # workers that a scheduler of others gives up a task after, by default
# Nobody else is to reach processes of this machine.
_HERE = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
_PRELOAD = "jaxmech.ensemble.work.pinning"


@contextmanager
def connected(cluster: Cluster, tell: Callable[[str], None]) -> Iterator[Tasks]:
    """The tasks of a cluster, which is closed at the end if it was started here."""
    _require_dask()
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # relevant messages go to `tell`
    if cluster.kind in ("local", "slurm"):
        make = _slurm if cluster.kind == "slurm" else _local
        with (
            tempfile.TemporaryDirectory(prefix="jaxmech-cluster-") as scratch,
            make(cluster, scratch) as own,
            Client(own, set_as_default=False) as client,
        ):
            # the cluster itself replaces jobs of SLURM that have ended
            revive = _Keeper(own) if cluster.kind == "local" else lambda: None
            yield Tasks(client, losses=0, waiting=tell, revive=revive)
        return
    with _client(cluster) as client:
        losses = cluster.allowed_failures // (_SCHEDULER_FAILURES + 1)
        yield Tasks(client, losses=losses, waiting=tell)


@dataclass
class _Keeper:
    """Restarts workers of this machine that neither their nanny nor their cluster restarts."""

    # A nanny gives up on a worker that is killed during start-up; the cluster gives up on one that
    # needs more than a few seconds to restart.

    own: "SpecCluster"
    _dead: frozenset[Any] = frozenset()

    def __call__(self) -> None:
        dead = frozenset(
            name
            for name, nanny in self.own.workers.items()
            if nanny.process is None or not nanny.process.is_alive()
        )
        for name in dead & self._dead:  # for some seconds
            self.own.sync(self._given_up, name)
        self._dead = dead
        self.own.scale(len(self.own.worker_spec))

    async def _given_up(self, name: Any) -> None:
        if nanny := self.own.workers.pop(name, None):
            await nanny.close(timeout=1)


def _require_dask() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise InputError(
            "clusters need dask.distributed, which is not installed: pip install 'jaxmech[cluster]'"
        ) from error


def _client(cluster: Cluster) -> "Client":
    """The client of a running scheduler."""
    from distributed import Client

    where = cluster.scheduler.removeprefix("file:")
    given = {"scheduler_file": where} if cluster.kind == "file" else {"address": where}
    try:
        return Client(**given, timeout=f"{cluster.wait} s", set_as_default=False)
    except (OSError, TimeoutError) as error:
        text = "start one with `dask scheduler`, or correct the address"
        raise ClusterError(f"there is no scheduler at {where} ({error}); {text}") from error


def _local(cluster: Cluster, scratch: str) -> "SpecCluster":
    from distributed import Nanny, Scheduler, SpecCluster

    count = cluster.workers_wanted
    shares = _cores(cluster, count)
    workers: dict[Any, dict[str, Any]] = {}
    for place in range(count):
        env = {CORES: ",".join(map(str, shares[place]))} if shares else {}
        if cluster.device == "gpu":
            env |= {"CUDA_VISIBLE_DEVICES": _gpus(count)[place]}
        options = {
            "nthreads": 1,
            "env": env,
            "preload": [_PRELOAD],
            "memory_limit": cluster.memory or 0,
            "local_directory": scratch,
            "silence_logs": logging.CRITICAL,
            **_HERE,
        }
        workers[place] = {"cls": Nanny, "options": options}
    scheduler = {
        "cls": Scheduler,
        "options": {**_HERE, "allowed_failures": cluster.allowed_failures},
    }
    return SpecCluster(workers, scheduler, silence_logs=logging.CRITICAL)


def _slurm(cluster: Cluster, scratch: str) -> "SpecCluster":
    """Start one worker for each job; jobs that end are replaced as long as there is work."""
    from dask_jobqueue.slurm import SLURMCluster

    failures = cluster.allowed_failures
    scheduler = {"dashboard": False, "dashboard_address": ":0", "allowed_failures": failures}
    own = SLURMCluster(scheduler_options=scheduler, **slurm_options(cluster, scratch))
    own.adapt(minimum_jobs=cluster.workers_wanted, maximum_jobs=cluster.workers_wanted)
    return own


def slurm_options(cluster: Cluster, scratch: str) -> dict[str, Any]:
    """The options of a job for dask-jobqueue; one worker uses all of its cores."""
    gpu = ["--gpus-per-task=1"] if cluster.device == "gpu" else []
    # The worker ends before its job does, and not all at once.
    life = ["--lifetime", f"{cluster.lifetime}s", "--lifetime-stagger", "60s"]
    return {
        "cores": 1,
        "processes": 1,
        "job_cpu": cluster.cores or 1,
        "memory": (cluster.memory or "").replace(" ", ""),
        "walltime": cluster.walltime,
        "queue": cluster.queue,
        "account": cluster.account,
        "interface": cluster.interface,
        "job_extra_directives": [*gpu, *cluster.directives],
        "job_script_prologue": list(cluster.prologue),
        "worker_extra_args": ["--no-dashboard", *life],
        "local_directory": scratch,
    }


def _cores(cluster: Cluster, count: int) -> list[list[int]]:
    """The cores of each worker; empty if this machine cannot pin."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    here = sorted(os.sched_getaffinity(0))
    each = cluster.cores or max(len(here) // count, 1)
    if cluster.cores and count * each > len(here):
        text = f"must be at most {len(here) // count}: {count} workers share {len(here)} cores"
        raise refuse("cores", f"{text}, but is {each}")
    # More workers than cores share them in turn.
    return [[here[(k * each + i) % len(here)] for i in range(each)] for k in range(count)]


def _gpus(count: int) -> list[str]:
    """The GPUs of this machine by their names in CUDA; at least as many as workers."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name for name in given.split(",") if name] if given is not None else None
    if names is None:
        names = [str(d.id) for d in jax.devices() if d.platform in ("gpu", "cuda")]
    if len(names) < count:
        text = f"must be at most the number of GPUs, {len(names)}, but is {count}"
        raise refuse("workers", text)
    return names
