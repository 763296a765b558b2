"""The systems that commands name: their states, and the catalogue of ready models as text."""

import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.analysis import State
from jaxmech.config import described, load
from jaxmech.config.errors import InputError, StudyError
from jaxmech.models import CATALOGUE, Model
from jaxmech.system import System, require_entries
from jaxmech.utils.checks import require_finite
from jaxmech.utils.text import not_one_of


def load_state(name: str, folder: Path = Path()) -> tuple[System, State]:
    """The system of that name, and its default state.

    A model has one. Beside a bare `System` its file holds `q0`, and may hold `v0` (at rest by
    default), `t0` (0) and `params` (None).
    """
    try:
        subject = load(name, {}, folder)
    except StudyError as error:
        raise InputError("; ".join(f"{name} {x.message}" for x in error.problems)) from error
    system, model, beside = subject.system, subject.model, subject.beside
    if model is None and "q0" not in beside:
        raise InputError(
            f"{name} is a System without a state; write q0 = [...] beside it in its file, and v0, "
            "t0 and params where they are not zero and None; `jm.assemble` finds consistent ones"
        )
    try:  # traced once, so that what is wrong with a function or the state is said so
        if model is not None and not subject.state_beside:
            q, v, t = *model.initial(), 0.0
        else:  # as it is written: a model moves it onto the constraints, but here it is in question
            v0 = beside.get("v0")
            v = jnp.zeros(system.n_velocities) if v0 is None else jnp.asarray(v0, float)
            q, t = jnp.asarray(beside["q0"], float), beside.get("t0", 0.0)
        state = State(*system.arguments(q, v, t, subject.params))
        require_finite(q0=state.q, v0=state.v, t0=state.t, params=state.params)
        jax.eval_shape(system.equations, *state)
        require_entries(system, *state)
    except Exception as error:
        raise InputError(
            f"{name} cannot be evaluated at its state: {described(error).rstrip('.')}; check q0, "
            "v0 and params, which its file may hold"
        ) from error
    return system, state


def table() -> str:
    """Format a table of all models: coordinates, constraint equations, DOF, summary."""
    lines = [f"{'model':<24}{'coordinates':>11}{'constraints':>13}{'DOF':>5}   summary"]
    for name, make in CATALOGUE.items():
        model = make()

        @jax.jit  # one compilation is faster than many small ones
        def rows(model: Model = model) -> jax.Array:
            q, v = model.initial()
            return model.system.equations(q, v, 0.0, model.params).A

        n, A = model.system.n, np.asarray(rows())
        freedom = n - int(np.linalg.matrix_rank(A))  # at the default initial state
        lines.append(f"{name:<24}{n:>11}{len(A):>13}{freedom:>5}   {model.summary}")
    return "\n".join(lines)


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
