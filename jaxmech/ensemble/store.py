"""The run folder of a study: created once, filled block by block, continued after any interruption.

    config.toml        the resolved configuration
    environment.json   versions, device, time
    model.py           copy of the user's model file, if there is one
    results.zarr/      the arrays, one file per array and block
    blocks/            one empty file per finished block

A block counts as finished when its file in `blocks/` exists, which is put there (by an atomic
rename) only after the data of the block are on the disk. Whatever a killed process left behind is
written again. `config.toml` is the last file of the creation, so a folder with it is complete.
"""

import json
import os
import shutil
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import zarr

from jaxmech.ensemble.environment import first_change, started
from jaxmech.ensemble.layout import Layout, array_of
from jaxmech.ensemble.study import Study, plain
from jaxmech.ensemble.subject import Subject

LOCK = ".lock"
_CREATED = {LOCK, "environment.json", "model.py", "results.zarr", "blocks"}
_MAY_CHANGE = {"chunk"}


class FolderError(ValueError):
    """A run folder that cannot be used, and what to do about it."""


@dataclass(frozen=True)
class RunFolder:
    """A run folder that is open for writing.

    Attributes:
        path: the folder.
        size: trajectories of the study.
        block: trajectories of a block.
    """

    path: Path
    size: int
    block: int

    @property
    def results(self) -> Path:
        """The Zarr group."""
        return self.path / "results.zarr"

    def missing(self) -> list[int]:
        """The numbers of the blocks that are still to be computed."""
        done = finished_blocks(self.path)
        return [block for block in range(-(-self.size // self.block)) if block not in done]

    def write(self, block: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Stores one block and then marks it as finished."""
        group = zarr.open_group(self.results, mode="r+")
        first = block * self.block
        last = min(first + self.block, self.size)
        for name, values in arrays.items():
            array_of(group, name)[first:last] = np.asarray(values)[: last - first]
            for file in (self.results / name / "c").glob(f"{block}/**/*"):
                _flush(file)
            _flush(self.results / name / "c" / str(block))
        write_whole(self.path / "blocks" / f"{block:06d}", "")


def finished_blocks(path: Path) -> set[int]:
    """The numbers of the blocks that are on the disk."""
    return {int(file.name) for file in (path / "blocks").glob("[0-9]*") if file.name.isdigit()}


@contextmanager
def open_run(
    path: Path, study: Study, subject: Subject, layout: Layout, facts: Mapping[str, Any]
) -> Iterator[RunFolder]:
    """Creates a run folder, or opens the one that is there to continue it.

    Args:
        path: the folder.
        study: the resolved study.
        subject: its system.
        layout: the arrays that the folder holds.
        facts: the environment of this process.

    Yields:
        The `RunFolder`, locked against other processes.

    Raises:
        FolderError: the folder cannot be written, is in use, holds something else, or was begun
            with another configuration or environment.
    """
    if subject.source:  # the folder's own copy of the file is what its configuration names
        study = replace(study, model=f"model.py:{subject.name.rpartition(':')[2]}")
    try:
        if path.is_dir() and any(path.iterdir()) and not (path / LOCK).is_file():
            raise FolderError(f"{path} holds files that are no run; choose another folder by --out")
        path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            folder = RunFolder(path, study.size, study.block_size)
            if (path / "config.toml").is_file():
                _require_same_config(path, study)
                if folder.missing():
                    _require_same_environment(path, facts)
            else:
                _create(folder, study, subject, layout, facts)
            yield folder
    except OSError as error:
        raise FolderError(f"{path} cannot be used: {error.strerror or error}") from error


def write_whole(file: Path, text: str) -> None:
    """Writes a file so that it is there as a whole or not at all."""
    draft = file.with_name(f".{file.name}.draft")
    draft.write_text(text)
    _flush(draft)
    draft.replace(file)
    _flush(file.parent)


def _create(
    folder: RunFolder, study: Study, subject: Subject, layout: Layout, facts: Mapping[str, Any]
) -> None:
    path = folder.path
    for name in _CREATED - {LOCK}:  # what an interrupted creation left behind
        if (path / name).is_dir():
            shutil.rmtree(path / name)
    (path / "blocks").mkdir()
    with warnings.catch_warnings():  # consolidated metadata is what xarray looks for first
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        layout.create(folder.results)
        zarr.consolidate_metadata(folder.results)
    if subject.source:
        shutil.copyfile(subject.source, path / "model.py")
    (path / "environment.json").write_text(started(facts))
    for file in path.glob("**/*"):
        _flush(file)
    write_whole(path / "config.toml", tomli_w.dumps(plain(study)))


def _require_same_config(path: Path, study: Study) -> None:
    try:
        then = tomllib.loads((path / "config.toml").read_text())
    except ValueError as error:
        raise FolderError(f"{path / 'config.toml'} cannot be read: {error}") from error
    difference = _first_difference(then, plain(study), ())
    if difference:
        key, old, new = difference
        raise FolderError(
            f"{path} holds the run of a different configuration: `{key}` is {old} there and {new} "
            f"here; choose another folder by --out, or set it back"
        )


def _first_difference(then: Any, now: Any, key: tuple[str, ...]) -> tuple[str, str, str] | None:
    if not isinstance(then, dict) or not isinstance(now, dict):
        return None if then == now else (".".join(key), _shown(then), _shown(now))
    names = [*now, *(name for name in then if name not in now)]
    pairs = ((then.get(n), now.get(n), (*key, n)) for n in names if n not in _MAY_CHANGE or key)
    return next((found for pair in pairs if (found := _first_difference(*pair))), None)


def _shown(value: Any) -> str:
    return "not given" if value is None else json.dumps(value)


def _require_same_environment(path: Path, facts: Mapping[str, Any]) -> None:
    try:
        then = json.loads((path / "environment.json").read_text())
    except ValueError as error:
        raise FolderError(f"{path / 'environment.json'} cannot be read: {error}") from error
    key = first_change(then, facts)
    if key == "model_sha256":
        raise FolderError(
            f"{path} was begun with another version of the model file; its copy is "
            f"{path / 'model.py'}: put that back, or choose another folder by --out"
        )
    if key:
        old, new = _shown(then.get(key)), _shown(facts.get(key))
        raise FolderError(
            f"{path} was begun with {key} {old}, and this is {new}: the rest would not have the "
            f"same bits; continue there as it was begun, or choose another folder by --out"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks on Windows; writing twice gives the same bits anyway
        (path / LOCK).touch()
        yield
        return
    with (path / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderError(f"{path} is being written by another process; wait for it") from error
        yield


def _flush(path: Path) -> None:
    """Makes the operating system put a file or folder onto the disk now."""
    if not path.exists() or (path.is_dir() and os.name == "nt"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
