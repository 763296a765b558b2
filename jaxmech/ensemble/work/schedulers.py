"""Connections to Dask schedulers: time limits, and certificates.

A scheduler runs what any client sends that it accepts. With certificates (TLS) it accepts only
those who have them; without, everyone who can reach its port.
"""

import asyncio
import ipaddress
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmech.config.errors import InputError
from jaxmech.ensemble.work.settings import Cluster
from jaxmech.ensemble.work.tasks import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Security

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
