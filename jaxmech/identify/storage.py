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
from jaxmech.identify.result import Fit, Information, Noise, Optimization, Predicted
from jaxmech.system import Signal

_VERSION = 5
_CLASSES: dict[str, Any] = {
    kind.__name__: kind for kind in (Fit, Information, Noise, Optimization, Predicted, Recording)
}
_FUNCTIONS = {"density", "horizon", "point"}  # of a fit, which are not saved


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
    tree = _packed(replace(fit, notes=(*fit.notes, *fit.of_horizon)), arrays, "fit")
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
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if damaged := file.zip.testzip():  # NumPy alone does not read to the checksums
                raise ValueError(f"{damaged} was changed")
            arrays = {name: file[name] for name in file.files}
        facts = json.loads(str(arrays["json"]))
        if facts["jaxmech fit"] != _VERSION:
            raise ValueError("it is of another version")
        fit: Fit = _unpacked(facts["fit"], arrays)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(
            f"Argument `path` {path} must be a file that save_fit of this version has "
            f"written, but is damaged or another file ({error}); fit again."
        ) from error
    return fit


def _packed(value: Any, arrays: dict[str, np.ndarray], location: str) -> Any:
    """The structure of a value as JSON, its arrays moved to `arrays`."""
    kind = type(value).__name__
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (tuple, list):
        return {kind: [_packed(x, arrays, f"{location}[{k}]") for k, x in enumerate(value)]}
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {kind: [[key, _packed(x, arrays, f"{location}.{key}")] for key, x in value.items()]}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.dtype.kind in "biufc":
            arrays[name := f"array_{len(arrays)}"] = array
            return {"array": name}
    names: tuple[str, ...] = ()
    if type(value) is Signal:
        names = ("ts", "values", "interpolation", "delay")
    elif type(value) is _CLASSES.get(kind):
        names = tuple(field.name for field in fields(value) if field.name not in _FUNCTIONS)
    if names:
        parts = {key: getattr(value, key) for key in names}
        return {kind: {key: _packed(x, arrays, f"{location}.{key}") for key, x in parts.items()}}
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
    made = Signal if kind == "Signal" else _CLASSES[kind]
    return made(**{key: _unpacked(x, arrays) for key, x in inner.items()})


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
