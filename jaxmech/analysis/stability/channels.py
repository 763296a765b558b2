"""Inputs and outputs of a linearization, by name.

An input is a generalized force on a coordinate, a parameter, or a force law per unit of the input.
An output is a coordinate or any function of the state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.stability.balance import balance, row_order
from jaxmech.analysis.stability.reduction import FullEquations, ReducedEquations
from jaxmech.analysis.states import State
from jaxmech.system import Params, System
from jaxmech.utils.checks import coordinate_indices, require_function, require_sequence
from jaxmech.utils.trees import number_names, numbers_of

Named = tuple[tuple[str, Any], ...]  # names with a function, a coordinate or a parameter each
Channels = Sequence[str] | Mapping[str, Any] | None


@dataclass(frozen=True)
class Parameter:
    """The index of a number among those of the parameters (`utils.trees.numbers_of`)."""

    index: int


def named_inputs(system: System, params: Params, inputs: Channels) -> Named:
    """The inputs as names, each with an index or a function."""
    numbers = number_names(params)

    def resolve(name: str) -> int | Parameter:
        is_coordinate, is_parameter = name in system.velocity_names, name in numbers
        if is_coordinate and is_parameter:
            raise ValueError(
                f"Argument `inputs` must have one meaning for each name, but {name!r} is a "
                "coordinate and a parameter; pass the force as a function of its own name."
            )
        if is_parameter:
            return Parameter(numbers.index(name))
        if is_coordinate:
            return system.velocity_names.index(name)
        raise ValueError(
            f"Argument `inputs` must hold names of coordinates (for a force on them) or of "
            f"parameters, but holds {name!r}; the coordinates are "
            f"{', '.join(system.velocity_names)}, the parameters {', '.join(numbers) or 'none'}."
        )

    return _named("inputs", inputs, resolve)


def named_outputs(system: System, outputs: Channels) -> Named:
    """The outputs as names, each with an index or a function."""
    hint = " For anything else pass {name: function(q, v, t, params)}."

    def resolve(name: str) -> int:
        names = system.value_names
        index = coordinate_indices("outputs", (name,), names, hint)[0]
        # Those of states follow the indices of all coordinates but their integrals.
        return index + (system.dynamics.mechanical if index >= system.n else 0)

    return _named("outputs", outputs, resolve)


def _named(argument: str, channels: Channels, resolve: Callable[[str], Any]) -> Named:
    require_sequence(argument, channels := () if channels is None else channels)
    if not isinstance(channels, Mapping):
        return tuple((name, resolve(name)) for name in channels)
    for name, channel in channels.items():
        if not isinstance(channel, str):
            require_function(f"{argument}[{name!r}]", channel)
    return tuple(
        (name, resolve(channel) if isinstance(channel, str) else channel)
        for name, channel in channels.items()
    )


def input_columns(
    system: System, full: FullEquations, small: ReducedEquations, inputs: Named, state: State
) -> tuple[Array, Array]:
    """du/dt per unit of every input, (l, j), and the motion of the constraints by inputs, (j,)."""
    q, v, t, params = state
    by_parameters = iter(_by_parameters(system, full, inputs, state))

    def column(channel: Any) -> tuple[Array, Array, Array]:
        """The generalized force of an input, and its effect on A a - b and on the constraints."""
        if isinstance(channel, Parameter):
            force, shift, level = next(by_parameters)
            return force, shift, jnp.max(jnp.abs(level), initial=0.0)
        if isinstance(channel, int):
            force = jnp.zeros_like(q).at[channel].set(1.0)
        else:
            force = _shaped(channel(q, v, t, params), (system.n,), "inputs").astype(q.dtype)
        return force, jnp.zeros(full.A.shape[0], q.dtype), jnp.zeros((), q.dtype)

    if not inputs:
        return jnp.zeros((small.M.shape[0], 0), q.dtype), jnp.zeros((0,), q.dtype)
    columns = zip(*(column(channel) for _, channel in inputs), strict=True)
    forces, shifts, moved = (jnp.stack(x) for x in columns)
    return small.solve(small.Y.T @ forces.T, -shifts[:, full.A_v.shape[0] :].T), moved


def _by_parameters(
    system: System, full: FullEquations, inputs: Named, state: State
) -> Sequence[tuple[Array, ...]]:
    """The force of each parameter, and the derivatives of A a - b and of the constraints by it."""
    q, v, t, params = state
    leaves = [channel.index for _, channel in inputs if isinstance(channel, Parameter)]
    if not leaves:
        return ()
    numbers, with_numbers = numbers_of(params)
    multipliers = full.multipliers[row_order(system, system.dynamics.sizes(*state))]

    def equations_at(x: Array) -> tuple[Array, Array, Array]:
        p = with_numbers(numbers.at[np.array(leaves)].add(x))
        found_at = balance(system, q, v, t, p, full.a, multipliers)
        level = jnp.concatenate([system.dynamics.position_level(q, t, p), found_at.speed])
        return -found_at.force, found_at.rows, level

    # By all parameters together: the equations are traced and compiled once, not for each of them.
    slopes = jax.jacfwd(equations_at)(jnp.zeros(len(leaves), q.dtype))
    return list(zip(*(slope.T for slope in slopes), strict=True))


def output_rows(
    small: ReducedEquations, outputs: Named, inputs: Named, state: State
) -> tuple[Array, Array]:
    """C and D of the outputs, one row each: (i, k + l) and (i, j)."""
    q, v, t, params = state
    numbers, with_numbers = numbers_of(params)
    rows = [jnp.zeros((0, small.Z.shape[1] + small.Y.shape[1]), q.dtype)]
    through = [jnp.zeros((0, len(inputs)), q.dtype)]
    for _, channel in outputs:

        def value(q: Array, v: Array, x: Array, channel: Any = channel) -> Array:
            if isinstance(channel, int):
                return q[channel] if channel < q.size else v[channel - q.size]
            return _shaped(channel(q, v, t, with_numbers(x)), (), "outputs").astype(q.dtype)

        g_q, g_v, g_x = jax.grad(value, (0, 1, 2))(q, v, numbers)
        rows.append(jnp.concatenate([g_q @ small.Z + g_v @ small.T, g_v @ small.Y])[None])
        slopes = [g_x[x.index] if isinstance(x, Parameter) else 0.0 for _, x in inputs]
        through.append(jnp.array([slopes], q.dtype))
    return jnp.concatenate(rows), jnp.concatenate(through)


def _shaped(value: Any, shape: tuple[int, ...], argument: str) -> Array:
    if np.shape(value) != shape:
        raise ValueError(
            f"Argument `{argument}` must hold functions that return shape {shape}, but one "
            f"returned {np.shape(value)}; give every number a name of its own."
        )
    return jnp.asarray(value)
