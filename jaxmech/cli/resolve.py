"""The systems that commands name: their states, and the catalogue of ready models as text."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.config import load
from jaxmech.config.errors import InputError, StudyError
from jaxmech.models import CATALOGUE, Model
from jaxmech.system import System, require_entries
from jaxmech.utils.checks import require_finite
from jaxmech.utils.text import not_one_of


class StateError(InputError):
    """A name or a value on the command line that leads to no system in a state."""


@dataclass(frozen=True, eq=False)
class SystemInState:
    """A system in a state."""

    name: str  # the argument that names it
    system: System  # the system
    q: Any  # coordinates, shape (n,)
    v: Any  # velocities, shape (n,)
    t: Any  # time [s]
    params: Any  # parameters


def load_state(
    name: str,
    *,
    options: Sequence[str] = (),
    start: Sequence[str] = (),
    params: Sequence[str] = (),
    folder: Path = Path(),
) -> SystemInState:
    """The system of that name in its default state, or in the requested one.

    A model has a default state. Beside a bare `System` its file may hold `q0`, `v0` (at rest by
    default), `t0` (0) and `params` (None). The pairs "key=value" of `options` are arguments of the
    function that makes the model, those of `start` start variables or coordinates.
    """
    starts = dict(_value("--start", pair) for pair in start)
    changed = dict(_value("--param", pair) for pair in params)
    numbers = dict(_value("--option", pair) for pair in options)
    for key, x in numbers.items():  # options of models are sizes
        numbers[key] = int(x) if isinstance(x, float) and x.is_integer() else x
    try:
        subject = load(name, numbers, folder, changed)
    except StudyError as error:
        told = (str(p).replace("model_options.", "--option ") for p in error.problems)
        words = (f"{name}{x.removeprefix('model')}" if x.startswith("model ") else x for x in told)
        raise StateError("; ".join(words)) from error
    system, model, beside = subject.system, subject.model, subject.beside
    values = beside.get("params") if model is None else model.params
    known = model.start if model else system.coordinates
    _require_known("--start", starts, known, f"a start of {name}")
    if values is not None:
        named = values if isinstance(values, Mapping) else ()
        _require_known("--param", changed, named, f"a parameter of {name}")
    values = {**values, **changed} if changed and values else changed or values

    found, q0, v0 = None, beside.get("q0"), beside.get("v0")
    try:
        if model is not None and (starts or not subject.state_beside):
            found = SystemInState(name, system, *model.initial(starts, changed), 0.0, values)
        elif q0 is not None:
            # As it is written: a model moves it onto the constraints, but here it is in question.
            q = jnp.asarray(q0, float)
            for coordinate, value in starts.items():
                q = q.at[system.coordinates.index(coordinate)].set(value)
            v = jnp.zeros(system.n_velocities) if v0 is None else jnp.asarray(v0, float)
            found = SystemInState(name, system, q, v, beside.get("t0", 0.0), values)
    except ValueError as error:
        raise StateError(f"{name}: {error}") from error
    if found is None:
        raise StateError(
            f"{name} is a System without a state; write q0 = [...] beside it in its file, and v0, "
            "t0 and params where they are not zero and None; `jm.assemble` finds consistent ones"
        )
    try:  # traced once, so that what is wrong with a function or the state is said so
        state = found.system.arguments(found.q, found.v, found.t, found.params)
        require_finite(q0=state[0], v0=state[1], t0=state[2], params=state[3])
        jax.eval_shape(found.system.equations, *state)
        require_entries(found.system, *state)
    except Exception as error:
        description = f"{type(error).__name__}: {error}".rstrip(".")
        raise StateError(
            f"{name} cannot be evaluated at its state: {description}; check q0, v0 and params, "
            "which its file may hold, or --param KEY=VALUE"
        ) from error
    return found


def _require_known(
    option: str, values: Mapping[str, Any], valid: Collection[str], category: str
) -> None:
    for key in values:
        if key not in valid:
            raise StateError(f"{option} {key} {not_one_of(key, valid, category)}")


def _value(option: str, pair: str) -> tuple[str, Any]:
    """The key and value of a pair such as l=2.0 or J=1.0,2.0,3.0."""
    key, equals, numeral = pair.partition("=")
    try:
        numbers = [float(x) for x in numeral.split(",")]
    except ValueError:
        numbers = []
    if not equals or not key or not numbers:
        raise StateError(
            f"{option} {pair!r} must be of the form key=number, or key=number,number,..."
        )
    if not all(map(isfinite, numbers)):
        raise StateError(f"{option} {pair!r} must hold finite numbers")
    return key, numbers[0] if len(numbers) == 1 else jnp.asarray(numbers)


def table() -> str:
    """Format a table of all models: coordinates, constraint equations, DOF, summary."""
    rows = [(name, *map(str, _counts(make())), make().summary) for name, make in CATALOGUE.items()]
    rows.insert(0, ("model", "coordinates", "constraints", "DOF", "summary"))
    return "\n".join(f"{a:<24}{b:>11}{c:>13}{d:>5}   {e}" for a, b, c, d, e in rows)


def page(name: str) -> str:
    """The documentation of one model, with its options, parameters and start variables."""
    if name not in CATALOGUE:
        raise InputError(f"{name} {not_one_of(name, CATALOGUE, 'a model')}")
    factory = CATALOGUE[name]
    model, module = factory(), inspect.getmodule(factory)
    options = {key: p.default for key, p in inspect.signature(factory).parameters.items()}
    rows = [("coordinates", ", ".join(model.system.coordinates))]
    for title, values in (
        ("model_options", options), ("parameters", model.params), ("start", model.start)
    ):  # fmt: skip
        numbers = (f"{key} = {np.array2string(np.asarray(x))}" for key, x in values.items())
        rows += [(title, ", ".join(numbers))] if values else []
    lines = (f"  {title:<16}{text}" for title, text in rows)
    return "\n".join([inspect.getdoc(module) or model.summary, "", *lines])


def _counts(model: Model) -> tuple[int, int, int]:
    """Coordinates, constraint equations, degrees of freedom at the default initial state."""

    @jax.jit  # one compilation is faster than many small ones
    def rows() -> jax.Array:
        q, v = model.initial()
        return model.system.equations(q, v, 0.0, model.params).A

    A = np.asarray(rows())
    return model.system.n, A.shape[0], model.system.n - int(np.linalg.matrix_rank(A))
