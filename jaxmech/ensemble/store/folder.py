"""The run folder of a study: created once, filled block by block, continued after any interruption.

    config.toml        the resolved configuration
    environment.json   versions, device, digests of functions and draws, time
    model.py           copy of the user's model file, if there is one (model.xml, model.urdf)
    results.zarr/      the arrays, one file per array and block
    blocks/            a mark for each finished block, with the names of its files

A block counts as finished when its mark in `blocks/` exists, which is put there (by an atomic
rename) only after the data of the block are on the disk. Whatever a killed process left behind is
computed again, and so is a block of which a file is missing or altered. `config.toml` is the last
file of the creation, so a folder with it is complete.
"""

import inspect
import json
import shutil
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from jaxmech.config import (
    DECISIVE,
    INPUT,
    VERSIONS,
    FolderError,
    Subject,
    changes,
    digest,
    environment,
    environment_json,
    flush,
    opened,
    require_same_config,
    require_same_environment,
    stored_environment,
    system_digest,
    write_whole,
)
from jaxmech.ensemble.blocks.estimate import bytes_of
from jaxmech.ensemble.blocks.kernel import BlockProgram
from jaxmech.ensemble.draws.sampler import Sampler, stored_name
from jaxmech.ensemble.members.quantities import Dims
from jaxmech.ensemble.members.trajectory import first_of, inputs_of, params_of
from jaxmech.ensemble.statistics.protocol import Custom, Reduction
from jaxmech.ensemble.store.results import (
    BLOCKS,
    RESULTS,
    STATES,
    UNITS,
    array_of,
    chunks_of,
    is_whole,
    mark_of,
    marked_blocks,
)
from jaxmech.ensemble.study import Study
from jaxmech.integrate import FixedSteps
from jaxmech.utils.digests import arrays_digest, sha256

_FIRST = 1024  # members whose draws are digested, whatever the size of a block


def origin(study: Study, subject: Subject, sampler: Sampler) -> dict[str, Any]:
    """The content of `environment.json` but the time: facts, digests of functions and draws."""
    dtype = np.dtype(study.precision)
    inputs = first_of(*inputs_of(sampler.rows(0, 1), dtype))
    params = params_of(subject, inputs)
    functions = {"system": system_digest(subject.system, params, dtype)}
    if subject.model:
        functions["start"] = digest(subject.model.state, inputs["start"], params)
    functions |= _observed(study, subject, params, dtype)
    # Some at the beginning and the last member: another seed, size or rule changes one of them, and
    # all draws of a large study would take long.
    last = sampler.size - 1
    parts = sampler.rows(0, min(_FIRST, sampler.size)), sampler.rows(last, sampler.size)
    draws = {
        stored_name(same[0]): arrays_digest(*(variable.values for variable in same))
        for same in zip(*parts, strict=True)
    }
    notes = {name: list(words) for name, words in subject.inputs.notes.items() if words}
    facts = {
        **environment(subject),
        "functions": functions,
        "draws": {**draws, **subject.inputs.digests},
    }
    return facts | ({"inputs": notes} if notes else {})


def _observed(study: Study, subject: Subject, params: Any, dtype: Any) -> dict[str, str]:
    system, t = subject.system, np.zeros(2, dtype)
    kept = 0 if system.sampling is None else len(system.sampling.names)
    q, v, memory = (np.zeros((2, size), dtype) for size in (system.n, system.n_velocities, kept))
    digests = {}
    for name, quantity in study.observe.items():
        if quantity.needs_reactions:
            digests[f"observe {name}"] = _of_file(quantity.function)
        else:
            digests[f"observe {name}"] = digest(
                lambda q, v, m, t, p, quantity=quantity: quantity.along(
                    system, (q, v, m, t), p, None
                ),
                q, v, memory, t, params,
            )  # fmt: skip
    for name, event in study.events.items():
        for suffix, fn in (("", event.function), (" jump", event.jump)):
            if callable(fn):
                digests[f"event {name}{suffix}"] = _of_file(fn)
    for name, statistic in study.statistics.items():
        if isinstance(statistic, Custom) and isinstance(statistic.functions, Reduction):
            files = map(_of_file, filter(None, statistic.functions))
            digests[f"statistic {name}"] = sha256(*files)
    return digests


def _of_file(fn: Any) -> str:
    """The digest of the file of a function that cannot be traced yet, or of its code alone."""
    try:
        return sha256(Path(inspect.getfile(fn)).read_text(encoding="utf-8"))
    except (TypeError, OSError):
        code = getattr(fn, "__code__", None)
        return sha256(repr(code and (code.co_code, code.co_consts, code.co_names)))


MAY_CHANGE = {"failure"}  # of the keys of a study


@dataclass(frozen=True)
class RunFolder:
    """A run folder that is open for writing."""

    path: Path  # the folder
    size: int  # trajectories of the study
    block: int  # trajectories of a block
    _opened: dict[str, zarr.Array[Any]] = field(default_factory=dict, init=False, repr=False)

    @property
    def count(self) -> int:
        """The number of blocks of the whole run."""
        return -(-self.size // self.block)

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
        files = chunks_of(self.path, block)
        if files is None or not is_whole(self.path, block):
            return False
        names = {file.relative_to(self.path).parts[1] for file in files}
        arrays = {name: self._array(name) for name in names}
        try:
            for name, array in arrays.items():
                size = 1 if name == STATES else self.block
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
    path: Path, kernel: BlockProgram, config: dict[str, Any], facts: Mapping[str, Any],
    files: Mapping[Path, str], may_differ: tuple[str, ...], tell: Callable[[str], None],
) -> Iterator[RunFolder]:  # fmt: skip
    """Create a run folder, or continue the one that is there, locked meanwhile.

    Args:
        path: the folder.
        kernel: the program of a block.
        config: the stored configuration, which names the copies of files.
        facts: the environment.
        files: the files that are copied, with the names of the copies.
        may_differ: facts in which the processes that compute blocks may differ.
        tell: function called with messages.
    """
    folder = RunFolder(path, kernel.member.study.size, kernel.block)
    with opened(path, "ensemble"):
        if (path / "config.toml").is_file() or marked_blocks(path):
            require_same_config(path, config, MAY_CHANGE)
            damaged = [block for block in marked_blocks(path) if not folder.is_sound(block)]
            if damaged:
                numbers = ", ".join(map(str, damaged))
                tell(f"{path} was damaged; to be computed again: block {numbers}")
            is_finished = not damaged and not folder.missing()
            decisive = INPUT if is_finished else [key for key in DECISIVE if key not in may_differ]
            require_same_environment(path, facts, decisive)
            differences = changes(
                stored_environment(path), facts, VERSIONS if is_finished else may_differ
            )
            if differences and is_finished:
                tell(f"{path} is shown as stored, although {'; '.join(differences)}")
            elif differences:
                warning = "the new blocks may differ from the existing ones in the last bits"
                tell(f"{'; '.join(differences)}: {warning}")
            for block in damaged:
                # In this order: a process that is killed in between leaves chunks without a mark,
                # which are written again, and never a mark without chunks.
                chunks = chunks_of(path, block) or []
                for file in (mark_of(path, block), *chunks):
                    file.unlink(missing_ok=True)
            for draft in (path / BLOCKS).glob(".*.draft"):  # of processes that were killed
                draft.unlink(missing_ok=True)
        else:
            for name in (RESULTS, BLOCKS):  # left behind by an interrupted creation
                shutil.rmtree(path / name, ignore_errors=True)
            (path / BLOCKS).mkdir()
            create_arrays(kernel, path / RESULTS)
            for source, name in files.items():
                shutil.copyfile(source, path / name)
            (path / "environment.json").write_text(environment_json(facts), encoding="utf-8")
            for file in path.glob("**/*"):
                flush(file)
            # The last file: without it, whatever is here is created again.
            write_whole(path / "config.toml", tomli_w.dumps(config))
        yield folder


def with_stored_sizes(study: Study, path: Path) -> Study:
    """The study with the block and steps of an existing run folder, where it names none."""
    try:
        stored: Any = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        chosen = stored.get("steps", {})
        sizes, times = (stored.get("block"), chosen.get("per_save")), chosen.get("times", ())
    except (OSError, ValueError, AttributeError):  # `open_run` reports it
        return study
    block, per_save = (x if isinstance(x, int) and x >= 1 else None for x in sizes)
    steps = study.steps
    if isinstance(steps, FixedSteps) and steps.per_save is None and per_save:
        steps = replace(steps, per_save=per_save, times=steps.times or times)
        study = replace(study, steps=steps)
    return replace(study, block=block) if study.block is None and block else study


_TITLES = {
    "start": "start variable",
    "coordinates": "initial coordinate",
    "velocities": "initial velocity of",
    "parameters": "parameter",
}


def create_arrays(kernel: BlockProgram, path: Path) -> None:
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
    for variable in kernel.sampler.rows(0, 1):
        name, values = stored_name(variable), variable.values
        one = values[0] if variable.varies else values
        dims = tuple(f"{name}_{k}" for k in range(one.ndim))
        about = {"long_name": f"{_TITLES[variable.section]} {variable.name}"}
        if not variable.varies:
            create(name, values, dims, about)[...] = values
        elif study.store != "statistics":
            create(name, one, dims, about, study.size)
    for name, shape in arrays.items():
        dims = member.dimensions(name, len(shape.shape))
        create(name, shape, dims, member.attributes(name), study.size)
    if size := bytes_of(kernel.states):
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
