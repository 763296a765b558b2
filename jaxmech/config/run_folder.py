"""Run folders, written by one process at a time and possibly continued by a later one.

config.toml        the resolved configuration
environment.json   what the results depend on, and the time of creation: versions, device,
digests of files and functions
model.py           copy of the user's model file (model.xml, model.urdf), and those of others
"""

import io
import json
import os
import platform
import shutil
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import numpy as np
import tomli_w

from jaxmech.config.errors import FolderError
from jaxmech.utils.digests import sources_digest

LOCK = ".lock"
# The commands that write run folders, by what only theirs hold.
_COMMANDS = {"results.zarr": "ensemble", "failure.json": "failure", "fit.npz": "fit"}
_DECIDES_TRACES = ("jax", "x64")  # digests of functions are comparable only if these agree
_PACKAGES = ("jaxmech", "jax", "jaxlib", "numpy", "scipy", "zarr")
_PARTS = {"functions": "the model differs in", "draws": "different values are drawn for"}
_WHOLE = {
    "jaxmech_sha256": "the source files of jaxmech differ",
    "data_sha256": "the measurements differ",
    "model_sha256": "the model file has changed",
}


@dataclass(frozen=True)
class RunFolder:
    """A run folder, which may not exist yet; a FolderError says that it cannot be used."""

    path: Path

    @property
    def is_complete(self) -> bool:
        """Whether its creation is complete."""
        return (self.path / "config.toml").is_file()

    @property
    def command(self) -> str | None:
        """The command that wrote it, such as "ensemble", if that got as far as to tell it."""
        names = (name for file, name in _COMMANDS.items() if (self.path / file).exists())
        return next(names, None)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self._read("config.toml", tomllib.loads)

    @property
    def environment(self) -> dict[str, Any]:
        """What the results depend on, as `environment` has it."""
        return self._read("environment.json", json.loads)

    def _read(self, name: str, loads: Callable[[str], Any]) -> dict[str, Any]:
        file = self.path / name
        try:
            return dict(loads(file.read_text(encoding="utf-8")).items())
        except (OSError, ValueError, AttributeError) as error:
            raise FolderError(f"{file} cannot be read: {error}") from error

    @property
    def model_name(self) -> str:
        """The name of its model, of a robot that of its file; else that of the folder."""
        model = str(self.config["model"])
        file, _, name = model.rpartition(":")
        if file and name.lower() in ("mech", "mechanism", "model", "system"):  # which tells nothing
            return self.path.resolve().name
        if file or "." not in name:
            return name
        return Path(self.environment.get("model", name)).stem

    @contextmanager
    def opened(self, command: str) -> Iterator[None]:
        """Make the folder if there is none, and lock it meanwhile for a command."""
        path, other = self.path, self.command
        if other not in (None, command):
            raise FolderError(
                f"{path} holds a run of `jaxmech {other}`; choose another folder with --out"
            )
        try:
            if path.is_dir() and any(path.iterdir()) and not (path / LOCK).is_file():
                message = "holds files but no run; choose another folder with --out"
                raise FolderError(f"{path} {message}")
            path.mkdir(parents=True, exist_ok=True)
            with (path / LOCK).open("a+") as file:
                try:
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except ImportError:  # of Windows, where two processes would write the same bits
                    pass
                except BlockingIOError as error:
                    file.seek(0)
                    holder = f" ({name})" if (name := file.read().strip()) else ""
                    message = f"{path} is being written by another process{holder}; wait for it"
                    raise FolderError(message) from error
                file.truncate(0)  # left by a killed process
                file.write(f"{os.getpid()} on {platform.node()}\n")
                file.flush()
                try:
                    yield
                finally:
                    file.truncate(0)
        except OSError as error:
            reason = error.strerror or error
            message = "choose a folder that can be written, with --out"
            raise FolderError(f"{path} cannot be used: {reason}; {message}") from error

    def create(
        self, config: Mapping[str, Any], facts: Mapping[str, Any], copies: Mapping[Path, str] = {}
    ) -> None:
        """Write what the results depend on, with the names of copies by the files.

        `config.toml` comes last, when all else is on the disk: with it, the folder is complete.
        """
        for source, name in copies.items():
            shutil.copyfile(source, self.path / name)
        content = {**facts, "started": datetime.now(UTC).isoformat(timespec="seconds")}
        write_whole(self.path / "environment.json", json.dumps(content, indent=2) + "\n")
        for file in self.path.glob("**/*"):
            flush(file)
        write_whole(self.path / "config.toml", tomli_w.dumps(config))

    def require_same_config(self, config: Mapping[str, Any], may_change: Container[str]) -> None:
        """Raise a FolderError if its configuration differs in a key that is not in `may_change`."""

        def differences(new: Any, old: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
            for key in [*new, *(key for key in old if key not in new)]:
                name, x, y = f"{prefix}{key}", new.get(key), old.get(key)
                if x == y or name in may_change:
                    continue
                if isinstance(x, dict) and isinstance(y, dict):
                    yield from differences(x, y, f"{name}.")
                else:
                    yield name, x, y

        for key, new, old in differences(config, self.config):
            there, here = ("not given" if x is None else json.dumps(x) for x in (old, new))
            raise FolderError(
                f"{self.path} holds the run of a different configuration: `{key}` is {there} there "
                f"and {here} here; choose another folder with --out, or set it back"
            )

    def require_same_environment(self, facts: Mapping[str, Any], decisive: Iterable[str]) -> None:
        """Raise a FolderError if it was computed with another decisive fact."""
        if changes := self.changes(facts, decisive):
            raise FolderError(
                f"{self.path} holds results that were computed differently: {'; '.join(changes)}. "
                "Old and new results must not be mixed: change that back, or choose another folder "
                "with --out"
            )

    def changes(self, facts: Mapping[str, Any], decisive: Iterable[str]) -> list[str]:
        """One predicate for each decisive fact that differs from that of the run."""
        stored, names = self.environment, list(decisive)
        if any(stored.get(key) != facts.get(key) for key in _DECIDES_TRACES):
            names = ["model_sha256" if key == "functions" else key for key in names]
        messages = []
        for key in names:
            old, new = stored.get(key), facts.get(key)
            if key in _PARTS:
                old, new = old or {}, new or {}
                if parts := [x for x in {**new, **old} if old.get(x) != new.get(x)]:
                    messages.append(f"{_PARTS[key]} {', '.join(parts)}")
            elif old != new:
                there_here = f"{json.dumps(old)} there and {json.dumps(new)} here"
                messages.append(_WHOLE.get(key, f"{key} is {there_here}"))
        return messages


def require_no_run_code(file: Path, folder: Path) -> None:
    """Raise a FolderError for a Python file of a run folder, which a file in `folder` names."""
    locations = (folder.resolve(), *folder.resolve().parents, *file.resolve().parents)
    for run in locations:
        if (run / "environment.json").is_file():
            raise FolderError(
                f"{file} belongs to the run folder {run}, whose Python files are copies and are "
                "not executed; name the configuration from which the run was made, or copy "
                "config.toml and the Python files of the run into a folder of your own"
            )


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file so that it exists completely or not at all."""
    # A unique name: two processes may write the same file with the same content.
    draft = file.with_name(f".{file.name}.{os.getpid()}-{uuid4().hex[:8]}.draft")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        error.filename = str(file)  # the name that the user knows
        raise
    flush(draft)
    draft.replace(file)
    flush(file.parent)


def flush(path: Path) -> None:
    """Flush a file or folder to the disk."""
    if not path.exists() or (path.is_dir() and os.name == "nt"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def npz(arrays: Mapping[str, Any], *, compressed: bool = False) -> bytes:
    """The content of an .npz file, reproducible to the byte."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def environment(model: str = "", sha256: str | None = None) -> dict[str, Any]:
    """The versions, devices and settings of this process, and a model's file if it has a digest."""
    device = jax.devices()[0]
    return {
        **{package: version(package) for package in _PACKAGES},
        "jaxmech_sha256": sources_digest(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "platform": device.platform,
        "device": device.device_kind,
        "devices": jax.device_count(),
        "processor": processor(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "x64": bool(jax.config.read("jax_enable_x64")),
        **({"model": model, "model_sha256": sha256} if sha256 else {}),
    }


@cache
def processor() -> str:
    """The kind of processor, which determines the instructions available to the compiler."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor()) or platform.machine()
