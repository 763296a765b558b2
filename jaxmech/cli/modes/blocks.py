"""The computed blocks of a study of eigenvalues, which a run keeps until it has all of them."""

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config.convert import plain
from jaxmech.config.environment import DECISIVE, environment
from jaxmech.config.load import Subject
from jaxmech.config.run_folder import npz, write_whole
from jaxmech.ensemble.provenance import function_digests
from jaxmech.ensemble.trajectory import Tree
from jaxmech.utils.digests import sha256

Arrays = dict[str, np.ndarray]
_ORIGIN = "origin"  # of the arrays in a file, beside them


@dataclass(frozen=True)
class Blocks:
    """Files of a folder, each with the arrays of a block and the digest of what they come from."""

    folder: Path | None  # where they are; None keeps nothing
    origin: str = ""  # digest of all that decides about results, but for the draws of a block

    def read(self, block: int, given: tuple[Tree, Tree]) -> Arrays | None:
        """The arrays of a block that was computed from the same, or None."""
        if self.folder is None or not (file := self._file(self.folder, block)).is_file():
            return None
        try:
            with np.load(io.BytesIO(file.read_bytes())) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, zipfile.BadZipFile):  # damaged: computed again
            return None
        same = str(arrays.pop(_ORIGIN, "")) == self._origin_of(given)
        return arrays if same else None

    def write(self, block: int, given: tuple[Tree, Tree], arrays: Arrays) -> None:
        """Keep the arrays of a block."""
        if self.folder is None:
            return
        self.folder.mkdir(exist_ok=True)
        origin = np.array(self._origin_of(given))
        write_whole(self._file(self.folder, block), npz({**arrays, _ORIGIN: origin}))

    def _file(self, folder: Path, block: int) -> Path:
        return folder / f"{block:06d}.npz"

    def _origin_of(self, given: tuple[Tree, Tree]) -> str:
        leaves, structure = jax.tree.flatten(given)
        texts = (f"{x.dtype} {x.shape} {x.tobytes().hex()}" for x in map(np.asarray, leaves))
        return sha256(self.origin, str(structure), *texts)


def blocks_in(
    folder: Path | None, study: Any, subject: Subject, first: tuple[Tree, Tree]
) -> Blocks:
    """The blocks of a study in a folder, which count if functions and environment are the same."""
    if folder is None:
        return Blocks(None)
    functions, _ = function_digests(subject, *first, float)
    facts = environment(subject)
    known = {key: facts[key] for key in DECISIVE if key in facts}
    decides = {"study": plain(study), "functions": functions, "environment": known}
    return Blocks(folder, sha256(json.dumps(decides, sort_keys=True)))
