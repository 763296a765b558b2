"""Python files of runs: whose they are, and whether they are to be executed.

A run folder may come from somebody else, and holds copies of Python files. What reads a folder does
not execute them. Replaying and resuming do; they require that folder and files belong to this user,
and that files in the folder are as this user's jaxmech has written them. That is shown by a code in
the folder, made with a key that only this user can read.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from jaxmech.config.run_folder import FolderError, write_whole

WRITTEN_HERE = ".written-here"  # the code in a run folder
_NAMED = re.compile(r"(.*\.py):\w+")
_DATA = "results.zarr"  # a folder of many files, from which nothing can be imported
_KEY_BYTES = 32


def python_files(data: Any, folder: Path) -> list[Path]:
    """The files that the plain data of a configuration name as "path/file.py:name".

    Example:
        >>> data = {"model": "arm.py:arm", "observe": {"y": "arm.py:y", "z": "z.py:z"}}
        >>> [file.name for file in python_files(data, Path())]
        ['arm.py', 'z.py']
    """
    return list(dict.fromkeys(folder / name for name in _names(data)))


def _names(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        if match := _NAMED.fullmatch(data):
            yield match[1]
    elif isinstance(data, Mapping | Sequence):
        for part in data.values() if isinstance(data, Mapping) else data:
            yield from _names(part)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (folder / "seal.json").is_file() or (folder / "environment.json").is_file()


def require_trusted(runs: Iterable[Path], files: Sequence[Path], trust: bool) -> None:
    """Raise a FolderError for files to be executed for some runs, if they may be of others."""
    if trust or not files:
        return
    runs = [run for run in runs if run.is_dir()]
    reasons = [f"{path} belongs to another user" for path in (*runs, *files) if is_foreign(path)]
    for run in runs:
        inside = any(run.resolve() in file.resolve().parents for file in files)
        if inside and not is_written_here(run):
            reasons.append(f"the Python files in {run} were not written there by you")
    if reasons:
        names = ", ".join(map(str, files))
        message = f"this would execute {names}, but {'; '.join(dict.fromkeys(reasons))}"
        raise FolderError(f"{message}. If you trust all of it, allow it by --trust (trust=True)")


def is_foreign(path: Path) -> bool:
    """Whether a file or folder belongs to another user than this one and the administrator."""
    if not hasattr(os, "getuid") or not path.exists():
        return False
    return path.stat().st_uid not in (os.getuid(), 0)


def mark_written_here(run: Path) -> None:
    """Note that this user has written the Python files of a run folder."""
    with suppress(OSError):  # no folder for a key: the run is like one from somewhere else
        write_whole(run / WRITTEN_HERE, _code_of(run, _key(create=True)))


def is_written_here(run: Path) -> bool:
    """Whether the Python files of a run folder are those that this user has written."""
    try:
        code = (run / WRITTEN_HERE).read_text(encoding="utf-8")
        return hmac.compare_digest(code, _code_of(run, _key(create=False)))
    except (OSError, ValueError, TypeError):
        return False


def _code_of(run: Path, key: bytes) -> str:
    """A code for the configuration, and for all files that Python could import from there."""
    code = hmac.new(key, digestmod=hashlib.sha256)
    for place, folders, names in os.walk(run):
        folders[:] = sorted(name for name in folders if name != _DATA)
        for name in sorted(names):
            if name == "config.toml" or name.endswith(tuple(all_suffixes())):
                file = Path(place, name)
                code.update(f"{file.relative_to(run).as_posix()}\n".encode())
                code.update(hashlib.sha256(file.read_bytes()).digest())
    return code.hexdigest()


def _key(*, create: bool) -> bytes:
    """The key of this user, in the folder for the state of programs."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    file = Path(base).expanduser() / "jaxmech" / "key"
    if create and not file.is_file():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f".key.{os.getpid()}-{secrets.token_hex(4)}")
        draft.touch(mode=0o600, exist_ok=False)
        draft.write_bytes(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):  # of another process, at the same moment
            os.link(draft, file)
        draft.unlink()
    info = file.stat()
    if hasattr(os, "getuid") and (info.st_uid != os.getuid() or info.st_mode & 0o077):
        raise OSError(f"{file} must belong to this user, and be readable by no other")
    return file.read_bytes()
