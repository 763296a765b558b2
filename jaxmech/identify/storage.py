"""Objects in files: an `.npz` with their arrays, and the structure around these as JSON.

Nothing in such a file is executed when it is read; the checksums of zip find damage.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config import npz, write_whole

Classes = Mapping[Any, tuple[str, ...]]  # with the names of their arguments


def save(value: Any, path: Path | str, classes: Classes) -> Path:
    """Save an object made of these classes, arrays, numbers, texts, lists, tuples and dicts."""
    arrays: dict[str, np.ndarray] = {}

    def packed(x: Any) -> Any:
        kind = type(x)
        if x is None or kind in (bool, int, float, str):
            return x
        if kind in (tuple, list):
            parts: Any = list(map(packed, x))
        elif kind is dict and all(type(key) in (str, int) for key in x):
            parts = [[key, packed(y)] for key, y in x.items()]
        elif kind in classes:
            parts = {key: packed(getattr(x, key)) for key in classes[kind]}
        elif isinstance(x, np.ndarray | np.generic | jax.Array) and np.dtype(x.dtype).kind != "O":
            arrays[name := f"array_{len(arrays)}"] = np.asarray(x)
            return {"array": name}
        else:
            raise ValueError(
                f"A fit with a parameter of type {kind.__name__} cannot be saved; parameters must "
                "be numbers and arrays in dictionaries, lists and tuples."
            )
        return {kind.__name__: parts}

    text, path = json.dumps(packed(value)), Path(path)
    write_whole(path, npz({"json": text, **arrays}, compressed=True))
    return path


def load(path: Path | str, classes: Classes) -> Any:
    """The object that was saved in a file."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (tuple, list, dict, *classes)}

    def unpacked(tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        ((kind, parts),) = tree.items()
        if kind == "array":
            return arrays[parts]
        if isinstance(parts, dict):
            return kinds[kind](**{key: unpacked(x) for key, x in parts.items()})
        if kind == "dict":
            return {key: unpacked(x) for key, x in parts}
        return kinds[kind](map(unpacked, parts))

    try:
        with Path(path).open("rb") as raw, np.load(raw) as file:
            if damaged := file.zip.testzip():  # NumPy alone does not read to the checksums
                raise ValueError(f"{damaged} was changed")
            arrays = dict(file)
        return unpacked(json.loads(str(arrays["json"])))
    except OSError:
        raise
    except Exception as error:
        raise ValueError(
            f"Argument `path` {path} must be a file that Fit.save of this version has written, "
            f"but is damaged or another file ({error}); fit again."
        ) from error
