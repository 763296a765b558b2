"""The blocks of a study on the workers of a Dask cluster: `compute_block`, mapped over blocks.

Workers write blocks into the shared run folder, from which this process merges the statistics.
Blocks are written atomically, and have the same bits whichever worker computes them. So it does no
harm if Dask computes one twice, after the loss of a worker, or if a run is killed and begun again.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import jax

from jaxmech.config.errors import InputError, StoppedError
from jaxmech.ensemble.blocks import BlockProgram, compile_kernel, computed_blocks
from jaxmech.ensemble.plan import origin, planned
from jaxmech.ensemble.store import DECISIVE, StudyFolder
from jaxmech.ensemble.study import Study

if TYPE_CHECKING:
    from distributed import Client

_RETRIES = 3  # of a block whose worker is lost or raises an error
_COMPUTING = Lock()  # a worker with several threads computes one block at a time
MAY_DIFFER = ("device", "devices", "processor")  # the last bits of the results may differ, too


@contextmanager
def connected(client: "Client | str | None") -> Iterator["Client | None"]:
    """A client, or that of a cluster, such as "local:4", whose processes are started and ended.

    Certificates are those of the configuration of Dask.
    """
    if not isinstance(client, str):
        yield client
        return
    kind, _, address = client.partition(":")
    is_local = kind == "local" and address.isdecimal() and int(address) > 0
    if not is_local and not (kind in ("tcp", "tls", "file") and address):
        forms = '"local:4", "tcp://host:8786", "tls://host:8786" or "file:scheduler.json"'
        raise InputError(f"a cluster must be like {forms}, but is {client!r}")
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError(
            "clusters need dask.distributed, which is not installed: pip install distributed"
        ) from error
    if is_local:
        with (
            LocalCluster(
                n_workers=int(address), threads_per_worker=1, memory_limit=0, host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            ) as processes,
            Client(processes, set_as_default=False) as connection,
        ):  # fmt: skip
            yield connection
        return
    try:
        where = {"scheduler_file": address} if kind == "file" else {"address": client}
        connection = Client(**where, set_as_default=False)
    except OSError as error:
        message = "start one with `dask scheduler` and `dask worker`, or correct the address"
        raise InputError(f"there is no scheduler at {client}; {message}") from error
    with connection:
        yield connection


Order = tuple[bool, bytes]  # whether arrays are in float64, and the pickled study


def compute_block(order: Order, block: int) -> None:
    """Compute a block in a worker, unless it is finished."""
    with _COMPUTING:
        target, kernel = _prepared(order)
        if not target.is_finished(block):
            ((inputs, results),) = computed_blocks(kernel, [block])
            target.write(block, kernel.stored(inputs, results))


@lru_cache(maxsize=2)
def _prepared(order: Order) -> tuple[StudyFolder, BlockProgram]:
    """The program of a run, after a check that this process computes the same."""
    x64, content = order
    if jax.config.read("jax_enable_x64") != x64:  # before arrays are unpacked
        jax.config.update("jax_enable_x64", x64)
    study, folder, path = pickle.loads(content)
    plan = planned(study, folder)
    kernel = compile_kernel(plan)
    same = [fact for fact in DECISIVE if fact not in MAY_DIFFER]
    run = StudyFolder(path, kernel.study.size, kernel.block)
    if differ := run.changes(origin(plan), same):
        message = "install the same versions and files everywhere, and start the workers again"
        raise InputError(f"a worker would compute another study: {'; '.join(differ)}; {message}")
    return run, kernel


def compute_away(
    client: "Client", study: Study, folder: Path, target: StudyFolder, missing: list[int],
    stop: Callable[[], bool], finished: Callable[[int], None],
) -> None:  # fmt: skip
    """Compute the missing blocks of a run on the workers of a client."""
    from distributed import as_completed
    from distributed.protocol import pickle as pickles  # also of functions without a module

    work = study, folder.resolve(), target.path.resolve()
    order = bool(jax.config.read("jax_enable_x64")), bytes(pickles.dumps(work))
    futures = {
        client.submit(compute_block, order, block, pure=False, retries=_RETRIES): block
        for block in missing
    }
    try:
        completed = as_completed(list(futures), loop=client.loop)
        for _ in missing:
            if stop():
                raise StoppedError
            future = next(completed)
            future.result()
            finished(futures[future])
    finally:  # what runs now is finished by the workers, and kept
        client.cancel(list(futures))
