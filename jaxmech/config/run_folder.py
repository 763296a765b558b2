"""Run folders, written by one process at a time and possibly continued by a later one."""

import io
import json
import os
import platform
import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from jaxmech.config.environment import changes
from jaxmech.config.errors import InputError


def python_files(data: Any, folder: Path) -> list[Path]:
    """The files that the plain data of a configuration name as "path/file.py:name"."""

    def names(data: Any) -> Iterator[str]:
        if isinstance(data, str):
            if match := re.fullmatch(r"(.*\.py):\w+", data):
                yield match[1]
        elif isinstance(data, Mapping | Sequence):
            for part in data.values() if isinstance(data, Mapping) else data:
                yield from names(part)

    return list(dict.fromkeys(folder / name for name in names(data)))


def require_no_run_code(files: Sequence[Path], folder: Path) -> None:
    """Raise a FolderError for Python files of a run folder, which a file in `folder` names."""
    for file in files:
        locations = (folder.resolve(), *folder.resolve().parents, *file.resolve().parents)
        runs = (x for x in locations if (x / "environment.json").is_file())
        if run := next(runs, None):
            raise FolderError(
                f"{file} belongs to the run folder {run}, whose Python files are copies and are "
                "not executed; name the configuration from which the run was made, or copy "
                "config.toml and the Python files of the run into a folder of your own"
            )


# The commands that write run folders, by what only theirs hold.
_COMMANDS = {"results.zarr": "ensemble", "failure.json": "failure", "fit.npz": "fit"}
LOCK = ".lock"


class FolderError(InputError):
    """A run folder cannot be used; the text names the remedy."""


class RunWarning(UserWarning):
    """A warning about a run, such as repaired damage or changed versions."""


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


def npz(arrays: Mapping[str, Any], *, compressed: bool = False) -> bytes:
    """The content of an .npz file, reproducible to the byte."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def require_same_config(path: Path, config: Mapping[str, Any], may_change: Container[str]) -> None:
    """Raise a FolderError if `config.toml` differs in a key that is not in `may_change`."""
    try:
        stored = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"{path / 'config.toml'} cannot be read: {error}") from error
    for key, new, old in differences(config, stored, may_change):
        there, here = ("not given" if x is None else json.dumps(x) for x in (old, new))
        raise FolderError(
            f"{path} holds the run of a different configuration: `{key}` is {there} there and "
            f"{here} here; choose another folder with --out, or set it back"
        )


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], ignored: Container[str], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two configurations differ, but for those that are left out, with values."""
    for key in [*first, *(key for key in second if key not in first)]:
        name, x, y = f"{prefix}{key}", first.get(key), second.get(key)
        if x == y or name in ignored:
            continue
        if isinstance(x, dict) and isinstance(y, dict):
            yield from differences(x, y, ignored, f"{name}.")
        else:
            yield name, x, y


def require_same_environment(path: Path, facts: Mapping[str, Any], decisive: Iterable[str]) -> None:
    """Raise a FolderError if `environment.json` differs in a decisive fact."""
    messages = changes(stored_environment(path), facts, decisive)
    if messages:
        raise FolderError(
            f"{path} holds results that were computed differently: {'; '.join(messages)}. Old and "
            "new results must not be mixed: change that back, or choose another folder with --out"
        )


def stored_environment(path: Path) -> dict[str, Any]:
    """Read `environment.json`, or raise a FolderError."""
    file = path / "environment.json"
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        return dict(facts.items())
    except (OSError, ValueError, AttributeError) as error:
        raise FolderError(f"{file} cannot be read: {error}") from error


def model_name(config: Mapping[str, Any], path: Path) -> str:
    """The name of a run: of its model, of a robot that of its file; else that of its folder."""
    file, _, name = str(config["model"]).rpartition(":")
    if file and name.lower() in ("mech", "mechanism", "model", "system"):  # which tells nothing
        return path.resolve().name
    if file or "." not in name:
        return name
    return Path(stored_environment(path).get("model", name)).stem


def command_of(path: Path) -> str | None:
    """The command that wrote a run folder, such as "ensemble", if it got as far as to tell it."""
    return next((name for file, name in _COMMANDS.items() if (path / file).exists()), None)


@contextmanager
def opened(path: Path, command: str) -> Iterator[None]:
    """Create or continue a run folder, locked meanwhile; an OSError becomes a FolderError."""
    if command_of(path) not in (None, command):
        raise FolderError(
            f"{path} holds a run of `jaxmech {command_of(path)}`; choose another folder with --out"
        )
    try:
        if path.is_dir() and any(path.iterdir()) and not (path / LOCK).is_file():
            raise FolderError(f"{path} holds files but no run; choose another folder with --out")
        path.mkdir(parents=True, exist_ok=True)
        with (path / LOCK).open("a+") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (
                ImportError
            ):  # Windows has no such locks; two processes would write the same bits
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
        raise FolderError(
            f"{path} cannot be used: {reason}; choose a folder that can be written, with --out"
        ) from error


def flush(path: Path) -> None:
    """Flush a file or folder to the disk."""
    if not path.exists() or (path.is_dir() and os.name == "nt"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
