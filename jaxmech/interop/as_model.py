"""`as_model`: the `Model` of a mechanism, for what needs a state and default parameters."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.geometry import Geometry
from jaxmech.models import Model, Values, vector
from jaxmech.parts import Mechanism, Start
from jaxmech.state import assemble
from jaxmech.system import System


def as_model(
    mechanism: Mechanism,
    q: Any = None,
    v: Any = None,
    *,
    name: str = "mechanism",
    summary: str = "a mechanism of parts",
) -> Model:
    """The model of a mechanism, whose start variables are its coordinates and velocities.

    The velocities have names such as `elbow.angle.rate` or `ball.spin_x`. The state is the nearest
    one on the constraints. By default all coordinates are zero, free bodies lie at the origin, and
    everything is at rest.

    Args:
        mechanism: the mechanism, whose parameters are those of the model.
        q: default coordinates, shape (n,).
        v: default velocities, shape (n,) or (k,).
        name: name of the model.
        summary: a description in one line.
    """
    system, geometry = mechanism.system, mechanism.geometry
    if q is None:
        free = [x for x in mechanism.bodies if f"{x.name}.x" in system.coordinates]
        q = mechanism.guess({body.name: Start((0.0,) * body.dimension) for body in free})[0]
    return model_of(system, mechanism.params, q, v, name, summary, geometry)


def model_of(
    system: System, params: Values, q: Any, v: Any, name: str, summary: str,
    geometry: Geometry | None = None,
) -> Model:  # fmt: skip
    """The model of a system that starts near a state, at rest without velocities."""
    q = jnp.asarray(q, float)
    v = jnp.zeros(system.n_velocities, q.dtype) if v is None else jnp.asarray(v, q.dtype)
    rates = system.velocities or [f"{name}.rate" for name in system.coordinates]
    start = dict(zip([*system.coordinates, *rates], [*q.tolist(), *v.tolist()], strict=True))

    def state(start: Values, params: Values) -> tuple[Array, Array]:
        q, v = (vector(*(start[x] for x in names)) for names in (system.coordinates, rates))
        return assemble(system, q, v, 0.0, params) if system.constraints else (q, v)

    return Model(name, summary, system, params, start, state, geometry)
