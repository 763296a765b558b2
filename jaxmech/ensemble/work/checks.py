"""Checks of the workers of a cluster: versions that must agree, differences that are allowed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax

from jaxmech.config.environment import environment
from jaxmech.config.run_folder import warn
from jaxmech.ensemble.work.connect import connected
from jaxmech.ensemble.work.settings import Cluster
from jaxmech.ensemble.work.tasks import ClusterError, Tasks
from jaxmech.ensemble.work.worker import MAY_DIFFER, facts_of_worker, refusal

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def cluster_tasks(cluster: Cluster, tell: Callable[[str], None] | None = None) -> Iterator[Tasks]:
    """The workers of a cluster; their `map` applies a function to many items.

    Functions and items are pickled. The workers must have the same versions of jaxmech and JAX as
    this process, which is checked. Tasks of lost workers run again on others.

    Args:
        cluster: settings of the workers.
        tell: function called with messages; by default a `RunWarning`.

    Raises:
        InputError: the extra `cluster` is not installed.
        ClusterError: the cluster cannot be reached, or has no workers that can compute.

    Example:
        Fits from several points, each in a process of its own::

            with cluster_tasks(Cluster(scheduler="local:4")) as tasks:
                found = jm.fit(..., multistart=jm.MultiStart(refine=4), workers=tasks.map)
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
    until = time.monotonic() + cluster.wait
    while not client.nthreads():
        if time.monotonic() > until:
            text = "start some, or increase `cluster.wait`"
            raise ClusterError(f"the cluster has no workers after {cluster.wait:g} s; {text}")
        time.sleep(0.2)
    x64 = bool(jax.config.read("jax_enable_x64"))
    found = client.run(facts_of_worker, x64, on_error="return")
    own = environment()
    first: dict[str, Any] | None = None
    for address, facts in found.items():
        if isinstance(facts, BaseException):
            text = "install jaxmech there, with the packages of this environment"
            raise ClusterError(f"the worker {address} cannot compute: {facts}; {text}") from facts
        if (facts["platform"] == "cpu") != (cluster.device == "cpu"):
            text = f"but `cluster.device` is {cluster.device}"
            raise ClusterError(f"the worker {address} computes on {facts['platform']}, {text}")
        first = first or facts
        like = {**own, "platform": first["platform"]}
        if problem := refusal(like, facts, f"{address} on {facts['host']}"):
            raise ClusterError(problem)
    assert first is not None
    several = {key: sorted({x[key] for x in found.values()}, key=str) for key in MAY_DIFFER}
    for key, kinds in several.items():
        if len(kinds) > 1:
            what = " and ".join(kinds)
            text = "the last bits of the results may differ too"
            tell(f"the workers differ in their {key}: {what}; {text}")
    joined = {key: kinds[0] if len(kinds) == 1 else kinds for key, kinds in several.items()}
    return {**{key: value for key, value in first.items() if key != "host"}, **joined}
