"""Schedulers: certificates, time limits, and whom a connection calls."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from jaxmech.ensemble import Cluster, cluster_tasks
from jaxmech.ensemble.cluster import connect
from jaxmech.ensemble.cluster.tasks import ClusterError
from tests.ensemble.cluster.clusters import begun, wait_until


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a program that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_program_that_never_answers_is_given_up(silent: int, monkeypatch) -> None:
    monkeypatch.setattr(connect, "_QUIET", 0.1)
    told = list[str]()
    address = f"tcp://127.0.0.1:{silent}"
    begun = time.monotonic()
    with (
        pytest.raises(ClusterError, match=f"no scheduler at {address} .*no answer in time"),
        cluster_tasks(Cluster(scheduler=address, wait=0.5), told.append),
    ):
        pass
    assert time.monotonic() - begun < 60
    assert told == [f"waiting for an answer of the scheduler at {address}, for up to 0.5 s"]


@pytest.mark.slow
def test_a_local_cluster_accepts_nobody_else() -> None:
    with cluster_tasks(Cluster(scheduler="local:1"), print) as tasks:
        assert list(tasks.map(abs, [-1, -2])) == [1, 2]
        address = tasks.client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        others = [connect.temporary_credentials(), None]
        for security in others:
            with pytest.raises((OSError, TypeError)):
                Client(address, security=security, timeout="5 s", set_as_default=False)


@pytest.mark.slow
@pytest.mark.parametrize(("host", "open_"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_scheduler_without_certificates_is_warned_of(
    tmp_path: Path, host: str, open_: bool
) -> None:
    file = tmp_path / "scheduler.json"
    options = ("--host", host, "--port", "0", "--no-dashboard", "--scheduler-file", file)
    process = begun("dask", "scheduler", *options)
    told = list[str]()
    try:
        assert wait_until(file.exists, process)
        with (
            pytest.raises(ClusterError, match="the cluster has no workers"),
            cluster_tasks(Cluster(scheduler=f"file:{file}", wait=10.0), told.append),
        ):
            pass
    finally:
        process.kill()
        process.communicate()
    warned = [text for text in told if "accepts every client without certificates" in text]
    assert bool(warned) == open_
