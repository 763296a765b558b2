"""The systems that commands name: their states, and the catalogue of ready models as text."""

import inspect
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.config import load
from jaxmech.config.errors import InputError, StudyError
from jaxmech.models import CATALOGUE, Model
from jaxmech.state import assemble
from jaxmech.system import System, require_entries
from jaxmech.utils.checks import require_finite
from jaxmech.utils.text import not_one_of

_SIZES = (1.0, 0.3, 3.0, 0.1, 10.0)  # of the guesses from which a state is assembled


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
    remark: str = ""  # a remark on the state; empty where it was given


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
    default), `t0` (0) and `params` (None). Without `q0` a state is found by `assemble`, from
    guesses in general position. The pairs "key=value" of `options` are arguments of the function
    that makes the model, those of `start` start variables or coordinates.
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
            q = _with(system, jnp.asarray(q0, float), starts)
            v = jnp.zeros(system.n_velocities) if v0 is None else jnp.asarray(v0, float)
            found = SystemInState(name, system, q, v, beside.get("t0", 0.0), values)
    except ValueError as error:
        raise StateError(f"{name}: {error}") from error
    if found is None:
        bare = SystemInState(name, system, None, v0, beside.get("t0", 0.0), values)
        found = _assembled(bare, starts)
    try:  # traced once, so that what is wrong with a function or the state is said so
        state = found.system.arguments(found.q, found.v, found.t, found.params)
        require_finite(q0=state[0], v0=state[1], t0=state[2], params=state[3])
        jax.eval_shape(found.system.equations, *state)
        require_entries(found.system, *state)
    except Exception as error:
        raise _cannot_be_evaluated(name, error) from error
    return found


def _with(system: System, q: Any, start: Mapping[str, Any]) -> Any:
    """Replace the coordinates that are given by name."""
    for coordinate, value in start.items():
        q = q.at[system.coordinates.index(coordinate)].set(value)
    return q


def _assembled(bare: SystemInState, start: Mapping[str, Any]) -> SystemInState:
    """A state on the constraints near a guess in general position, at rest or moving."""
    system, draw = bare.system, np.random.default_rng(0)
    try:  # traced, as a parameter that is missing would look like a guess that leads nowhere
        x, u = jnp.ones(system.n), jnp.ones(system.n_velocities)
        jax.eval_shape(system.equations, x, u, jnp.asarray(bare.t, float), bare.params)
    except Exception as error:
        raise _cannot_be_evaluated(bare.name, error) from error
    for size, rate in itertools.product(_SIZES, (0.0, 1.0)):
        guess = jnp.asarray(draw.uniform(0.5, 1.5, (2, system.n)))
        v = rate * guess[1] if bare.v is None else jnp.asarray(bare.v, float)
        try:
            q, v = assemble(
                system, _with(system, size * guess[0], start), v, bare.t, bare.params,
                fixed=tuple(start), fixed_velocities=(),
            )  # fmt: skip
        except ValueError:
            continue
        except Exception as error:
            raise _cannot_be_evaluated(bare.name, error) from error
        moving = f"moving with {_listed(system.coordinates, v)}" if v.any() else "at rest"
        remark = (
            f"{bare.name} is a System without a state; `assemble` found "
            f"{_listed(system.coordinates, q)}, {moving}; write q0, v0, t0 and params beside it "
            "for another state"
        )
        return replace(bare, q=q, v=v, remark=remark)
    raise StateError(
        f"{bare.name} is a System without a state, and `assemble` found none from "
        f"{2 * len(_SIZES)} guesses; write q0 = [...] beside it, and v0, t0 and params where they "
        "are not zero and None; or make it a Model"
    )


def _listed(names: Sequence[str], values: Any) -> str:
    return ", ".join(f"{c} = {x:.4g}" for c, x in zip(names, values.tolist(), strict=True))


def _require_known(
    option: str, values: Mapping[str, Any], valid: Collection[str], category: str
) -> None:
    for key in values:
        if key not in valid:
            raise StateError(f"{option} {key} {not_one_of(key, valid, category)}")


def _cannot_be_evaluated(name: str, error: Exception) -> StateError:
    description = f"{type(error).__name__}: {error}".rstrip(".")
    return StateError(
        f"{name} cannot be evaluated at its state: {description}; check q0, v0 and params, which "
        "its file may hold, or --param KEY=VALUE"
    )


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
    model = factory()
    module = inspect.getmodule(factory)
    n, m, freedom = _counts(model)
    options = {key: p.default for key, p in inspect.signature(factory).parameters.items()}
    return "\n".join([
        inspect.getdoc(module) or model.summary,
        "",
        f"In a configuration: model = \"{name}\"",
        *_heading("model_options", options),
        f"  coordinates     {', '.join(model.system.coordinates)}",
        f"  constraints     {', '.join(c.name or '' for c in model.system.constraints)}",
        f"                  {m} equations for {n} coordinates, degrees of freedom: {freedom}",
        *_heading("parameters", model.params),
        *_heading("start", model.start),
    ])  # fmt: skip


def _heading(title: str, values: Mapping[str, Any]) -> list[str]:
    numbers = ", ".join(f"{key} = {_number(value)}" for key, value in values.items())
    return [f"  {title:<16}{numbers}"] if values else []


def _number(value: Any) -> str:
    value = np.asarray(value)
    if value.size > 3 and np.all(value == value.flat[0]):
        return f"{value.size} times {value.flat[0]:.6g}"
    return np.array2string(value, separator=", ", precision=6, max_line_width=10**6)


def _counts(model: Model) -> tuple[int, int, int]:
    """Coordinates, constraint equations, degrees of freedom at the default initial state."""

    @jax.jit  # one compilation is faster than many small ones
    def rows() -> jax.Array:
        q, v = model.initial()
        return model.system.equations(q, v, 0.0, model.params).A

    A = np.asarray(rows())
    return model.system.n, A.shape[0], model.system.n - int(np.linalg.matrix_rank(A))
