"""`Cluster`: the workers that compute a study, as a table of its configuration."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from jaxmech.config import TextOrTable
from jaxmech.config.errors import Problem, out_of_range, refuse_all
from jaxmech.utils.text import doc, not_one_of, setting

_WORDS = ("local", "slurm")
_MOST_WORKERS = {"local": 1024, "slurm": 100_000}
_ADDRESS = re.compile(r"//(?:[^\s/:]+|\[[0-9a-fA-F:]+\]):(\d+)")
_LARGEST_PORT = 65535
_DURATION = re.compile(r"(?:(\d+)-)?(\d{1,2}):(\d{2}):(\d{2})")
_MEMORY = re.compile(r"\d+(?:\.\d+)? ?[kMGT]i?B")
_OF_SLURM = ("walltime", "queue", "account", "directives", "prologue", "interface")


@dataclass(frozen=True, kw_only=True)
class Cluster(TextOrTable):
    """The workers of a Dask cluster, each of which computes blocks of a study.

    Example:
        >>> Cluster(scheduler="local:4").workers_wanted
        4
    """

    scheduler: str = field(
        metadata=doc(
            '"local:4" for 4 processes of this machine, "slurm" for jobs, "tcp://host:8786" or '
            '"file:scheduler.json" for a running cluster',
            short=True,
        )
    )
    workers: int | None = setting(
        None, "number of workers, which are jobs of SLURM; by default 1", least=1
    )
    cores: int | None = setting(
        None, "cores that a worker is pinned to; by default an equal share, in SLURM 1", least=1
    )
    device: Literal["cpu", "gpu"] = setting(
        "cpu", "device of a worker; with gpu, each worker has a GPU of its own"
    )
    memory: str | None = setting(
        None, 'memory limit above which a worker is restarted, such as "4 GiB"'
    )
    allowed_failures: int = setting(
        20, "workers that may be lost on the same blocks before the run stops", least=0
    )
    wait: float = setting(
        300.0,
        "how long to wait for the first worker [s]; a scheduler must answer within 30 s, or this",
        least=0,
    )
    walltime: str = setting(
        "01:00:00", "time limit of a job of SLURM, such as 12:00:00 or 2-00:00:00"
    )
    queue: str | None = setting(None, "partition of SLURM")
    account: str | None = setting(None, "account of SLURM")
    directives: tuple[str, ...] = setting((), 'further directives of SLURM, such as "--qos=low"')
    prologue: tuple[str, ...] = setting(
        (), "shell commands before a worker of SLURM, such as module loads"
    )
    interface: str | None = setting(None, "network interface of the workers of SLURM, such as ib0")

    def __post_init__(self) -> None:
        refuse_all([*self._of_scheduler(), *out_of_range(self), *self._of_texts()])

    @property
    def kind(self) -> str:
        """`local`, `slurm`, `file`, or the protocol of an address."""
        return self.scheduler.partition(":")[0]

    @property
    def workers_wanted(self) -> int:
        """The number of workers to start; one by default."""
        _, _, count = self.scheduler.partition(":")
        return self.workers or (int(count) if self.kind in _WORDS and count else 1)

    @property
    def lifetime(self) -> int:
        """Seconds of a job of SLURM, of which the last part is for its end."""
        match = _DURATION.fullmatch(self.walltime)
        assert match
        days, hours, minutes, seconds = (int(x or 0) for x in match.groups())
        seconds = ((24 * days + hours) * 60 + minutes) * 60 + seconds
        return seconds - min(seconds // 5, 300)

    def _of_scheduler(self) -> Iterator[Problem]:
        name, colon, address = self.scheduler.partition(":")
        key = ("scheduler",)
        if name in ("tcp", "tls", "ws", "wss", "ucx"):
            match = _ADDRESS.fullmatch(address)
            if not match or not 0 < int(match[1]) <= _LARGEST_PORT:
                message = f"must be an address with a port up to {_LARGEST_PORT}, such as "
                message += "tcp://host:8786, but is "
                yield Problem(key, message + self.scheduler)
        elif name == "file":
            if not address:
                yield Problem(key, "must name the file of a scheduler, as in file:scheduler.json")
        elif name not in _WORDS:
            kinds = (*_WORDS, "tcp", "tls", "file")
            reason = not_one_of(name, kinds, "a kind of cluster")
            yield Problem(key, f'must begin with "local:4", "slurm" or an address; {name} {reason}')
        else:
            yield from self._of_count(name, colon, address)

    def _of_count(self, name: str, colon: str, number: str) -> Iterator[Problem]:
        key = ("scheduler",)
        if colon and (not number.isdecimal() or int(number) < 1):
            message = f"must have a number of workers, at least 1, as in {name}:4, but is "
            yield Problem(key, message + self.scheduler)
        elif colon and self.workers is not None and self.workers != int(number):
            message = f"must be left out, or agree with {self.scheduler}, but is {self.workers}"
            yield Problem(("workers",), message)
        elif name == "local" and not colon and self.workers is None:
            yield Problem(key, "must have a number of workers, as in local:4")
        elif self.workers_wanted > _MOST_WORKERS[name]:
            message = (
                f"must have at most {_MOST_WORKERS[name]} workers, but has {self.workers_wanted}"
            )
            yield Problem(key if colon else ("workers",), message)

    def _of_texts(self) -> Iterator[Problem]:
        if self.memory is not None and not _MEMORY.fullmatch(self.memory):
            message = f'must be a number with a unit, such as "4 GiB", but is "{self.memory}"'
            yield Problem(("memory",), message)
        if not _DURATION.fullmatch(self.walltime):
            message = f"must be of the form hours:minutes:seconds, but is {self.walltime}"
            yield Problem(("walltime",), message)
        if self.kind == "local":
            for key in _OF_SLURM:
                if getattr(self, key) != getattr(Cluster, key):  # the default
                    message = 'must be left out: it is for the scheduler "slurm", not local'
                    yield Problem((key,), message)
        if self.kind == "slurm" and self.memory is None:
            yield Problem(("memory",), 'must be given for jobs of SLURM, such as "4 GiB"')
        if self.kind not in _WORDS:
            for key in ("workers", "cores", "memory"):
                if getattr(self, key) is not None:
                    message = "must be left out: the cluster runs already, with workers of its own"
                    yield Problem((key,), message)
