"""`SealedStore`: the arrays of a run folder, each file compared with its digest when it is read."""

import hashlib
from pathlib import Path
from typing import Any

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from jaxmech.config.run_folder import FolderError
from jaxmech.ensemble import checksums
from jaxmech.ensemble.checksums import RESULTS, BlockMark, Damage


class SealedStore(LocalStore):
    """The read-only store of a run's arrays, which raises a FolderError for a damaged file.

    Whoever reads through it (numpy, xarray, dask) sees undamaged bytes, so that chunks need no
    checksum of their own.
    """

    def __init__(self, root: Path | str, *, read_only: bool = True) -> None:
        super().__init__(root, read_only=read_only)
        self._run = Path(root).parent
        self._seal = checksums.read_seal(self._run)
        self._marks: dict[int, BlockMark] = {}

    def with_read_only(self, read_only: bool = False) -> "SealedStore":
        """This store, which is never written to."""
        if not read_only:
            raise ValueError("A SealedStore is read-only.")
        return self

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """The undamaged content of a file; None where there is none, or its block is unfinished."""
        # The bytes that are compared are those that are decoded: a file that another process
        # replaces between two reads cannot slip through.
        buffer = await super().get(key, prototype, byte_range)
        return self._sound(key, buffer, byte_range)

    def get_sync(self, key: str, **options: Any) -> Buffer | None:
        """As `get`, for releases of zarr that read in their own thread."""
        buffer = super().get_sync(key, **options)
        return self._sound(key, buffer, options.get("byte_range"))

    def _sound(self, key: str, buffer: Buffer | None, byte_range: Any) -> Buffer | None:
        """The content of a file if it is undamaged."""
        if byte_range is not None:
            # A part of a file has no digest. Only arrays with shards are read in parts.
            raise NotImplementedError("Files of a SealedStore are read whole.")
        file = f"{RESULTS}/{key}"
        block = checksums.block_of(key)
        sha = self._seal.get(file)
        if sha is None and block is not None:
            mark = self._mark(block)
            if mark is None:
                return None  # an interruption may have left anything here
            sha = mark.files.get(file)
        if buffer is None:
            if sha is not None:
                raise self._error(file, "is missing", block)
        elif sha is None:
            raise self._error(file, "does not belong there", block)
        elif hashlib.sha256(buffer.to_bytes()).hexdigest() != sha:
            raise self._error(file, "was changed", block)
        return buffer

    def _mark(self, block: int) -> BlockMark | None:
        # A missing mark is looked for again at the next read: the block may be finished meanwhile.
        if block not in self._marks:
            if not checksums.mark_of(self._run, block).is_file():
                return None
            mark = checksums.read_mark(self._run, block)
            if isinstance(mark, Damage):
                raise checksums.damaged_run(self._run, [mark])
            self._marks[block] = mark
        return self._marks[block]

    def _error(self, file: str, description: str, block: int | None) -> FolderError:
        return checksums.damaged_run(self._run, [Damage(file, description, block)])
