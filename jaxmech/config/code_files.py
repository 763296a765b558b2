"""The Python files that a configuration names.

They are executed where the user names the configuration. A run folder is data: its copies of Python
files record what was computed, and are never executed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmech.config.run_folder import FolderError

_NAMED = re.compile(r"(.*\.py):\w+")


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


def require_no_run_code(files: Sequence[Path], folder: Path) -> None:
    """Raise a FolderError for Python files of a run folder, which a file in `folder` names."""
    for file in files:
        places = (folder.resolve(), *folder.resolve().parents, *file.resolve().parents)
        if run := next(filter(is_run, places), None):
            raise FolderError(
                f"{file} belongs to the run folder {run}, whose Python files are copies and are "
                "not executed; name the configuration from which the run was made, or copy "
                "config.toml and the Python files of the run into a folder of your own"
            )
