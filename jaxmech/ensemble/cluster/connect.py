"""The Dask cluster of a table `cluster`, running or started here, and checks of its workers.

A scheduler runs what any client sends that it accepts. With certificates (TLS) it accepts only
those who have them; without, everyone who can reach its port.
"""

import asyncio
import ipaddress
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from jaxmech.config import environment, warn
from jaxmech.config.errors import InputError, refuse
from jaxmech.ensemble.cluster.settings import Cluster
from jaxmech.ensemble.cluster.tasks import ClusterError, Tasks
from jaxmech.ensemble.cluster.workers import MAY_DIFFER, facts_of_worker, refusal

if TYPE_CHECKING:
    from distributed import Client, Security, SpecCluster

_ANSWER = 30.0  # seconds within which a scheduler must answer
_QUIET = 2.0  # seconds after which it is told what is being waited for
_LOOK = 0.1  # seconds between looks for the file of a scheduler
ENCRYPTED = ("tls", "wss")


def temporary_credentials() -> "Security":
    """Credentials of this process and its children, which exist in memory only."""
    from distributed import Security

    try:
        return Security.temporary()
    except ImportError as error:
        raise InputError(
            "clusters of this machine need cryptography, which is not installed: pip install "
            "cryptography"
        ) from error


def configured_security() -> dict[str, Any]:
    """The options of a cluster of SLURM for the certificates in the configuration of Dask."""
    from distributed import Security

    security = Security()
    if not security.get_tls_config_for_role("scheduler").get("cert"):
        return {}
    return {"security": security, "protocol": "tls://"}


def running_client(cluster: Cluster, tell: Callable[[str], None]) -> "Client":
    """The client of a running scheduler, which must answer within a time limit."""
    from distributed import Client, Security

    limit = min(cluster.wait, _ANSWER)
    deadline = time.monotonic() + limit
    address_text = cluster.scheduler.removeprefix("file:")
    address = _address_in(Path(address_text), deadline) if cluster.kind == "file" else address_text
    security = Security()
    connection = _answered(address, limit, security, tell)
    try:
        with ThreadPoolExecutor(1) as thread:  # this thread may have a loop, as in a notebook
            thread.submit(asyncio.run, connection).result()
        client = Client(address, timeout=f"{limit} s", security=security, set_as_default=False)
    except Exception as error:  # of sockets, TLS, asyncio or Dask
        raise _no_scheduler(address, error) from error
    listening = str(client.scheduler_info().get("address", address))
    if open_to_others(listening):
        tell(without_certificates(listening))
    return client


async def _answered(
    address: str, limit: float, security: "Security", tell: Callable[[str], None]
) -> None:
    # Before a `Client` connects, whose time limit does not include the answer of its partner.
    from distributed.comm.core import connect

    options = security.get_connection_args("client")
    connecting = asyncio.ensure_future(connect(address, timeout=max(limit, _LOOK), **options))
    finished, _ = await asyncio.wait({connecting}, timeout=min(_QUIET, limit))
    if not finished:
        tell(f"waiting for an answer of the scheduler at {address}, for up to {limit:g} s")
    comm = await asyncio.wait_for(connecting, max(limit - _QUIET, _LOOK))
    await comm.close()


def _address_in(file: Path, deadline: float) -> str:
    while True:
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                raise _no_scheduler(str(file), error) from error
        time.sleep(_LOOK)


def _no_scheduler(location: str, error: Exception) -> ClusterError:
    reason = str(error) or "no answer in time"
    remedy = "start one with `dask scheduler`, or correct the address"
    if location.partition(":")[0] in ENCRYPTED:
        remedy += "; for tls, certificates must be configured (docs/cluster.md)"
    return ClusterError(f"there is no scheduler at {location} ({reason}); {remedy}")


def open_to_others(address: str) -> bool:
    """Whether other machines may connect to an address without certificates.

    Example:
        >>> open_to_others("tcp://10.0.0.1:8786"), open_to_others("tcp://127.0.0.1:8786")
        (True, False)
        >>> open_to_others("tls://10.0.0.1:8786")
        False
    """
    protocol, _, address_part = address.partition("://")
    host = address_part.rpartition(":")[0].strip("[]")
    if protocol in (*ENCRYPTED, "inproc"):
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def without_certificates(address: str) -> str:
    """The warning about a scheduler that anyone may use who can reach it."""
    return (
        f"the scheduler at {address} accepts every client without certificates: whoever can reach "
        "that port can run code as you; see docs/cluster.md on how to set certificates"
    )


CORES = "JAXMECH_WORKER_CORES"  # numbers with commas


def dask_setup(worker: Any) -> None:
    """Pin all threads of this process, and those that JAX will start, to the named cores."""
    setting = os.environ.get(CORES)
    if not setting or not hasattr(os, "sched_setaffinity"):  # only Linux has it
        return
    cores = {int(number) for number in setting.split(",")}
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


_SCHEDULER_FAILURES = 3  # workers that a scheduler of others gives up a task after, by default
# Nobody else is to reach processes of this machine.
_HERE = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
_PRELOAD = "jaxmech.ensemble.cluster.connect"


@contextmanager
def cluster_tasks(cluster: Cluster, tell: Callable[[str], None] | None = None) -> Iterator[Tasks]:
    """The workers of a cluster; their `map` applies a function to many items.

    Functions and items are pickled. The workers must have the same versions of jaxmech and JAX as
    this process, which is checked. Tasks of lost workers run again on others.

    Args:
        cluster: settings of the workers.
        tell: function called with messages; by default it issues a `RunWarning`.

    Raises:
        InputError: if the extra `cluster` is not installed.
        ClusterError: if the cluster cannot be reached, or has no workers that can compute.

    Example:
        A function of many items, in two processes of this machine:

        >>> import math
        >>> from jaxmech.ensemble import Cluster, cluster_tasks
        >>> with cluster_tasks(Cluster(scheduler="local:2")) as tasks:  # doctest: +SKIP
        ...     print(list(tasks.map(math.sqrt, [1.0, 4.0, 9.0])))
        [1.0, 2.0, 3.0]

        `jaxmech.fit` takes `tasks.map` as `workers`, for fits from several points.
    """
    with checked_tasks(cluster, tell or warn) as (tasks, _):
        assert tasks is not None
        yield tasks


@contextmanager
def checked_tasks(
    cluster: Cluster | None, tell: Callable[[str], None]
) -> Iterator[tuple[Tasks | None, dict[str, Any]]]:
    """The workers of a cluster, if there is one, and their environment."""
    if cluster is None:
        yield None, {}
        return
    with connected(cluster, tell) as tasks:
        yield tasks, facts_of_all(tasks.client, cluster, tell)


def facts_of_all(client: "Client", cluster: Cluster, tell: Callable[[str], None]) -> dict[str, Any]:
    """The environment of the workers, as stored; differences in the last bits are reported."""
    deadline = time.monotonic() + cluster.wait
    while not client.nthreads():
        if time.monotonic() > deadline:
            message = "start some, or increase `cluster.wait`"
            raise ClusterError(f"the cluster has no workers after {cluster.wait:g} s; {message}")
        time.sleep(0.2)
    x64 = bool(jax.config.read("jax_enable_x64"))
    facts_by_worker = client.run(facts_of_worker, x64, on_error="return")
    here_facts = environment()
    first: dict[str, Any] | None = None
    for address, facts in facts_by_worker.items():
        if isinstance(facts, BaseException):
            message = "install jaxmech there, with the packages of this environment"
            raise ClusterError(
                f"the worker {address} cannot compute: {facts}; {message}"
            ) from facts
        if (facts["platform"] == "cpu") != (cluster.device == "cpu"):
            message = f"but `cluster.device` is {cluster.device}"
            raise ClusterError(f"the worker {address} computes on {facts['platform']}, {message}")
        first = first or facts
        expected = {**here_facts, "platform": first["platform"]}
        if problem := refusal(expected, facts, f"{address} on {facts['host']}"):
            raise ClusterError(problem)
    assert first is not None
    common = {key: value for key, value in first.items() if key != "host"}
    for key in MAY_DIFFER:
        kinds = sorted({x[key] for x in facts_by_worker.values()}, key=str)
        if len(kinds) > 1:
            variants = " and ".join(map(str, kinds))
            message = "the last bits of the results may differ too"
            tell(f"the workers differ in their {key}: {variants}; {message}")
            common[key] = kinds
    return common


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
            make(cluster, scratch) as dask_cluster,
            Client(dask_cluster, security=dask_cluster.security, set_as_default=False) as client,
        ):
            if open_to_others(dask_cluster.scheduler_address):
                tell(without_certificates(dask_cluster.scheduler_address))
            # the cluster itself replaces jobs of SLURM that have ended
            revive = _Keeper(dask_cluster) if cluster.kind == "local" else lambda: None
            yield Tasks(client, losses=0, waiting=tell, revive=revive)
        return
    with running_client(cluster, tell) as client:
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
            "clusters need dask.distributed, which is not installed: pip install distributed"
        ) from error


def _local(cluster: Cluster, scratch: str) -> "SpecCluster":
    from distributed import Nanny, Scheduler, SpecCluster

    # A scheduler runs what any client sends, and other users of this machine can reach it.
    security = temporary_credentials()
    secured = {"security": security, "protocol": "tls://", **_HERE}
    count = cluster.workers_wanted
    shares = _cores(cluster, count)
    workers: dict[Any, dict[str, Any]] = {}
    for index in range(count):
        env = {CORES: ",".join(map(str, shares[index]))} if shares else {}
        if cluster.device == "gpu":
            env |= {"CUDA_VISIBLE_DEVICES": _gpus(count)[index]}
        options = {
            "nthreads": 1,
            "env": env,
            "preload": [_PRELOAD],
            "memory_limit": cluster.memory or 0,
            "local_directory": scratch,
            "silence_logs": logging.CRITICAL,
            **secured,
        }
        workers[index] = {"cls": Nanny, "options": options}
    scheduler = {
        "cls": Scheduler,
        "options": {**secured, "allowed_failures": cluster.allowed_failures},
    }
    return SpecCluster(workers, scheduler, security=security, silence_logs=logging.CRITICAL)


def _slurm(cluster: Cluster, scratch: str) -> "SpecCluster":
    # One worker for each job; jobs that end are replaced as long as there is work.
    from dask_jobqueue.slurm import SLURMCluster

    failures = cluster.allowed_failures
    scheduler = {"dashboard": False, "dashboard_address": ":0", "allowed_failures": failures}
    slurm_cluster = SLURMCluster(
        scheduler_options=scheduler, **slurm_options(cluster, scratch), **configured_security()
    )
    slurm_cluster.adapt(minimum_jobs=cluster.workers_wanted, maximum_jobs=cluster.workers_wanted)
    return slurm_cluster


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
    # Empty where this machine cannot pin processes to cores.
    if not hasattr(os, "sched_getaffinity"):
        return []
    available = sorted(os.sched_getaffinity(0))
    share = cluster.cores or max(len(available) // count, 1)
    if cluster.cores and count * share > len(available):
        limit = len(available) // count
        message = f"must be at most {limit}: {count} workers share {len(available)} cores"
        raise refuse("cores", f"{message}, but is {share}")
    # More workers than cores share them in turn.
    return [
        [available[(k * share + i) % len(available)] for i in range(share)] for k in range(count)
    ]


def _gpus(count: int) -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name for name in visible.split(",") if name] if visible is not None else None
    if names is None:
        names = [str(d.id) for d in jax.devices() if d.platform in ("gpu", "cuda")]
    if len(names) < count:
        message = f"must be at most the number of GPUs, {len(names)}, but is {count}"
        raise refuse("workers", message)
    return names
