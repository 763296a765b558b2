"""The marks of finished blocks.

`blocks/000012` is written last, by an atomic rename, and lists the chunks of block 12: a chunk of
fill values alone has no file, so that without the list a lost one would be read as such. A chunk
that was altered is found by the checksum (crc32c) with which Zarr stores it.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from jaxmech.config import write_whole

STATISTICS_FILE = "statistics.npz"
SUMMARY = ("summary.json", "summary.txt", STATISTICS_FILE)
RESULTS, BLOCKS = "results.zarr", "blocks"


def mark_of(path: Path, block: int) -> Path:
    """The file that marks a block as finished."""
    return path / BLOCKS / f"{block:06d}"


def marked_blocks(path: Path) -> list[int]:
    """The numbers of the blocks that have a mark."""
    return sorted(int(f.name) for f in (path / BLOCKS).glob("[0-9]*") if f.name.isdigit())


def block_files(path: Path, block: int, arrays: Iterable[str]) -> Iterator[Path]:
    """The chunks of a block in some arrays."""
    for name in arrays:
        first = path / RESULTS / name / "c" / str(block)
        yield from (file for file in [first, *first.glob("**/*")] if file.is_file())


def write_mark(path: Path, block: int, arrays: Iterable[str]) -> None:
    """Mark a block as finished."""
    files = sorted(f.relative_to(path).as_posix() for f in block_files(path, block, arrays))
    (path / BLOCKS).mkdir(exist_ok=True)
    write_whole(mark_of(path, block), json.dumps({"block": block, "files": files}) + "\n")


def read_mark(path: Path, block: int) -> tuple[str, ...] | None:
    """The chunks of a block, by path in the run folder, or None if its mark cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        mark = json.loads(mark_of(path, block).read_text(encoding="utf-8"))
        files = tuple(map(str, mark["files"]))  # formerly a table with their digests
        if mark["block"] == block and all(name.startswith(f"{RESULTS}/") for name in files):
            return files
    return None


def has_files(path: Path, block: int) -> bool:
    """Whether a block has a mark, and all files that the mark lists."""
    files = read_mark(path, block)
    return files is not None and all((path / name).is_file() for name in files)


def remove_block(path: Path, block: int) -> None:
    """Remove a block."""
    # In this order: a process that is killed in between leaves chunks without a mark, which are
    # written again, and never a mark without chunks.
    files = read_mark(path, block)
    mark_of(path, block).unlink(missing_ok=True)
    for name in files or ():
        (path / name).unlink(missing_ok=True)
