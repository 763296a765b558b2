"""Load the system that a configuration names, and the controllers of its closed loop.

It is in the catalogue, in a Python file, or in an MJCF or URDF file.
"""

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmech.config.errors import Key, refuse, refuse_all, unknown
from jaxmech.config.toml import is_robot, python_name
from jaxmech.control import Controller, controlled
from jaxmech.interop import as_model, model_of
from jaxmech.interop.mujoco import KINDS, Robot, from_mjcf
from jaxmech.models import CATALOGUE, Model
from jaxmech.parts import Mechanism
from jaxmech.system import Params, Signal, System
from jaxmech.utils.text import not_one_of


@dataclass(frozen=True, eq=False)
class SubjectInputs:
    """Recorded and random inputs, which take the places of parameters."""

    signals: Mapping[str, Signal] = field(default_factory=dict)  # by name
    # of random ones, the samples of a drawn parameter of their name with these deviations
    deviations: Mapping[str, float] = field(default_factory=dict)
    # what was converted to SI units, by input
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def ends(self) -> int:
        """The number of samples at which a step ends, of all inputs of a trajectory."""
        held = (x for x in self.signals.values() if x.interpolation != "cubic")
        return sum(len(signal.values) for signal in held)

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters that inputs add, with what stands in the place of drawn numbers."""
        return {name: np.zeros(len(self.signals[name].values)) for name in self.deviations}

    def of(self, parameters: Mapping[str, Any]) -> dict[str, Signal]:
        """The inputs of one trajectory with these parameters."""
        signals = dict(self.signals)
        for name, sd in self.deviations.items():
            values = sd * jnp.asarray(parameters[name])
            signals[name] = eqx.tree_at(lambda x: x.values, signals[name], values)
        return signals


SUBJECTS = (System, Model, Mechanism, Robot)


@dataclass(frozen=True, eq=False)
class Subject:
    """The system of a study."""

    name: str  # name in the study
    system: System
    model: Model | None  # None where the file holds a bare `System`
    sha256: str | None = None  # digest of its file, None for a model of the catalogue
    beside: Mapping[str, Any] = field(default_factory=dict)  # other objects of the file, by name
    other: Any = None  # the object, if it is none of the usual ones but has a system
    state_beside: bool = False  # whether the state of the model is the q0 of the file
    # recorded ones, in the places of parameters
    inputs: SubjectInputs = field(default_factory=SubjectInputs)

    @property
    def params(self) -> Params:
        """The parameters; of a bare system those beside it, None without any."""
        owner = self.model if self.other is None else self.other
        return self.beside.get("params") if owner is None else owner.params


class Loaded(NamedTuple):
    """An object, with the digest of its file and the other objects there by name."""

    value: Any
    sha256: str | None = None
    beside: Mapping[str, Any] = {}


def load(
    name: str | Any, options: Mapping[str, Any], folder: Path = Path(), *,
    parameters: Iterable[str] = (), controllers: Iterable[str] = (),
    others: tuple[type, ...] = (),
) -> Subject:  # fmt: skip
    """Load the system of a catalogue name, or of a file relative to a folder, or of an object.

    That is "path/file.py:attribute", where the attribute is a `System`, a `Model`, a `Mechanism`, a
    `Robot`, or a function of the options that returns one; or an MJCF or URDF file, whose options
    are those of `from_mjcf`. The start of a mechanism or a system is `q0` and `v0` of its file, if
    it has them; the parameters of a system are `params`.

    Args:
        name: the name, or the object itself.
        options: options of the model.
        folder: to which paths are relative.
        parameters: names of parameters that are to be set. Of a robot's numbers, those of the
            same kinds become parameters, `mass.forearm` and so on.
        controllers: names of its controllers, "path/file.py:name". Parameters whose places their
            outputs take are left out.
        others: other classes of which the object may be, with a `system`.
    """
    if not isinstance(name, str | Path):
        if options:
            raise refuse("model_options", "must be left out where `model` is an object")
        name, loaded = python_name(name), Loaded(name)
    elif (name := str(name)).startswith("python:"):
        message = "it was passed as an object; put it into a file, and name it by that"
        raise refuse("model", f"must be a name, but of {name} nothing else is known: {message}")
    elif is_robot(name):
        loaded = _robot(folder / name, options, parameters)
    elif ":" in name or name.endswith(".py"):
        loaded = find(name, options, folder, (*SUBJECTS, *others))
    elif name in CATALOGUE:
        loaded = Loaded(_call(CATALOGUE[name], options))
    else:
        advice = not_one_of(name, CATALOGUE, "a model of the catalogue")
        files = '"path/file.py:attribute", or the path of an MJCF or URDF file'
        raise refuse("model", f"{advice}; or write {files}")
    subject = _subject(name, loaded, others)
    found: list[Any] = [find(x, {}, folder, (Controller,), "controllers") for x in controllers]
    if not found:
        return subject
    try:
        system = controlled(subject.system, [x.value for x in found])
    except (TypeError, ValueError) as error:
        raise refuse("controllers", f"cannot be used: {error}") from error
    outputs, params = {x.value.name for x in found}, subject.params
    if isinstance(params, dict):
        params = {key: x for key, x in params.items() if key not in outputs}
    model, other = (
        x if x is None else replace(x, system=system, params=params)
        for x in (subject.model, subject.other)
    )
    beside = {**subject.beside, "params": params}
    return replace(subject, system=system, model=model, other=other, beside=beside)


def _robot(path: Path, options: Mapping[str, Any], parameters: Iterable[str]) -> Loaded:
    """The model of an MJCF or URDF file."""
    if not path.is_file():
        raise refuse("model", f"must name an MJCF or URDF file, but there is none at {path}")
    requested = {parameter.partition(".")[0] for parameter in parameters} - {"ctrl"}
    # all of them, to suggest the nearest for a wrong name
    kinds = KINDS if requested - {*KINDS} else requested

    def robot(
        params: Iterable[str] = (), strict: bool = False, friction_speed: float = 0.01
    ) -> Model:
        names = (*sorted(kinds), *(kind for kind in params if kind not in kinds))
        return from_mjcf(path, params=names, strict=strict, friction_speed=friction_speed).model

    return Loaded(_call(robot, options), hashlib.sha256(path.read_bytes()).hexdigest())


def find(
    name: str, options: Mapping[str, Any], folder: Path, kinds: tuple[type, ...],
    key: str | Key = "model",
) -> Loaded:  # fmt: skip
    """Execute "path/file.py:attribute" and return the attribute, or the result of a function.

    Errors are those of the key that names it.
    """
    file, colon, attribute = name.rpartition(":")
    if not colon or not file.endswith(".py") or not attribute.isidentifier():
        raise refuse(key, f'must be of the form "path/file.py:attribute", but is "{name}"')
    path = folder / file
    if not path.is_file():
        raise refuse(key, f"must name a Python file, but there is none at {path}")
    code = path.read_bytes()

    # The file as a module, with its folder importable as for a script.
    module = ModuleType(f"jaxmech_study_{path.stem}")
    module.__file__ = str(path.absolute())
    sys.path.insert(0, str(path.parent))
    try:
        # Not by the import system, which takes stored bytecode for that of a file of the same
        # size and the same second, though the file may have changed.
        exec(compile(code, path, "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        steps = traceback.extract_tb(error.__traceback__)
        lines = [step.lineno for step in steps if step.filename == str(path)]
        if isinstance(error, SyntaxError):  # its text has the file and line
            lines = []
        where = f" ({path}, line {lines[-1]})" if lines else ""
        raise refuse(key, f"cannot be loaded: {described(error)}{where}") from error
    finally:
        sys.path.remove(str(path.parent))

    public = {name: x for name, x in vars(module).items() if not name.startswith("_")}
    if attribute not in public:
        candidates = {
            name
            for name, x in public.items()
            if isinstance(x, kinds) or (inspect.isfunction(x) and x.__module__ == module.__name__)
        }
        raise refuse(key, not_one_of(attribute, candidates, f"an attribute in {path}"))
    value = public[attribute]
    if isinstance(value, kinds):
        if options:
            raise refuse("model_options", f"must be left out: {attribute} is not a function")
    elif callable(value):
        value = _call(value, options, key)
    return Loaded(value, hashlib.sha256(code).hexdigest(), vars(module))


def _subject(name: str, loaded: Loaded, others: tuple[type, ...]) -> Subject:
    value, sha256, beside = loaded
    other, state_beside = value, isinstance(value, System | Mechanism)
    if isinstance(value, others):
        return Subject(name, other.system, None, sha256, beside, other)
    match value:
        case System() if "q0" in beside and "t0" not in beside:
            params, state = beside.get("params"), (beside["q0"], beside.get("v0"))
            if not isinstance(params, Mapping | None):
                return Subject(name, value, None, sha256, beside)
            value = model_of(value, params or {}, *state, name, "a system with a state beside it")
        case System():
            return Subject(name, value, None, sha256, beside)
        case Mechanism():
            value = as_model(value, beside.get("q0"), beside.get("v0"))
        case Robot():
            value = value.model
    if not isinstance(value, Model):
        kinds = "a System, a Model, a Mechanism or a Robot (or, of a fit, an Identifiable)"
        raise refuse("model", f"must name {kinds}, but {name} is of type {type(value).__name__}")
    state_beside = "q0" in beside and state_beside
    return Subject(name, value.system, value, sha256, beside, state_beside=state_beside)


def _call(
    factory: Callable[..., object], options: Mapping[str, Any], key: str | Key = "model"
) -> object:
    accepted = inspect.signature(factory).parameters
    refuse_all(unknown(("model_options",), options, accepted, f"an option of {factory.__name__}"))
    try:
        return factory(**options)
    except (Exception, SystemExit) as error:
        raise refuse(key, f"cannot be made: {described(error)}") from error


def described(error: BaseException) -> str:
    """An error of the user's code in words."""
    if isinstance(error, SystemExit):
        return "it ends the process, by sys.exit() or exit(); remove that call"
    return f"{type(error).__name__}: {error}"
