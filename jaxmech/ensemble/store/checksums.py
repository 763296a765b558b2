"""Digests of the files of a run folder, by which damage is detected.

`seal.json` lists the files that are written when a run begins and when it ends, with their SHA-256
digests; the mark of a block, in `blocks/`, lists its chunks in the same way. `Results` compares a
chunk before it is read, and `verify` all files at once. Chunks have a checksum of their own, too,
for other programs, which shows neither a missing chunk nor one in the place of another.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmech.config import CREATION, FolderError, locked, processor, write_whole

FORMAT = 2  # of run folders; format 1 had no digests
SEAL = "seal.json"
STATISTICS_FILE = "statistics.npz"
SUMMARY = ("summary.json", "summary.txt", STATISTICS_FILE)
RESULTS, BLOCKS, PICTURES = "results.zarr", "blocks", "pictures"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)  # damaged JSON
_SHOWN = 4  # damaged files that a message names


@dataclass(frozen=True)
class Damage:
    """A file that differs from its original content, as `verify` reports it."""

    file: str  # path in the run folder
    what: str  # description of the damage, such as "is missing"
    block: int | None = None  # the block that the file belongs to, if any

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


def damage_text(damage: Iterable[Damage]) -> str:
    """The damaged files in one line, the first few by name."""
    texts = [str(damaged) for damaged in damage]
    remainder = [f"{len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return ", ".join([*texts[:_SHOWN], *remainder])


def file_digests(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by their path relative to a folder."""
    return {file.relative_to(root).as_posix(): _sha256(file) for file in sorted(files)}


def write_seal(path: Path, files: Mapping[str, str]) -> None:
    """Write digests to `seal.json`."""
    write_whole(path / SEAL, json.dumps({"format": FORMAT, "files": files}, indent=2) + "\n")


def read_seal(path: Path, *, pictures: bool = False) -> dict[str, str]:
    """The digests in `seal.json`, or a FolderError if there are none of this format.

    Those of pictures, which can be drawn again from undamaged results, only if asked for.
    """
    again = "recompute it in another folder, or remove this one"
    if not (path / SEAL).is_file():
        raise FolderError(
            f"{path} holds a run without {SEAL}: it was written by an older jaxmech, or the file "
            f"was deleted, and damage would go unnoticed; {again}"
        )
    try:
        seal = json.loads((path / SEAL).read_text(encoding="utf-8"))
        version, files = seal["format"], {str(k): str(x) for k, x in seal["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{path / SEAL} is damaged; {again}") from error
    if version != FORMAT:
        message = f"has format {version}, but this jaxmech reads format {FORMAT}"
        raise FolderError(f"{path} {message}; {again}")
    return {name: x for name, x in files.items() if pictures or not name.startswith(PICTURES)}


def add_to_seal(path: Path, files: Iterable[Path]) -> None:
    """Add the digests of finished files to `seal.json`, or replace them."""
    if not (added := file_digests(path, files)):
        return
    with locked(path, CREATION, wait=True):  # pictures may be drawn while a run ends
        seal = read_seal(path, pictures=True)
        if not added.items() <= seal.items():
            write_seal(path, {**seal, **added})


def damaged(root: Path, files: Mapping[str, str], block: int | None = None) -> Iterator[Damage]:
    """The files of a folder whose digests differ."""
    for name, sha in files.items():
        file = root / name
        if not file.is_file():
            yield Damage(name, "is missing", block)
        elif _sha256(file) != sha:
            yield Damage(name, "was changed", block)


def damaged_run(path: Path, damage: Iterable[Damage]) -> FolderError:
    """The error of whoever reads a damaged run."""
    return FolderError(
        f"{path} is damaged: {damage_text(damage)}; `jaxmech ensemble` with its configuration and "
        f"--out {path} recomputes what is lost"
    )


@dataclass(frozen=True)
class BlockMark:
    """The content of the file that marks a block as finished."""

    arrays: tuple[str, ...]  # names of the arrays that have chunks of the block
    files: Mapping[str, str]  # SHA-256 of its chunks, by path in the run folder
    processor: str  # kind of the processor that computed it; empty if unknown


def write_mark(path: Path, block: int, arrays: Iterable[str]) -> None:
    """Mark a block as finished, with the digests of its chunks, and the processor's kind."""
    names = sorted(arrays)
    files = file_digests(path, block_files(path, block, names))
    (path / BLOCKS).mkdir(exist_ok=True)
    # The processor is noted in each block, since a run may be continued on another machine.
    mark = {"block": block, "arrays": names, "files": files, "processor": processor()}
    write_whole(mark_of(path, block), json.dumps(mark) + "\n")


def mark_of(path: Path, block: int) -> Path:
    """The file that marks a block as finished."""
    return path / BLOCKS / f"{block:06d}"


def read_mark(path: Path, block: int) -> BlockMark | Damage:
    """The mark of a block, or the damage to it."""
    file = mark_of(path, block)
    name = f"{BLOCKS}/{file.name}"
    try:
        mark: Any = json.loads(file.read_text(encoding="utf-8"))
        number = mark["block"]
        arrays = tuple(str(array) for array in mark["arrays"])
        files = {str(key): str(sha) for key, sha in mark["files"].items()}
        processor = str(mark.get("processor") or "")
    except _UNREADABLE:
        return Damage(name, "is damaged", block)
    if number != block:
        return Damage(name, f"is the mark of block {number}", block)
    return BlockMark(arrays, files, processor)


def marked_blocks(path: Path) -> list[int]:
    """The numbers of the blocks that have a mark."""
    return sorted(int(f.name) for f in (path / BLOCKS).glob("[0-9]*") if f.name.isdigit())


def block_files(path: Path, block: int, arrays: Iterable[str]) -> Iterator[Path]:
    """The chunks of a block in some arrays; a chunk that holds only fill values has no file."""
    for name in arrays:
        chunks = path / RESULTS / name / "c"
        first = chunks / str(block)
        for file in [first, *first.glob("**/*")]:
            if file.is_file() and all(part.isdigit() for part in file.relative_to(chunks).parts):
                yield file


def remove_block(path: Path, block: int) -> None:
    """Remove the mark of a block, and then its chunks as far as the mark can be read."""
    # In this order: a process that is killed in between leaves chunks without a mark, which are
    # written again, and never a mark without chunks.
    mark, names = mark_of(path, block), list[str]()
    with suppress(*_UNREADABLE):
        names = [str(name) for name in json.loads(mark.read_text(encoding="utf-8"))["arrays"]]
    mark.unlink(missing_ok=True)
    for file in list(block_files(path, block, names)):
        file.unlink(missing_ok=True)


def block_damage(path: Path, block: int, array: str | None = None) -> list[Damage]:
    """The damage of a marked block, in one array or in all."""
    mark = read_mark(path, block)
    if isinstance(mark, Damage):
        return [mark]
    names, files = list(mark.arrays), dict(mark.files)
    if array is not None:
        names = [name for name in names if name == array]
        files = {k: sha for k, sha in files.items() if k.startswith(f"{RESULTS}/{array}/")}
    chunks = (file.relative_to(path).as_posix() for file in block_files(path, block, names))
    strays = [Damage(name, "does not belong there", block) for name in chunks if name not in files]
    return [*damaged(path, files, block), *strays]


def missing_marks(path: Path, seal: Mapping[str, str], count: int) -> Iterator[Damage]:
    """The marks that were deleted from a finished run of so many blocks, or as its summary says."""
    if SUMMARY[0] in seal:
        with suppress(*_UNREADABLE):  # reported elsewhere, or from an older run
            summary = json.loads((path / SUMMARY[0]).read_text(encoding="utf-8"))
            count = min(count, int(summary["blocks"]))
        for block in sorted(set(range(count)).difference(marked_blocks(path))):
            yield Damage(f"{BLOCKS}/{mark_of(path, block).name}", "is missing", block)


def missing_chunks(path: Path, blocks: Iterable[int]) -> Iterator[Damage]:
    """The chunks of marked blocks that do not exist, and damaged marks."""
    for block in blocks:
        mark = read_mark(path, block)
        if isinstance(mark, Damage):
            yield mark
        else:
            lost = (name for name in mark.files if not (path / name).is_file())
            yield from (Damage(name, "is missing", block) for name in lost)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
