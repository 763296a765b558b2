"""Load the system that a configuration names, and the controllers of its closed loop.

It is in the catalogue, in a Python file, or in an MJCF or URDF file.
"""

import hashlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmech.config.errors import Key, refuse, refuse_all, unknown
from jaxmech.config.run_folder import require_no_run_code
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


@dataclass(frozen=True, eq=False)
class Subject:
    """The system of a study."""

    name: str  # name in the study
    system: System
    model: Model | None  # None where the file holds a bare `System`
    params: Params = None  # of a bare system those beside it
    sha256: str | None = None  # digest of its file, None for a model of the catalogue
    beside: Mapping[str, Any] = field(default_factory=dict)  # other objects of the file, by name
    other: Any = None  # the object, if it is none of the usual ones but has a system
    state_beside: bool = False  # whether the state of the model is the q0 of the file
    # recorded ones, in the places of parameters
    inputs: SubjectInputs = field(default_factory=SubjectInputs)


class Loaded(NamedTuple):
    """An object, or a function that makes it, with the digest and the other objects of its file."""

    value: Any
    sha256: str | None = None
    beside: Mapping[str, Any] = {}  # by name


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
    kinds = (System, Model, Mechanism, Robot, *others)
    name, (value, sha256, beside) = _loaded(name, folder, kinds, parameters)
    if isinstance(value, kinds) or not callable(value):
        if options:
            raise refuse("model_options", "must be left out where `model` is not a function")
    else:
        accepted, title = inspect.signature(value).parameters, getattr(value, "__name__", name)
        refuse_all(unknown(("model_options",), options, accepted, f"an option of {title}"))
        try:
            value = value(**options)
        except (Exception, SystemExit) as error:
            raise refuse("model", f"cannot be made: {described(error)}") from error

    model: Model | None = None
    other: Any = None
    has_state = isinstance(value, System | Mechanism) and "q0" in beside
    is_plain = isinstance(beside.get("params"), Mapping | None)
    match value:
        case System() if has_state and is_plain and "t0" not in beside:
            params, state = beside.get("params") or {}, (beside["q0"], beside.get("v0"))
            model = model_of(value, params, *state, name, "a system with a state beside it")
        case Mechanism():
            model = as_model(value, beside.get("q0"), beside.get("v0"))
        case Model():
            model = value
        case Robot():
            model = value.model
        case _ if isinstance(value, others):
            other = value
        case _ if not isinstance(value, System):
            usual = "a System, a Model, a Mechanism or a Robot (or, of a fit, an Identifiable)"
            message = f"must name {usual}, but {name} is of type {type(value).__name__}"
            raise refuse("model", message)
    owner: Any = other if model is None else model
    system = value if owner is None else owner.system
    params = beside.get("params") if owner is None else owner.params
    if found := [find(x, folder, (Controller,), "controllers").value for x in controllers]:
        try:
            system = controlled(system, found)
        except (TypeError, ValueError) as error:
            raise refuse("controllers", f"cannot be used: {error}") from error
        outputs = {x.name for x in found}
        if isinstance(params, dict):
            params = {key: x for key, x in params.items() if key not in outputs}
        model, other = (
            x if x is None else replace(x, system=system, params=params) for x in (model, other)
        )
    return Subject(name, system, model, params, sha256, beside, other, has_state)


def _loaded(
    name: str | Any, folder: Path, kinds: tuple[type, ...], parameters: Iterable[str]
) -> tuple[str, Loaded]:
    """The object of a name, or a function of the options of the model that makes it."""
    if isinstance(name, str | Path):
        name = str(name)
        if name.startswith("python:"):
            message = "it was passed as an object; put it into a file, and name it by that"
            message = f"must be a name, but of {name} nothing else is known: {message}"
            raise refuse("model", message)
        if is_robot(name):
            return name, _robot(folder / name, parameters)
        if ":" in name or name.endswith(".py"):
            return name, find(name, folder, kinds)
        if name not in CATALOGUE:
            advice = not_one_of(name, CATALOGUE, "a model of the catalogue")
            files = '"path/file.py:attribute", or the path of an MJCF or URDF file'
            raise refuse("model", f"{advice}; or write {files}")
        return name, Loaded(CATALOGUE[name])
    return python_name(name), Loaded(name)


def _robot(path: Path, parameters: Iterable[str]) -> Loaded:
    """The function of its options that makes the model of an MJCF or URDF file."""
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

    return Loaded(robot, hashlib.sha256(path.read_bytes()).hexdigest())


def find(name: str, folder: Path, kinds: tuple[type, ...], key: str | Key = "model") -> Loaded:
    """Execute "path/file.py:attribute" and return the attribute.

    Errors are those of the key that names it; they list what is of these kinds, and functions.
    """
    file, colon, attribute = name.rpartition(":")
    if not colon or not file.endswith(".py") or not attribute.isidentifier():
        raise refuse(key, f'must be of the form "path/file.py:attribute", but is "{name}"')
    path = folder / file
    if not path.is_file():
        raise refuse(key, f"must name a Python file, but there is none at {path}")
    require_no_run_code(path, folder)
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
    return Loaded(public[attribute], hashlib.sha256(code).hexdigest(), vars(module))


def described(error: BaseException) -> str:
    """An error of the user's code in words."""
    if isinstance(error, SystemExit):
        return "it ends the process, by sys.exit() or exit(); remove that call"
    return f"{type(error).__name__}: {error}"
