"""`Results`: what a run folder holds, read block by block."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from jaxmech.ensemble.folder import FolderError
from jaxmech.ensemble.layout import array_of
from jaxmech.ensemble.store import finished_blocks
from jaxmech.status import Status


@dataclass(frozen=True)
class Results:
    """The stored results of a study, finished or not. Make it with `open_results`.

    Attributes:
        path: the run folder.
        group: its Zarr group.
        config: its resolved configuration.
        blocks: numbers of the finished blocks.
    """

    path: Path
    group: zarr.Group
    config: dict[str, Any]
    blocks: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the model, without the file it comes from."""
        return str(self.config["model"]).rpartition(":")[2]

    @property
    def size(self) -> int:
        """Trajectories of the study."""
        return int(self.config["size"])

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return tuple(str(name) for name in np.asarray(array_of(self.group, "coordinate")[...]))

    @cached_property
    def ts(self) -> np.ndarray:
        """Saved times [s], shape (time,)."""
        return np.asarray(array_of(self.group, "t")[...])

    @cached_property
    def status(self) -> np.ndarray:
        """Status of the finished trajectories, shape (done,)."""
        return np.concatenate([np.zeros(0, np.int32), *self.pieces("status")])

    def has(self, name: str) -> bool:
        """Whether an array of that name is stored."""
        return name in self.group

    def pieces(self, name: str) -> Iterator[np.ndarray]:
        """The finished blocks of an array, one after the other."""
        array, step = array_of(self.group, name), int(self.config["block"])
        for block in self.blocks:
            yield np.asarray(array[block * step : (block + 1) * step])

    def good(self, name: str, times: Any = slice(None), most: int | None = None) -> np.ndarray:
        """An array of the trajectories that did not fail.

        Args:
            name: the array.
            times: which saved times, for an array that has them.
            most: read whole blocks until there are this many trajectories; all by default.

        Returns:
            Shape (good, ...).
        """
        found: list[np.ndarray] = []
        for status, piece in zip(self.pieces("status"), self.pieces(name), strict=True):
            rows = piece[status == Status.OK]
            found.append(rows[:, times] if rows.ndim > 1 else rows)
            if most is not None and sum(map(len, found)) >= most:
                break
        return np.concatenate(found)[:most] if found else np.zeros((0,))


def open_results(path: Path) -> Results:
    """Opens a run folder for reading.

    Args:
        path: the folder, from `run`.

    Raises:
        FolderError: it holds no run, or cannot be read.
    """
    if not (path / "config.toml").is_file():
        raise FolderError(f"{path} holds no run; name a folder that `jaxmech ensemble` has written")
    try:
        config = tomllib.loads((path / "config.toml").read_text())
        group = zarr.open_group(path / "results.zarr", mode="r", use_consolidated=False)
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}") from error
    blocks = tuple(sorted(finished_blocks(path)))
    return Results(path, group, config, blocks)
