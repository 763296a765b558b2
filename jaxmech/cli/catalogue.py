"""The catalogue of ready models as text: a table of all, a page for each."""

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxmech.config.errors import InputError
from jaxmech.models import CATALOGUE, Model
from jaxmech.utils.text import not_one_of


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
        *_named("model_options", options),
        f"  coordinates     {', '.join(model.system.coordinates)}",
        f"  constraints     {', '.join(c.name or '' for c in model.system.constraints)}",
        f"                  {m} equations for {n} coordinates, degrees of freedom: {freedom}",
        *_named("parameters", model.params),
        *_named("start", model.start),
    ])  # fmt: skip


def _named(title: str, values: Mapping[str, Any]) -> list[str]:
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
