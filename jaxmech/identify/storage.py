"""Fits in files: an `.npz` with the numbers as arrays, and their structure as JSON.

Nothing in such a file is executed when it is read; the checksums of zip find damage.
"""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config import npz, write_whole
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.inference.information import Information
from jaxmech.identify.result import Fit, Noise, Optimization, Predicted
from jaxmech.system import Signal

_VERSION = 6
_FIELDS: dict[Any, tuple[str, ...]] = {Signal: ("ts", "values", "interpolation", "delay")} | {
    kind: tuple(x.name for x in fields(kind) if x.name != "end")
    for kind in (Fit, Information, Noise, Optimization, Predicted, Recording)
}
_CLASSES: dict[str, Any] = {kind.__name__: kind for kind in (tuple, list, dict, *_FIELDS)}


def save_fit(fit: Fit, path: Path | str) -> Path:
    """Save a fit: parameters, recordings, predictions, history, information, warnings.

    Args:
        fit: the fit, whose parameters must be numbers and arrays in dictionaries, lists and tuples.
        path: the file, ending in `.npz`, which is returned.

    Raises:
        ValueError: if the parameters contain anything else, or the file does not end in `.npz`.
        OSError: if the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"Argument `path` must end in .npz, but is {path}.")
    arrays: dict[str, np.ndarray] = {}

    def packed(value: Any, location: str) -> Any:
        """A value as JSON: the name of a class with its parts, arrays by their names."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in (tuple, list):
            parts: Any = [packed(x, f"{location}[{k}]") for k, x in enumerate(value)]
        elif kind is dict and all(type(key) in (str, int) for key in value):
            parts = [[key, packed(x, f"{location}.{key}")] for key, x in value.items()]
        elif kind in _FIELDS:
            names = _FIELDS[kind]
            parts = {key: packed(getattr(value, key), f"{location}.{key}") for key in names}
        elif isinstance(value, np.ndarray | np.generic | jax.Array) and (
            np.asarray(value).dtype.kind in "biufc"
        ):
            arrays[name := f"array_{len(arrays)}"] = np.asarray(value)
            return {"array": name}
        else:
            raise ValueError(
                f"Argument `fit` cannot be saved: {location} is of type {kind.__name__}; "
                "parameters must be numbers and arrays in dictionaries, lists and tuples."
            )
        return {kind.__name__: parts}

    tree = packed(replace(fit, notes=(*fit.notes, *fit.of_horizon)), "fit")
    text = json.dumps({"jaxmech fit": _VERSION, "fit": tree})
    write_whole(path, npz({"json": text, **arrays}, compressed=True))
    return path


def load_fit(path: Path | str) -> Fit:
    """Load a fit that was saved by `save_fit`.

    Its parameters are NumPy arrays. It prints the same, but `function` and `log_density` need the
    functions of the system, and cannot be used.

    Raises:
        ValueError: if the file is damaged or contains something else.
        OSError: if the file cannot be read.
    """

    def unpacked(tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        ((kind, parts),) = tree.items()
        if kind == "array":
            return arrays[parts]
        if isinstance(parts, dict):
            return _CLASSES[kind](**{key: unpacked(x) for key, x in parts.items()})
        return _CLASSES[kind](
            [(key, unpacked(x)) for key, x in parts] if kind == "dict" else map(unpacked, parts)
        )

    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if damaged := file.zip.testzip():  # NumPy alone does not read to the checksums
                raise ValueError(f"{damaged} was changed")
            arrays = {name: file[name] for name in file.files}
        facts = json.loads(str(arrays["json"]))
        if facts["jaxmech fit"] != _VERSION:
            raise ValueError("it is of another version")
        fit: Fit = unpacked(facts["fit"])
    except OSError:
        raise
    except Exception as error:
        raise ValueError(
            f"Argument `path` {path} must be a file that save_fit of this version has "
            f"written, but is damaged or another file ({error}); fit again."
        ) from error
    return fit
