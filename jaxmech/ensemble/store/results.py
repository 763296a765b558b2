"""`Results`: the content of a run folder, read block by block."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import zarr

from jaxmech.config import FolderError, command_of, model_name
from jaxmech.ensemble.blocks.accumulate import from_file
from jaxmech.ensemble.members.base import COORDINATE_UNITS, VELOCITY, VELOCITY_UNITS
from jaxmech.ensemble.members.observed import quantity_unit
from jaxmech.ensemble.statistics import FirstPassage
from jaxmech.ensemble.store.layout import array_of
from jaxmech.ensemble.store.marks import (
    BLOCKS,
    RESULTS,
    STATISTICS_FILE,
    SUMMARY,
    has_files,
    marked_blocks,
)
from jaxmech.ensemble.study import STATISTICS
from jaxmech.status import succeeded
from jaxmech.utils.drawings import DRAWINGS
from jaxmech.utils.units import with_unit


@dataclass(frozen=True, repr=False)
class Results:
    """The stored results of a study, finished or not, as `open_results` returns them."""

    path: Path  # the run folder
    group: zarr.Group  # of the arrays
    config: dict[str, Any]  # resolved configuration
    blocks: tuple[int, ...]  # indices of the finished blocks

    @property
    def name(self) -> str:
        """The name of the model: of a robot that of its file, and of others without the file."""
        return model_name(self.config, self.path)

    @property
    def size(self) -> int:
        """The number of trajectories of the study."""
        return int(self.config["size"])

    @property
    def count(self) -> int:
        """The number of blocks of the whole study."""
        return _count(self.config)

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return tuple(str(name) for name in self._whole("coordinate"))

    @cached_property
    def velocities(self) -> tuple[str, ...]:
        """The names of the quasi-velocities; empty if v are the rates of the coordinates."""
        if not self.has(VELOCITY):
            return ()
        metadata = array_of(self.group, VELOCITY).metadata
        if getattr(metadata, "dimension_names", None) != (VELOCITY,):  # else a user's quantity
            return ()
        return tuple(str(name) for name in self._whole(VELOCITY))

    @cached_property
    def units(self) -> dict[str, str]:
        """The units of the coordinates and quasi-velocities that have one, by name."""
        tables = [array_of(self.group, "coordinate").attrs.get(COORDINATE_UNITS)]
        if self.velocities:
            tables.append(array_of(self.group, VELOCITY).attrs.get(VELOCITY_UNITS))
        known = [table for table in tables if isinstance(table, Mapping)]
        return {name: str(unit) for table in known for name, unit in table.items()}

    def unit_of(self, quantity: str) -> str:
        """The unit of a quantity, empty if none is known."""
        observed = self.config.get("observe", {}).items()
        units = {name: table.get("unit", "") for name, table in observed}
        return quantity_unit(quantity, units, self.config.get("events", {}), self.units)

    def statistic_units(self, name: str) -> dict[str, str]:
        """The units of the results of a statistic that have one, by their names."""
        settings = self.config.get("statistics", {}).get(name, {})
        kind, of = STATISTICS.get(settings.get("statistic")), settings.get("of")
        if kind is None or not isinstance(of, str):
            return {}
        unit = "s" if kind is FirstPassage else self.unit_of(of)  # of the times of passages
        return dict.fromkeys(kind.in_unit, unit) if unit else {}

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the coordinates, each with its unit if it has one."""
        return tuple(with_unit(name, self.units.get(name, "")) for name in self.coordinates)

    @cached_property
    def ts(self) -> np.ndarray:
        """The saved times [s], shape (time,)."""
        return self._whole("t")

    @cached_property
    def members(self) -> np.ndarray:
        """The numbers of the finished members, shape (done,)."""
        step = int(self.config["block"])
        ranges = [np.arange(b * step, min((b + 1) * step, self.size)) for b in self.blocks]
        return np.concatenate([np.zeros(0, int), *ranges])

    @cached_property
    def is_good(self) -> np.ndarray:
        """Whether finished members count in statistics, shape (done,)."""
        return np.asarray(succeeded(self.status))

    @cached_property
    def statistics(self) -> dict[str, dict[str, np.ndarray]]:
        """The results of the statistics of a finished study, by name; empty without any."""
        file = self.path / STATISTICS_FILE
        try:
            return from_file(file.read_bytes()) if file.is_file() else {}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise FolderError(f"{file} cannot be read: {error}") from error

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of `summary.json` of a finished study; empty before."""
        file = self.path / SUMMARY[0]
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}

    @cached_property
    def status(self) -> np.ndarray:
        """Status of the finished trajectories, shape (done,)."""
        return self.all_of("status").astype(np.int32)

    def __repr__(self) -> str:
        head = f"Results of {self.path}"
        file = self.path / SUMMARY[1]
        if file.is_file():
            return f"{head}\n\n{file.read_text(encoding='utf-8')}".rstrip()
        done = f"{len(self.blocks)} of {self.count} blocks"
        return f"{head}: {self.name}, {self.size:,} trajectories, {done} computed"

    def plot(self, *names: str, figure: Any = None) -> Any:
        """Draw quantiles of the coordinates over time, and the statistics.

        Args:
            *names: coordinates and statistics to draw; by default all, up to 24 panels.
            figure: a matplotlib figure to draw into; by default a new one, which
                `matplotlib.pyplot.show` shows.

        Returns:
            The `Panels`: `save("study.png")` writes them; their `axes` can be changed, by name.

        Raises:
            ValueError: if a name cannot be drawn, or the study stores nothing to draw.
        """
        return DRAWINGS["Results"](self, names, figure)

    def all_of(self, name: str) -> np.ndarray:
        """The finished blocks of an array together."""
        pieces = list(self.pieces(name))
        return np.concatenate(pieces) if pieces else np.zeros(0)

    def _whole(self, name: str) -> np.ndarray:
        try:
            return np.asarray(array_of(self.group, name)[...])
        except (KeyError, ValueError) as error:
            message = f"{RESULTS} has no array `{name}` that this jaxmech has written"
            raise FolderError(f"{self.path} cannot be read: {message}") from error

    def has(self, name: str) -> bool:
        """Whether an array of that name is stored."""
        return name in self.group

    def pieces(self, name: str) -> Iterator[np.ndarray]:
        """The finished blocks of an array in order; a damaged one raises a FolderError."""
        step = int(self.config["block"])
        for block in self.blocks:
            yield self.rows(name, slice(block * step, (block + 1) * step))

    def rows(self, name: str, rows: int | slice) -> np.ndarray:
        """Some rows of an array, all in one finished block; a damaged one raises a FolderError."""
        first = rows.start if isinstance(rows, slice) else rows
        block = first // int(self.config["block"])
        try:
            return np.asarray(array_of(self.group, name)[rows])
        except ValueError as error:  # of Zarr, from a checksum
            raise _damaged(self.path, f"`{name}` of block {block} was altered") from error

    def good(self, name: str, times: Any = slice(None), limit: int | None = None) -> np.ndarray:
        """An array of the trajectories that did not fail, shape (good, ...).

        Args:
            name: name of the array.
            times: indices of the saved times, for an array that has them.
            limit: stop reading whole blocks after this many trajectories; by default read all.
        """
        good = self.is_good  # which is read once for all arrays
        selected: list[np.ndarray] = []
        first = 0
        for piece in self.pieces(name):
            last = first + len(piece)
            rows = piece[:, times] if piece.ndim > 1 else piece
            selected.append(rows if good[first:last].all() else rows[good[first:last]])
            if limit is not None and sum(map(len, selected)) >= limit:
                break
            first = last
        return np.concatenate(selected)[:limit] if selected else np.zeros((0,))


def open_results(path: Path) -> Results:
    """Open a run folder for reading.

    Raises:
        FolderError: if the folder does not contain a run, or the run is damaged.
    """
    if not any((path / name).exists() for name in ("config.toml", BLOCKS)):
        what = "is a file, so it " if path.exists() else "does not exist, so it "
        problem = f"{'' if path.is_dir() else what}holds no run"
        raise FolderError(
            f"{path} {problem}; name the folder of a run of `jaxmech ensemble` or `jaxmech fit`"
        )
    if command_of(path) == "failure":
        raise FolderError(
            f"{path} holds a run of `jaxmech failure`, not of `jaxmech ensemble`; `jaxmech report` "
            "shows it"
        )
    try:
        config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        group = zarr.open_group(path / RESULTS, mode="r", zarr_format=3, use_consolidated=False)
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}") from error
    blocks = tuple(marked_blocks(path))
    lost = [str(block) for block in blocks if not has_files(path, block)]
    if lost:
        raise _damaged(path, f"files of block {', '.join(lost)} are missing")
    return Results(path, group, config, blocks)


def _damaged(path: Path, what: str) -> FolderError:
    remedy = f"`jaxmech ensemble` with its configuration and --out {path} computes it again"
    return FolderError(f"{path} is damaged: {what}; {remedy}")


def _count(config: Mapping[str, Any]) -> int:
    return -(-int(config["size"]) // int(config["block"]))
