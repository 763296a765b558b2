"""`Results`: the content of a run folder, read block by block.

`blocks/000012`, the mark of block 12, is written last, by an atomic rename, and lists its chunks: a
chunk of fill values alone has no file, so that without the list a lost one would be read as such. A
chunk that was altered is found by the checksum (crc32c) with which Zarr stores it.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import zarr

from jaxmech.config import FolderError, command_of, model_name
from jaxmech.ensemble.statistics import FirstPassage
from jaxmech.ensemble.study import STATISTICS
from jaxmech.status import succeeded
from jaxmech.utils.drawings import DRAWINGS
from jaxmech.utils.units import with_unit

STATISTICS_FILE = "statistics.npz"
SUMMARY = ("summary.json", "summary.txt", STATISTICS_FILE)
RESULTS, BLOCKS = "results.zarr", "blocks"
STATES = "statistics"  # the array that holds the states of the statistics
UNITS = "units"  # attribute of the group of arrays: units of quantities, by name


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
        return -(-self.size // int(self.config["block"]))

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return tuple(str(name) for name in self._whole("coordinate"))

    def unit_of(self, quantity: str) -> str:
        """The unit of a quantity, empty if none is known."""
        known = self.group.attrs.get(UNITS)
        return str(known.get(quantity, "")) if isinstance(known, Mapping) else ""

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
        return tuple(with_unit(name, self.unit_of(name)) for name in self.coordinates)

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
        file, statistics = self.path / STATISTICS_FILE, dict[str, dict[str, np.ndarray]]()
        try:
            if file.is_file():
                with np.load(file, allow_pickle=False) as arrays:
                    for key in arrays.files:
                        name, _, result = key.rpartition("/")
                        statistics.setdefault(name, {})[result] = arrays[key]
            return statistics
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
        head, file = f"Results of {self.path}", self.path / SUMMARY[1]
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
    lost = [str(block) for block in blocks if not is_whole(path, block)]
    if lost:
        raise _damaged(path, f"files of block {', '.join(lost)} are missing")
    return Results(path, group, config, blocks)


def _damaged(path: Path, what: str) -> FolderError:
    remedy = f"`jaxmech ensemble` with its configuration and --out {path} computes it again"
    return FolderError(f"{path} is damaged: {what}; {remedy}")


def mark_of(path: Path, block: int) -> Path:
    """The file that marks a block as finished."""
    return path / BLOCKS / f"{block:06d}"


def marked_blocks(path: Path) -> list[int]:
    """The numbers of the blocks that have a mark."""
    return sorted(int(f.name) for f in (path / BLOCKS).glob("[0-9]*") if f.name.isdigit())


def chunks_of(path: Path, block: int) -> list[Path] | None:
    """The chunks that a mark lists, or None if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        mark = json.loads(mark_of(path, block).read_text(encoding="utf-8"))
        files = [str(name) for name in mark["files"]]  # formerly a table with their digests
        if mark["block"] == block and all(name.startswith(f"{RESULTS}/") for name in files):
            return [path / name for name in files]
    return None


def is_whole(path: Path, block: int) -> bool:
    """Whether a block has a mark, and all files that the mark lists."""
    files = chunks_of(path, block)
    return files is not None and all(file.is_file() for file in files)


def array_of(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """The array of that name, or a KeyError."""
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise KeyError(name)
    return array
