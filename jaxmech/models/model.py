"""`Model`: a system with default parameters and consistent initial states.

A model adds two things to a `System`: consistent parameter values, and a few start
variables (release angles, rates) from which `state` computes q and v that satisfy all constraints.
So a study can draw initial states at random without solving for consistent ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.geometry import Geometry
from jaxmech.system import System

Values = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Model:
    """A `System` with default parameters and consistent initial states.

    Attributes:
        name: name in the catalogue.
        summary: a description in one line.
        system: the mechanical system.
        params: default parameters, SI units; numbers or arrays by name.
        start: default start variables, numbers or arrays by name.
        state: `state(start, params)` returns (q, v) at t = 0, shapes (n,), which satisfy all
            constraints to round-off; a pure function.
        geometry: `geometry(q, t, params)`, the shapes of its picture (`jaxmech.geometry`); None if
            it cannot be drawn.
    """

    name: str
    summary: str
    system: System
    params: Values
    start: Values
    state: Callable[[Values, Values], tuple[Array, Array]]
    geometry: Geometry | None = None

    def initial(
        self, start: Values | None = None, params: Values | None = None
    ) -> tuple[Array, Array]:
        """Compute a consistent (q, v) at t = 0, with defaults for all values that are not given.

        Args:
            start: start variables by name.
            params: parameters by name.

        Returns:
            q and v, shapes (n,).

        Raises:
            ValueError: if the model has no variable or parameter of a given name.
        """
        return self.state(
            _merged("start", self.start, start or {}), _merged("params", self.params, params or {})
        )


def vector(*entries: Any) -> Float[Array, " n"]:
    """Stack the scalar entries as one floating-point array."""
    return 1.0 * jnp.stack([jnp.asarray(entry) for entry in entries])


def _merged(argument: str, defaults: Values, changes: Values) -> Values:
    unknown = [name for name in changes if name not in defaults]
    if unknown:
        raise ValueError(
            f"Argument `{argument}` must name only {', '.join(defaults)}, but has "
            f"{', '.join(map(repr, unknown))}; correct or remove it."
        )
    return {**defaults, **changes}
