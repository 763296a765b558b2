"""The run folder of a study: created once, filled block by block, continued after any interruption.

Beside what every `RunFolder` has, it holds `results.zarr/`, the arrays, one file per array and
block, and `blocks/`, a mark for each finished block, with the names of its files.

A block counts as finished when its mark in `blocks/` exists, which is put there (by an atomic
rename) only after the data of the block are on the disk. The mark lists its chunks: a chunk of fill
values alone has no file, so that without the list a lost one would be read as such. A chunk that
was altered is found by the checksum (crc32c) with which Zarr stores it. Whatever a killed process
left behind is computed again, and so is a block of which a file is missing or altered.

`Results` reads the folder, block by block, and `StudyFolder` writes it.
"""

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from jaxmech.config import RunFolder, flush, write_whole
from jaxmech.config.errors import FolderError, InputError
from jaxmech.ensemble.blocks import BlockProgram
from jaxmech.ensemble.member import Dims
from jaxmech.ensemble.plan import STATES
from jaxmech.ensemble.statistics import STATISTICS, FirstPassage
from jaxmech.status import succeeded
from jaxmech.utils.text import DRAWINGS
from jaxmech.utils.units import with_unit

if TYPE_CHECKING:
    import xarray

STATISTICS_FILE = "statistics.npz"
SUMMARY = ("summary.json", "summary.txt", STATISTICS_FILE)
RESULTS, BLOCKS = "results.zarr", "blocks"
UNITS = "units"  # attribute of the group of arrays: units of quantities, by name
MAY_CHANGE = {"failure"}  # of the keys of a study
_SHOWN = ("functions", "draws")  # must agree even for displaying a finished run
# A change of any of these may change the last bits of the results.
DECISIVE = (
    "jaxmech", "jaxmech_sha256", "jax", "jaxlib", "platform", "device", "devices", "processor",
    "xla_flags", "x64", *_SHOWN,
)  # fmt: skip
_VERSIONS = ("jaxmech", "jax")  # differences that are reported, but allowed
_OVER_TIME = ("moments", "quantiles", "first-passage")  # statistics that may be of each saved time
_TITLES = {
    "start": "start variable",
    "coordinates": "initial coordinate",
    "velocities": "initial velocity of",
    "parameters": "parameter",
}


@dataclass(frozen=True, repr=False)
class Results:
    """The stored results of a study, finished or not, as `open_results` returns them."""

    path: Path  # the run folder
    group: zarr.Group  # of the arrays
    config: dict[str, Any]  # resolved configuration
    blocks: tuple[int, ...]  # indices of the finished blocks

    @cached_property
    def name(self) -> str:
        """The name of the model: of a robot that of its file, and of others without the file."""
        return RunFolder(self.path).model_name

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

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of the dimensions of an array, such as "trajectory" and "time"."""
        metadata: Any = array_of(self.group, name).metadata
        return tuple(metadata.dimension_names or ())

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


def open_results(path: Path | str) -> Results:
    """Open a run folder for reading.

    Raises:
        FolderError: if the folder does not contain a run, or the run is damaged.
    """
    path = Path(path)
    if not any((path / name).exists() for name in ("config.toml", BLOCKS)):
        what = "is a file, so it " if path.exists() else "does not exist, so it "
        problem = f"{'' if path.is_dir() else what}holds no run"
        raise FolderError(
            f"{path} {problem}; name the folder of a run of `jaxmech ensemble` or `jaxmech fit`"
        )
    run = RunFolder(path)
    if run.command == "failure":
        raise FolderError(
            f"{path} holds a run of `jaxmech failure`, not of `jaxmech ensemble`; its result is in "
            "failure.txt"
        )
    try:
        group = zarr.open_group(path / RESULTS, mode="r", zarr_format=3, use_consolidated=False)
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}") from error
    blocks = tuple(marked_blocks(path))
    lost = [str(block) for block in blocks if not is_whole(path, block)]
    if lost:
        raise _damaged(path, f"files of block {', '.join(lost)} are missing")
    return Results(path, group, run.config, blocks)


def _damaged(path: Path, what: str) -> FolderError:
    remedy = f"`jaxmech ensemble` with its configuration and --out {path} computes it again"
    return FolderError(f"{path} is damaged: {what}; {remedy}")


def open(run: Path | str) -> "xarray.Dataset":  # noqa: A001
    """The results of a run folder, finished or not, as a dataset that reads them when needed.

    Beside the stored arrays, it has the results of the statistics, as `<statistic>_<key>`, or as
    `statistic_<statistic>_<key>` where there is an array of that name. Trajectories of blocks that
    are not yet computed have the status -1. With dask installed, arrays are divided as they are
    stored.

    Args:
        run: the run folder.

    Raises:
        InputError: if xarray is not installed.
        FolderError: if the folder does not contain a run, or a file of a block is missing. Reading
            a chunk that was altered raises a ValueError of Zarr, by its checksum.
    """
    try:
        import xarray
    except ImportError as error:
        raise InputError(
            "datasets need xarray, which is not installed: pip install xarray; without "
            "it, jaxmech.ensemble.open_results reads a run folder"
        ) from error
    results = open_results(run)
    dataset: xarray.Dataset = xarray.open_zarr(
        results.path / RESULTS, consolidated=False, zarr_format=3
    )
    dataset = dataset.drop_vars(STATES, errors="ignore")
    for name, values in results.statistics.items():
        kind = results.config.get("statistics", {}).get(name, {}).get("statistic")
        saves = len(results.ts) if kind in _OVER_TIME else -1
        units = results.statistic_units(name)
        for key, value in values.items():
            array, full = np.asarray(value), f"{name}_{key}"
            dims = [f"{full}_{axis}" for axis in range(array.ndim)]
            if array.shape[:1] == (saves,) and key != "at":
                dims[0] = "time"
            variable = tuple(dims), array, {"units": units[key]} if key in units else {}
            full = f"statistic_{full}" if full in dataset else full
            dataset = dataset.assign({full: variable})
    summary = results.path / SUMMARY[0]
    content = summary.read_text(encoding="utf-8") if summary.is_file() else ""
    return dataset.assign_attrs(run=str(results.path), summary=content)


def mark_of(path: Path, block: int) -> Path:
    """The file that marks a block as finished."""
    return path / BLOCKS / f"{block:06d}"


def marked_blocks(path: Path) -> list[int]:
    """The numbers of the blocks that have a mark."""
    return sorted(int(f.name) for f in (path / BLOCKS).glob("[0-9]*") if f.name.isdigit())


def chunks_of(path: Path, block: int) -> list[Path]:
    """The chunks that a mark lists; none if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        mark = json.loads(mark_of(path, block).read_text(encoding="utf-8"))
        files = [str(name) for name in mark["files"]]  # formerly a table with their digests
        if mark["block"] == block and all(name.startswith(f"{RESULTS}/") for name in files):
            return [path / name for name in files]
    return []


def is_whole(path: Path, block: int) -> bool:
    """Whether a block has a mark, and all files that the mark lists."""
    files = chunks_of(path, block)
    return bool(files) and all(file.is_file() for file in files)


def array_of(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """The array of that name, or a KeyError."""
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise KeyError(name)
    return array


@dataclass(frozen=True)
class StudyFolder(RunFolder):
    """The run folder of a study, which is open for writing."""

    size: int  # trajectories of the study
    block: int  # trajectories of a block
    _opened: dict[str, zarr.Array[Any]] = field(default_factory=dict, init=False, repr=False)

    @property
    def count(self) -> int:
        """The number of blocks of the whole run."""
        return -(-self.size // self.block)

    def is_finished(self, block: int) -> bool:
        """Whether there is such a block, and it is finished."""
        return mark_of(self.path, block).exists()

    def missing(self) -> list[int]:
        """The blocks that are still to be computed."""
        finished = set(marked_blocks(self.path))
        return [block for block in range(self.count) if block not in finished]

    def trajectories(self, blocks: Iterable[int]) -> int:
        """The number of trajectories in some blocks."""
        return sum(min(self.block, self.size - block * self.block) for block in blocks)

    def write(self, block: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Store one block as whole files, which two processes may write at once; then mark it."""
        first = block * self.block
        last = min(first + self.block, self.size)
        # The status last: a trajectory whose status is known is there as a whole, even before the
        # block is marked.
        for name, values in sorted(arrays.items(), key=lambda entry: entry[0] == "status"):
            rows = slice(block, block + 1) if name == STATES else slice(first, last)
            self._array(name)[rows] = np.asarray(values)[: rows.stop - rows.start]
        # The data must be on the disk before the mark: a crash may reorder unflushed writes, and a
        # mark without data would be damage in place of a missing block. The folder is flushed too,
        # since the name of a new file is part of it.
        files: list[str] = []
        for name in arrays:
            chunk = self.path / RESULTS / name / "c" / str(block)
            for file in (x for x in [chunk, *chunk.glob("**/*")] if x.is_file()):
                flush(file)
                flush(file.parent)
                files.append(file.relative_to(self.path).as_posix())
        mark = mark_of(self.path, block)
        mark.parent.mkdir(exist_ok=True)
        write_whole(mark, json.dumps({"block": block, "files": sorted(files)}) + "\n")

    def states(self, block: int) -> np.ndarray:
        """The bytes of the states of a finished block."""
        return np.asarray(self._array(STATES)[block])

    def is_sound(self, block: int) -> bool:
        """Whether the chunks of a marked block are there and have their checksums."""
        if not is_whole(self.path, block):
            return False
        for file in chunks_of(self.path, block):
            name = file.relative_to(self.path).parts[1]
            array, size = self._array(name), 1 if name == STATES else self.block
            try:
                array[block * size : (block + 1) * size]
            except ValueError:  # of Zarr, by a checksum
                return False
        return True

    def _array(self, name: str) -> zarr.Array[Any]:
        # Once, since opening an array takes as long as writing a chunk.
        if name not in self._opened:
            group = zarr.open_group(self.path / RESULTS, mode="r+", use_consolidated=False)
            try:
                self._opened[name] = array_of(group, name)
            except KeyError as error:
                message = f"{self.path / RESULTS} has lost its array `{name}`"
                raise FolderError(f"{message}; choose another folder with --out") from error
        return self._opened[name]


@contextmanager
def open_run(
    path: Path, kernel: BlockProgram, facts: Mapping[str, Any], may_differ: tuple[str, ...],
    tell: Callable[[str], None],
) -> Iterator[StudyFolder]:  # fmt: skip
    """Create a run folder, or continue the one that is there, locked meanwhile.

    Args:
        path: the folder.
        kernel: the program of a block.
        facts: the environment.
        may_differ: facts in which the processes that compute blocks may differ.
        tell: function called with messages.
    """
    folder = StudyFolder(path, kernel.study.size, kernel.block)
    config, copies = kernel.plan.recorded
    config["block"] = kernel.block
    with folder.opened("ensemble"):
        if folder.is_complete or marked_blocks(path):
            folder.require_same_config(config, MAY_CHANGE)
            damaged = [block for block in marked_blocks(path) if not folder.is_sound(block)]
            if damaged:
                numbers = ", ".join(map(str, damaged))
                tell(f"{path} was damaged; to be computed again: block {numbers}")
            is_finished = not damaged and not folder.missing()
            decisive = _SHOWN if is_finished else [key for key in DECISIVE if key not in may_differ]
            folder.require_same_environment(facts, decisive)
            differences = folder.changes(facts, _VERSIONS if is_finished else may_differ)
            if differences and is_finished:
                tell(f"{path} is shown as stored, although {'; '.join(differences)}")
            elif differences:
                warning = "the new blocks may differ from the existing ones in the last bits"
                tell(f"{'; '.join(differences)}: {warning}")
            for block in damaged:
                # In this order: a process that is killed in between leaves chunks without a mark,
                # which are written again, and never a mark without chunks.
                for file in (mark_of(path, block), *chunks_of(path, block)):
                    file.unlink(missing_ok=True)
            for draft in (path / BLOCKS).glob(".*.draft"):  # of processes that were killed
                draft.unlink(missing_ok=True)
        else:
            for name in (RESULTS, BLOCKS):  # left behind by an interrupted creation
                shutil.rmtree(path / name, ignore_errors=True)
            (path / BLOCKS).mkdir()
            _create_arrays(kernel, path / RESULTS)
            folder.create(config, facts, copies)
        yield folder


def _create_arrays(kernel: BlockProgram, path: Path) -> None:
    """Create the Zarr group of a run, with times and what all share, and all other arrays empty."""
    member, study = kernel.member, kernel.member.study
    # The checksum is what every reader compares.
    compressors: list[Any] = [ZstdCodec(level=1), Crc32cCodec()]
    units = {name: x.unit for name, x in member.quantities.items() if x.unit}
    # xarray takes `coordinates` as such (CF conventions, section 5).
    attributes: dict[str, Any] = {"model": member.subject.name, "coordinates": "t", UNITS: units}
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes=attributes)

    def create(
        name: str, array: Any, dims: Dims, attributes: dict[str, Any], rows: int = 0
    ) -> zarr.Array[Any]:
        """An array of one value, or of so many, of which a chunk holds those of a block."""
        dtype, is_text = array.dtype, array.dtype.kind == "U"
        fill = np.nan if np.issubdtype(dtype, np.inexact) else dtype.kind != "b" and -1
        options: dict[str, Any] = {"fill_value": fill} if rows else {}
        chunk = tuple(max(1, n) for n in array.shape)
        return group.create_array(
            name,
            shape=(rows, *array.shape) if rows else array.shape,
            chunks=(kernel.block, *chunk) if rows else chunk,
            dtype="str" if is_text else dtype,
            **options,
            compressors=compressors,
            dimension_names=("trajectory", *dims) if rows else dims,
            attributes=attributes,
        )

    for name, values, about in member.shared_arrays():
        create(name, values, ("time",) if name == "t" else (name,), about)[...] = values
    arrays, _ = kernel.shapes
    for variable in kernel.plan.sampler.rows(0, 1):
        name, values = variable.stored_name, variable.values
        one = values[0] if variable.varies else values
        dims = tuple(f"{name}_{k}" for k in range(one.ndim))
        about = {"long_name": f"{_TITLES[variable.section]} {variable.name}"}
        if not variable.varies:
            create(name, values, dims, about)[...] = values
        elif study.store != "statistics":
            create(name, one, dims, about, study.size)
    for name, shape in arrays.items():
        own = (f"{name}_row", *(f"{name}_{k}" for k in range(shape.ndim)))
        dims = (*member.quantities[name].dims, *own)[: shape.ndim]
        create(name, shape, dims, member.attributes(name), study.size)
    if size := kernel.state_bytes:
        group.create_array(
            STATES,
            shape=(-(-study.size // kernel.block), size),
            chunks=(1, size),
            dtype="uint8",
            compressors=compressors,
            dimension_names=("block", "byte"),
            attributes={"long_name": "states of the statistics of each block"},
        )
    with warnings.catch_warnings():  # xarray reads consolidated metadata first
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        zarr.consolidate_metadata(path)
