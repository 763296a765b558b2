"""A system in a state, found by the name that a person types after `check` or `compare`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from jaxmech.ensemble import StudyError, load
from jaxmech.models import Model
from jaxmech.system import System


class SituationError(ValueError):
    """A name or a value on the command line that leads to no system in a state."""


@dataclass(frozen=True, eq=False)
class Situation:
    """A system in a state.

    Attributes:
        name: how it was asked for.
        system: the system.
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        t: time [s].
        params: parameters.
    """

    name: str
    system: System
    q: Any
    v: Any
    t: Any
    params: Any


def situation(
    name: str,
    *,
    options: Sequence[str] = (),
    start: Sequence[str] = (),
    params: Sequence[str] = (),
    folder: Path = Path(),
) -> Situation:
    """The system of that name in its default state, or in the one that is asked for.

    A model knows its state. Beside a bare `System` its file must hold `q0`, and may hold `v0` (at
    rest by default), `t0` (0) and `params` (None).

    Args:
        name: a model of the catalogue, or "path/file.py:attribute" as for an ensemble.
        options: "key=value" for the function that makes the model.
        start: "key=value" for the start variables of a model, or the coordinates of a system.
        params: "key=value" for parameters.
        folder: the folder to which a relative path refers.

    Raises:
        SituationError: there is no such system, no state, or no such variable; or its functions
            cannot be evaluated there.

    Example:
        >>> found = situation("pendulum", start=["theta=0.5"], params=["l=2.0"])
        >>> print(found.q.round(3))
        [ 0.959 -1.755]
    """
    try:
        subject = load(name, {key: _whole(x) for key, x in _values(options).items()}, folder)
    except StudyError as error:
        raise SituationError(str(error)) from error
    given, changed = _values(start), _values(params)
    if subject.model is not None:
        found = _of_model(name, subject.model, given, changed)
    else:
        found = _of_file(name, subject.system, subject.beside, given, changed)
    _require_evaluated(found)
    return found


def _of_model(
    name: str, model: Model, start: Mapping[str, Any], params: Mapping[str, Any]
) -> Situation:
    try:
        q, v = model.initial(start, params)
    except ValueError as error:
        raise SituationError(f"{name}: {error}") from error
    return Situation(name, model.system, q, v, 0.0, {**model.params, **params})


def _of_file(
    name: str,
    system: System,
    beside: Mapping[str, Any],
    start: Mapping[str, Any],
    changed: Mapping[str, Any],
) -> Situation:
    if "q0" not in beside:
        raise SituationError(
            f"{name} is a System without a state: write q0 = [...] beside it, and v0, t0 and "
            "params where they are not zero and None; or make it a Model"
        )
    params = beside.get("params")
    if changed:
        if not isinstance(params, Mapping):
            raise SituationError(f"--param needs a dictionary `params` beside {name}")
        params = {**params, **_known("--param", changed, params)}
    q0 = jnp.asarray(beside["q0"], float)
    v0 = jnp.asarray(beside.get("v0", jnp.zeros_like(q0)), float)
    places = {c: k for k, c in enumerate(system.coordinates)}
    for coordinate, value in _known("--start", start, places).items():
        q0 = q0.at[places[coordinate]].set(value)
    return Situation(name, system, q0, v0, beside.get("t0", 0.0), params)


def _known(option: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in given:
        if key not in known:
            raise SituationError(f"{option} {key} is not one of {', '.join(known)}")
    return given


def _require_evaluated(found: Situation) -> None:
    """One evaluation, so that a missing parameter is told as such and not as a crash."""
    try:
        found.system.equations(found.q, found.v, found.t, found.params)
    except Exception as error:
        raise SituationError(
            f"{found.name} cannot be evaluated at its state: {type(error).__name__}: {error}; "
            "check q0, v0 and params"
        ) from error


def _values(pairs: Sequence[str]) -> dict[str, Any]:
    return dict(_value(pair) for pair in pairs)


def _value(pair: str) -> tuple[str, Any]:
    """A pair such as l=2.0 or J=1.0,2.0,3.0."""
    key, equals, text = pair.partition("=")
    try:
        numbers = [float(x) for x in text.split(",")]
    except ValueError:
        numbers = []
    if not equals or not key or not numbers:
        raise SituationError(f"{pair!r} must be of the form key=number, or key=number,number,...")
    if not all(map(isfinite, numbers)):
        raise SituationError(f"{pair!r} must hold finite numbers")
    return key, numbers[0] if len(numbers) == 1 else jnp.asarray(numbers)


def _whole(value: Any) -> Any:
    """A whole number as an integer: options of models are sizes."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
