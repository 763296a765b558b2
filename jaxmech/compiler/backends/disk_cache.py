"""Native code of earlier processes, stored in a folder of the user.

The environment variable `JAXMECH_KERNEL_CACHE` names the folder, or is `off`; by default it is
`jaxmech/kernels` in the user's cache folder. Entries that cannot be read or written are compiled as
without a cache: nothing here raises.
"""

import abc
import hashlib
import json
import os
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import llvmlite

from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.utils.digests import sha256, sources_digest

LARGEST = 256 * 2**20  # bytes of all entries; the least recently used go first
_DIGEST_BYTES = 32


def cache_folder() -> Path | None:
    """The folder in use, None where the cache is off."""
    configured = os.environ.get("JAXMECH_KERNEL_CACHE")
    if configured is not None:
        return None if configured in ("", "off") else Path(configured).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "jaxmech" / "kernels"


def load(key: str) -> bytes | None:
    """Return the entry of a key, None if there is none, it is damaged, or may be of others."""
    position = cache_folder()
    if position is None:
        return None
    with suppress(OSError):
        content = _own_content(position, key)
        if content is None:
            return None
        os.utime(position / key)  # recently used entries stay
        # Damaged code would crash the process, so its digest is compared before it is loaded.
        digest, entry = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(entry).digest() == digest:
            return entry
    return None


def store(key: str, entry: bytes) -> None:
    """Keep an entry under a key, and drop the oldest ones beyond the bound."""
    position = cache_folder()
    if position is None:
        return
    with suppress(OSError):
        position.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(position.stat()):
            return
        unfinished = position / f".{key}.{os.getpid()}"
        try:
            unfinished.touch(mode=0o600)
            unfinished.write_bytes(hashlib.sha256(entry).digest() + entry)
            unfinished.replace(position / key)  # whole or not at all, also beside other processes
        finally:
            unfinished.unlink(missing_ok=True)
        _drop_oldest(position)


def _own_content(position: Path, key: str) -> bytes | None:
    """The content of a file in the folder, None if other users could have put it there."""
    if not hasattr(os, "getuid"):  # Windows
        return (position / key).read_bytes()
    # The open folder and file are checked: names could be given to others between check and use.
    directory = os.open(position, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.fdopen(os.open(key, os.O_RDONLY, dir_fd=directory), "rb") as stream:
            infos = map(os.fstat, (directory, stream.fileno()))
            return stream.read() if all(map(_is_own, infos)) else None
    finally:
        os.close(directory)


def _is_own(info: os.stat_result) -> bool:
    """Whether a file or folder is this user's own, and no other may write to it."""
    return not hasattr(os, "getuid") or (info.st_uid == os.getuid() and not info.st_mode & 0o022)


def _drop_oldest(position: Path) -> None:
    entries = []
    with os.scandir(position) as listing:
        for entry in listing:
            with suppress(FileNotFoundError):  # dropped by another process
                entries.append((entry.stat(), entry.path))
    total = sum(info.st_size for info, _ in entries)
    for info, path in sorted(entries, key=lambda entry: entry[0].st_mtime):
        if total <= LARGEST:
            return
        Path(path).unlink()
        total -= info.st_size


class Facts(NamedTuple):
    """Properties of native code that its caller needs.

    Attributes:
        name: name of its function.
        lanes: number of trajectories computed side by side.
        results: indices of the results that it computes: those that are not empty.
    """

    name: str
    lanes: int
    results: tuple[int, ...]


class AbstractProgram(abc.ABC):
    """Native code, generated and compiled at most once, on first use.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch.
        how: what else the code depends on.
    """

    def __init__(self, kernel: Kernel, batched: frozenset[int], how: tuple[Any, ...]) -> None:
        self.kernel, self.batched, self._how = kernel, batched, how

    @cached_property
    def facts(self) -> Facts:
        """The name, lanes and results of the code.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
        """
        if self._stored is None:
            try:
                return self._generated()
            except UnsupportedError as error:
                self._store({"unsupported": str(error)})
                raise
        header = json.loads(self._stored.partition(b"\n")[0])
        if "unsupported" in header:
            raise UnsupportedError(header["unsupported"])
        return Facts(header["name"], header["lanes"], tuple(header["results"]))

    @abc.abstractmethod
    def _generated(self) -> Facts:
        """Generate the code."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """Compile it, or raise the error of the compiler."""

    def require_supported(self) -> None:
        """Raise `UnsupportedError` for an operation or a type for which there is no instruction."""
        _ = self.facts

    @property
    def _stored_code(self) -> bytes | None:
        return None if self._stored is None else self._stored.partition(b"\n")[2]

    @cached_property
    def _stored(self) -> bytes | None:
        return load(self._key) if cache_folder() else None

    def _store(self, header: dict[str, Any], code: bytes = b"") -> None:
        if cache_folder():
            store(self._key, json.dumps(header).encode() + b"\n" + code)

    @cached_property
    def _key(self) -> str:
        kernel = self.kernel
        kind = sorted(self.batched), kernel.results, kernel.sequences, self._how
        how = kernel.reading.origins.name
        return sha256(kernel.reading.digest, repr((kind, how)), environment())


@cache
def environment() -> str:
    """A key of everything but the kernel: the compiler's source and its libraries."""
    sources = sources_digest(Path(__file__).parents[1])
    return repr((sources, jax.__version__, llvmlite.__version__))
