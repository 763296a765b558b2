"""Fits in files: one `.npz` each, with the numbers as arrays and their structure as JSON.

Nothing in such a file is executed when it is read.
"""

import hashlib
import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config import npz, write_whole
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.result import Fit, Information, Noise, Optimization, Predicted
from jaxmech.system import Signal

_KIND = "jaxmech fit"
_VERSION = 4
_TEXT = "json"
_CODE = "sha256"
_NOT_READ = (  # errors of numpy and zipfile for files that are damaged or of another kind
    ValueError, KeyError, TypeError, AttributeError, EOFError, RuntimeError, OverflowError,
    MemoryError, SyntaxError, tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
_PLAIN = (bool, int, float, str, type(None))
_CLASSES: dict[str, Any] = {
    kind.__name__: kind for kind in (Fit, Information, Noise, Optimization, Predicted, Recording)
}
_NOT_SAVED = {"density", "horizon", "point"}  # functions


def save_fit(fit: Fit, path: Path | str) -> Path:
    """Save a fit: parameters, recordings, predictions, history, information, scores.

    Args:
        fit: the fit, whose parameters must be numbers and arrays in dictionaries, lists and tuples.
        path: the file, ending in `.npz`, which is returned.

    Raises:
        ValueError: if the parameters contain anything else, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "spring.npz"
        >>> save_fit(made_up(), path).name
        'spring.npz'
        >>> load_fit(path).params
        {'k': array(9.)}
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"Argument `path` must end in .npz, but is {path}.")
    arrays: dict[str, np.ndarray] = {}
    count = len(fit.notes) + (not fit.uncertainty.determined.all())  # other warnings
    facts = {
        "kind": _KIND,
        "version": _VERSION,
        "fit": _packed(fit, arrays, "fit"),
        "horizon": "".join(fit.warnings[count:]),
    }
    encoded = json.dumps(facts)
    everything: dict[str, Any] = {_TEXT: encoded, _CODE: _digest(encoded, arrays), **arrays}
    try:
        write_whole(path, npz(everything, compressed=True))
    except OSError as error:
        raise ValueError(
            f"Argument `path` {path} cannot be written: {error.strerror or error}."
        ) from error
    return path


def load_fit(path: Path | str) -> Fit:
    """Load a fit that was saved by `save_fit`.

    Its parameters are NumPy arrays. It prints the same, but `function` cannot be used, since it
    needs the functions of the system.

    Raises:
        ValueError: if the file cannot be read, or contains something else.

    Example:
        >>> load_fit("no_such_fit.npz")
        Traceback (most recent call last):
        ValueError: Argument `path` no_such_fit.npz cannot be read: No such file or directory.
    """
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        encoded, code = str(arrays.pop(_TEXT)), str(arrays.pop(_CODE))
        if code != _digest(encoded, arrays):
            raise ValueError(_CODE)
        facts = json.loads(encoded)
        if facts["kind"] != _KIND:
            raise KeyError(_KIND)
        if facts["version"] != _VERSION:
            raise ValueError(_VERSION)
    except OSError as error:
        raise ValueError(
            f"Argument `path` {path} cannot be read: {error.strerror or error}."
        ) from error
    except _NOT_READ as error:
        raise ValueError(
            f"Argument `path` {path} must be a file that save_fit of this version has "
            "written, but is damaged or another file; fit again."
        ) from error
    fit: Fit = _unpacked(facts["fit"], arrays)
    return replace(fit, horizon=lambda: facts["horizon"])


def _digest(encoded: str, arrays: Mapping[str, np.ndarray]) -> str:
    """The digest of the contents of a file, to detect damage."""
    code = hashlib.sha256(encoded.encode())
    for name, values in sorted(arrays.items()):
        code.update(f"{name} {values.dtype} {values.shape}".encode())
        code.update(values.tobytes())
    return code.hexdigest()


def _packed(value: Any, arrays: dict[str, np.ndarray], location: str) -> Any:
    """The structure of a value as JSON, its arrays moved to `arrays`."""
    if type(value) in _PLAIN:
        return value
    if type(value) in (tuple, list):
        items = [_packed(x, arrays, f"{location}[{k}]") for k, x in enumerate(value)]
        return {type(value).__name__: items}
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {
            "dict": [[key, _packed(x, arrays, f"{location}.{key}")] for key, x in value.items()]
        }
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.dtype.kind in "biufc":
            name = f"array_{len(arrays)}"
            arrays[name] = array
            return {"array": name}
    kind = type(value).__name__
    if type(value) is Signal:
        parts = {key: getattr(value, key) for key in ("ts", "values", "interpolation", "delay")}
        return {kind: {key: _packed(x, arrays, f"{location}.{key}") for key, x in parts.items()}}
    if kind in _CLASSES and type(value) is _CLASSES[kind]:
        names = (f.name for f in fields(value) if f.name not in _NOT_SAVED)
        return {
            kind: {key: _packed(getattr(value, key), arrays, f"{location}.{key}") for key in names}
        }
    raise ValueError(
        f"Argument `fit` cannot be saved: {location} is of type {kind}; parameters must be numbers "
        "and arrays in dictionaries, lists and tuples."
    )


def _unpacked(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, inner),) = tree.items()
    match kind:
        case "array":
            return arrays[inner]
        case "dict":
            return {key: _unpacked(x, arrays) for key, x in inner}
        case "list":
            return [_unpacked(x, arrays) for x in inner]
        case "tuple":
            return tuple(_unpacked(x, arrays) for x in inner)
    if kind == "Signal":
        return Signal(**{key: _unpacked(x, arrays) for key, x in inner.items()})
    names = {field.name for field in fields(_CLASSES[kind])}
    return _CLASSES[kind](**{key: _unpacked(x, arrays) for key, x in inner.items() if key in names})


def made_up() -> Fit:
    """A small fit with made-up numbers, for examples."""
    recording = Recording([0.0, 0.1, 0.2], [1.0, 0.96, 0.83], [1.0], [0.0], name="swing")
    predicted = Predicted((recording,), (np.array([[1.0], [0.955], [0.825]]),))
    return Fit(
        params={"k": np.array(9.0)}, params0={"k": 8.0}, names=("k",), values=np.array([9.0]),
        train=predicted, train_from_start=predicted, validation=Predicted((), ()),
        initial_states=((recording.q0, recording.v0),),
        optimization=Optimization(True, "", (0.1, 0.01), 2, {}),
        information=Information(np.eye(1), np.eye(1)[None], np.zeros((1, 1)), np.zeros((1, 1))),
        noise=Noise(0.1, np.array([0.1]), stated=False), count=3, unknowns=1,
    )  # fmt: skip
