"""A measured pendulum as argument of `fit`, for any number of arms and either coordinates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.measured_pendulum.friction import Params
from jaxmech.identify.identifiable import Identifiable

Coordinates = Literal["angles", "bodies"]
COORDINATES: tuple[Coordinates, ...] = ("angles", "bodies")
State = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Rig:
    """A pendulum with its sensors and a friction law.

    Attributes:
        arms: the suffixes of the arms in the names of parameters.
        subject: the argument of `fit`: the system, the angles measured by the encoders [rad], the
            state for recorded angles and rates, the parameters of the authors, and the free ones.
        acceleration: acceleration(q, w, params) of the angles, in closed form.
    """

    arms: tuple[str, ...]
    subject: Identifiable
    acceleration: Callable[[Array, Array, Params], Array]


def direction(angle: Array) -> Array:
    """The unit vector along an arm (x, y): 0 is upright, pi is hanging."""
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)])


def rate_of(angle: Array, w: Array) -> Array:
    """The time derivative of `direction`."""
    return w * jnp.stack([jnp.cos(angle), -jnp.sin(angle)])


def sensors(arms: tuple[str, ...]) -> dict[str, float]:
    """The parameters of the encoders: their offsets [rad], and the lag of the rates [s]."""
    return {**{"zero" + arm: 0.0 for arm in arms}, "lag": 0.0}


def zeros(p: Params, arms: tuple[str, ...]) -> Array:
    return jnp.stack([p["zero" + arm] for arm in arms])


def angles_at(
    q0: Array, v0: Array, p: Params, arms: tuple[str, ...], acceleration: Callable[..., Array]
) -> State:
    """Compute angles and rates from recorded ones.

    The recorded rates are differences of recorded angles, and lag behind: to first order
    v0 = w - lag w'.
    """
    q = q0 - zeros(p, arms)
    return q, v0 + p["lag"] * acceleration(q, v0, p)


def named(values: Any, names: str) -> dict[str, float]:
    return dict(zip(names.split(), np.asarray(values, float).tolist(), strict=True))
