"""A ready system: the mechanics, default parameters, and how to start it consistently.

A model adds two things to a `System`: parameter values that make sense together, and a few start
variables (release angles, rates) from which `state` computes a q and v that satisfy every
constraint. So a study can draw any start at random and never has to search for a consistent state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.system import System

Values = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Model:
    """A `System` with default parameters and a consistent start.

    Attributes:
        name: the name under which the catalogue knows it.
        summary: what it is, in one line.
        system: the mechanics.
        params: default parameters, SI units; numbers or arrays by name.
        start: default start variables, numbers or arrays by name.
        state: `state(start, params)` returns (q, v) at t = 0, shapes (n,), which satisfies all
            constraints to round-off. Pure, so it can be compiled, vectorized and differentiated.

    Example:
        >>> from jaxmech.models import pendulum
        >>> q, v = pendulum().initial({"theta": 0.0, "omega": 2.0}, {"l": 0.5})
        >>> print(q, v)
        [ 0.  -0.5] [1. 0.]
    """

    name: str
    summary: str
    system: System
    params: Values
    start: Values
    state: Callable[[Values, Values], tuple[Array, Array]]

    def initial(
        self, start: Values | None = None, params: Values | None = None
    ) -> tuple[Array, Array]:
        """Consistent (q, v) at t = 0; what is not given keeps its default.

        Args:
            start: start variables by name.
            params: parameters by name.

        Returns:
            q and v, shapes (n,).

        Raises:
            ValueError: a name is not one of the model's.
        """
        return self.state(
            _merged("start", self.start, start or {}), _merged("params", self.params, params or {})
        )


def vector(*entries: Any) -> Float[Array, " n"]:
    """The scalar entries as one floating-point array, whatever numbers or arrays they are.

    Example:
        >>> print(vector(1, jnp.float32(0.5)))
        [1.  0.5]
    """
    return 1.0 * jnp.stack([jnp.asarray(entry) for entry in entries])


def _merged(argument: str, defaults: Values, given: Values) -> Values:
    """The defaults with the given values in their places."""
    unknown = [name for name in given if name not in defaults]
    if unknown:
        raise ValueError(
            f"Argument `{argument}` must name only {', '.join(defaults)}, but has "
            f"{', '.join(map(repr, unknown))}; correct or remove it."
        )
    return {**defaults, **given}
