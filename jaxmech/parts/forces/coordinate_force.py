"""Forces on coordinates that are read and written by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.joints.checks import part_name
from jaxmech.parts.values import Reader
from jaxmech.utils.checks import require_function
from jaxmech.utils.text import capital
from jaxmech.utils.units import Named, columns


@dataclass(frozen=True)
class CoordinateForce:
    """A force on coordinates by a function of the user; `part` is its name in messages."""

    part: str
    law: Callable[..., Any]

    def on(self, coordinates: tuple[str, ...], states: tuple[str, ...]) -> "BoundForce":
        """The force as a function of the arrays of a mechanism."""
        return BoundForce(self.part, self.law, coordinates, states)


@dataclass(frozen=True)
class BoundForce:
    """`CoordinateForce` in a mechanism with coordinates and states of these names."""

    part: str
    law: Callable[..., Any]
    coordinates: tuple[str, ...]
    states: tuple[str, ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The generalized force, (n,)."""
        entries = columns(self.coordinates, (*self.coordinates, *self.states))
        state = Named(entries, {"q": q, "v": v}, "the mechanism")
        forces = self.law(state, t, params)
        if not isinstance(forces, Mapping):
            raise TypeError(
                f"{capital(self.part)} must have a law that returns forces by the names of "
                f'coordinates, such as {{"{self.coordinates[0]}": 1.0}}, but it returned '
                f"{forces!r}."
            )
        for name in forces:
            if name not in self.coordinates:
                raise ValueError(
                    f"{capital(self.part)} must act on coordinates of the mechanism "
                    f"({', '.join(self.coordinates)}), but acts on {name!r}; correct the name."
                )
        read, zero = Reader(self.part, t, params), jnp.zeros((), q.dtype)
        generalized = [
            read.array(forces[name], ()) if name in forces else zero for name in self.coordinates
        ]
        return jnp.stack(generalized)


def coordinate_force(name: str, law: Callable[..., Any]) -> CoordinateForce:
    """A force on coordinates that may depend on all of them, read by name.

    Args:
        name: name of the force.
        law: `law(x, t, params)`, forces [N] or torques [N m] by the names of the coordinates on
            which they act. `x["crank.angle"]` is a coordinate, `x["crank.angle.rate"]` its rate,
            and a state of first order has its own name, such as `x["current"]`.

    Raises:
        TypeError: if `law` is not a function.

    Example:
        >>> def clutch(x, t, p):
        ...     torque = p["c"] * (x["motor.angle.rate"] - x["wheel.angle.rate"])
        ...     return {"motor.angle": -torque, "wheel.angle": torque}
        >>> coordinate_force("clutch", clutch).part
        "coordinate force 'clutch'"
    """
    part = part_name("coordinate force", name)
    require_function("law", law, "x, t, params")
    return CoordinateForce(part, law)
