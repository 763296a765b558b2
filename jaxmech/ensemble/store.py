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

import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import zarr

from jaxmech.ensemble.environment import started
from jaxmech.ensemble.folder import (
    LOCK,
    FolderError,
    flush,
    locked,
    require_run_or_nothing,
    require_same_config,
    require_same_environment,
    write_whole,
)
from jaxmech.ensemble.layout import Layout, array_of
from jaxmech.ensemble.study import Study, plain
from jaxmech.ensemble.subject import Subject

_CREATED = {LOCK, "environment.json", "model.py", "results.zarr", "blocks"}
_MAY_CHANGE = {"chunk"}  # of the keys of a study


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
                flush(file)
            flush(self.results / name / "c" / str(block))
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
        require_run_or_nothing(path)
        with locked(path):
            folder = RunFolder(path, study.size, study.block_size)
            if (path / "config.toml").is_file():
                require_same_config(path, plain(study), _MAY_CHANGE)
                if folder.missing():
                    require_same_environment(path, facts)
            else:
                _create(folder, study, subject, layout, facts)
            yield folder
    except OSError as error:
        raise FolderError(f"{path} cannot be used: {error.strerror or error}") from error


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
        flush(file)
    write_whole(path / "config.toml", tomli_w.dumps(plain(study)))
