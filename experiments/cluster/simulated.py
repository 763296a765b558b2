"""A thousand workers that sleep instead of computing, under Dask's scheduler and our dispatcher.

Scheduler, workers and messages are those of a real cluster, but all of them run in one process,
whose single core is the limit: on a cluster, each worker has a core of its own, and the scheduler
another one.
"""

import asyncio
import pickle
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import dask
from distributed import Client, Scheduler, SpecCluster, Worker

from jaxmech.config.toml import read
from jaxmech.ensemble import Study
from jaxmech.ensemble.cluster.tasks import Tasks
from jaxmech.ensemble.cluster.workers import Computed, Order, Sizes, compute_blocks

QUIET = {  # background tasks of workers, which one process has to run a thousand times here
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "60s",
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": True,
    "distributed.comm.timeouts.connect": "120s",
}


async def stub(each: float, blocks: tuple[int, ...]) -> Computed:
    """Sleep for the time in which some blocks would be computed, give or take a tenth."""
    seconds = each * len(blocks) * random.uniform(0.9, 1.1)
    await asyncio.sleep(seconds)
    return Computed(dict.fromkeys(blocks, 0), (), seconds)


def simulated(workers: int, seconds: float, each: float, failures: float) -> dict[str, Any]:
    """Distribute blocks for some time, while workers are lost at a given rate."""
    with dask.config.set(QUIET), _cluster(workers) as cluster, Client(cluster) as client:
        client.wait_for_workers(workers, timeout=600)
        most = _most(client)
        tasks, sizes = Tasks(client, losses=0), Sizes()
        ended, lost = Event(), list[float]()
        killer = Thread(target=_kill, args=(cluster, failures, ended, lost), daemon=True)
        killer.start()
        begun, useful, count, blocks = time.monotonic(), 0.0, 0, 0

        def parts() -> Iterator[tuple[int, ...]]:
            first = 0
            left = int(workers * seconds / each)
            while first < left and time.monotonic() - begun < seconds:
                size = sizes.next(left - first, workers)
                yield tuple(range(first, first + size))
                first += size

        for part, computed in tasks.as_done(partial(stub, each), parts()):
            sizes.took(len(part), computed.seconds)
            useful, count, blocks = useful + computed.seconds, count + 1, blocks + len(part)
        wall = time.monotonic() - begun
        ended.set()
        killer.join(30)
    return {
        "workers": workers,
        "seconds_per_block": each,
        "seconds": wall,
        "tasks": count,
        "blocks": blocks,
        "tasks_per_second": count / wall,
        "most_tasks_per_second": most,
        "workers_lost": len(lost),
        "busy": useful / (workers * wall),
    }


def _cluster(workers: int) -> SpecCluster:
    here = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    worker = {"cls": Worker, "options": {"nthreads": 1, "memory_limit": 0, **here}}
    options = {"allowed_failures": 20, "protocol": "inproc", **here}
    return SpecCluster(
        dict.fromkeys(range(workers), worker),
        {"cls": Scheduler, "options": options},
        worker,
        silence_logs=50,
    )


def _most(client: Client) -> float:
    """Measure the tasks per second when they take no time."""
    tasks, count = Tasks(client), 4 * len(client.nthreads())
    begun = time.monotonic()
    items = ((k,) for k in range(count))
    done = sum(1 for _ in tasks.as_done(partial(stub, 0.0), items))
    return done / (time.monotonic() - begun)


def _kill(cluster: SpecCluster, period: float, ended: Event, lost: list[float]) -> None:
    """Kill a worker once per period, and start another one."""
    while not ended.wait(period):
        worker = random.choice(list(cluster.workers.values()))
        cluster.sync(worker.close, timeout=1, executor_wait=False, nanny=False)
        cluster.scale(len(cluster.worker_spec))
        lost.append(time.monotonic())


def messages(config: Path) -> dict[str, int]:
    """Count the bytes sent for a task of the study, and the bytes of its result."""
    study = read(config, Study)
    order = pickle.dumps(Order(study, config.parent, Path("runs/study").resolve(), "0" * 32, True))
    blocks = tuple(range(1000, 1064))
    failed = dict.fromkeys(blocks, 12)
    return {
        "blocks": len(blocks),
        "task": len(pickle.dumps((partial(compute_blocks, order), blocks))),
        "result": len(pickle.dumps(Computed(failed, (), 30.0))),
    }
