"""Inputs and outputs of a linearization, by name.

An input is a generalized force on a coordinate, a parameter, or a force law per unit of the input.
An output is a coordinate or any function of the state.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.stability.balance import balance, row_order
from jaxmech.analysis.stability.reduction import FullEquations, ReducedEquations
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_function

Named = tuple[tuple[str, Any], ...]  # names with a function, a coordinate or a parameter each
Channels = Sequence[str] | Mapping[str, Any] | None


class Parameter(tuple[int, int]):
    """The index of a leaf of the parameters, and the index of a number within it."""

    __slots__ = ()


def parameter_places(params: Params) -> dict[str, Parameter]:
    """Every floating-point number among the parameters by name: `g`, `m[0]`, `rod.length`.

    Example:
        >>> parameter_places({"g": 9.81, "m": np.ones(2)})
        {'g': (0, 0), 'm[0]': (1, 0), 'm[1]': (1, 1)}
    """
    places = {}
    for k, (path, leaf) in enumerate(jax.tree.leaves_with_path(params)):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            continue
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "params"
        for j, index in enumerate(np.ndindex(np.shape(leaf))):
            inside = "[" + ",".join(map(str, index)) + "]" if index else ""
            places[name + inside] = Parameter((k, j))
    return places


def named_inputs(system: System, params: Params, inputs: Channels) -> Named:
    """The inputs as names, each with an index or a function.

    Raises:
        TypeError: the inputs are a single string, or one is neither a name nor a function.
        ValueError: a name is neither a coordinate nor a parameter, or both.
    """
    places = parameter_places(params)

    def resolve(name: str) -> Any:
        is_coordinate, is_parameter = name in system.coordinates, name in places
        if is_coordinate and is_parameter:
            raise ValueError(
                f"Argument `inputs` must have one meaning for each name, but {name!r} is a "
                "coordinate and a parameter; pass the force as a function of its own name."
            )
        if is_coordinate:
            return list(system.coordinates).index(name)
        if is_parameter:
            return places[name]
        raise ValueError(
            f"Argument `inputs` must hold names of coordinates (for a force on them) or of "
            f"parameters, but holds {name!r}; the coordinates are "
            f"{', '.join(system.coordinates)}, the parameters {', '.join(places) or 'none'}."
        )

    return _named("inputs", inputs, resolve)


def named_outputs(system: System, outputs: Channels) -> Named:
    """The outputs as names, each with an index or a function.

    Raises:
        TypeError: the outputs are a single string, or one is neither a name nor a function.
        ValueError: a name is not a coordinate.
    """

    def resolve(name: str) -> int:
        if name not in system.coordinates:
            raise ValueError(
                f"Argument `outputs` must hold names of coordinates, but holds {name!r}; the "
                f"coordinates are {', '.join(system.coordinates)}. For anything else pass "
                "{name: function(q, v, t, params)}."
            )
        return list(system.coordinates).index(name)

    return _named("outputs", outputs, resolve)


def _named(argument: str, given: Channels, resolve: Callable[[str], Any]) -> Named:
    if given is None:
        return ()
    if isinstance(given, str):
        raise TypeError(
            f"Argument `{argument}` must be a sequence of names, but is {given!r}; "
            f"write ({given!r},)."
        )
    if not isinstance(given, Mapping):
        return tuple((name, resolve(name)) for name in given)
    for name, what in given.items():
        if not isinstance(what, str):
            require_function(f"{argument}[{name!r}]", what)
    return tuple(
        (name, resolve(what) if isinstance(what, str) else what) for name, what in given.items()
    )


def input_columns(
    system: System,
    found: FullEquations,
    small: ReducedEquations,
    inputs: Named,
    state: tuple[Array, Array, Array, Params],
) -> tuple[Array, Array]:
    """du/dt per unit of every input, (l, j), and the motion of the constraints by inputs, (j,)."""
    q, v, t, params = state
    forces, shifts, moved = [], [], []
    count, rest = found.A_v.shape[0], jnp.zeros(found.A.shape[0], q.dtype)
    for _, what in inputs:
        force, shift, size = jnp.zeros_like(q), rest, jnp.zeros((), q.dtype)
        if isinstance(what, Parameter):
            force, shift, level = _by_parameter(system, found, what, state)
            size = jnp.max(jnp.abs(level), initial=0.0)
        elif isinstance(what, int):
            force = force.at[what].set(1.0)
        else:
            force = _shaped(what(q, v, t, params), (system.n,), "inputs").astype(q.dtype)
        forces.append(small.Y.T @ force)
        shifts.append(-shift[count:])
        moved.append(size)
    if not inputs:
        return jnp.zeros((small.M.shape[0], 0), q.dtype), jnp.zeros((0,), q.dtype)
    return small.solve(jnp.stack(forces, 1), jnp.stack(shifts, 1)), jnp.stack(moved)


def _by_parameter(
    system: System, full: FullEquations, where: Parameter, state: tuple[Array, Array, Array, Params]
) -> tuple[Array, Array, Array]:
    """The force of one parameter, and the derivatives of A a - b and of the constraints by it."""
    q, v, t, params = state
    leaves, structure = jax.tree.flatten(params)
    leaf, place = where
    multipliers = full.multipliers[row_order(system, system.sizes(*state))]

    def at(x: Array) -> tuple[Array, Array, Array]:
        changed = list(leaves)
        changed[leaf] = leaves[leaf].reshape(-1).at[place].add(x).reshape(leaves[leaf].shape)
        p = jax.tree.unflatten(structure, changed)
        found_at = balance(system, q, v, t, p, full.a, multipliers)
        level = jnp.concatenate([system.position_level(q, t, p), found_at.speed])
        return -found_at.force, found_at.rows, level

    return jax.jacfwd(at)(jnp.zeros((), q.dtype))


def output_rows(
    system: System,
    small: ReducedEquations,
    outputs: Named,
    inputs: Named,
    state: tuple[Array, Array, Array, Params],
) -> tuple[Array, Array]:
    """C and D of the outputs, one row each: (i, k + l) and (i, j)."""
    q, v, t, params = state
    leaves, structure = jax.tree.flatten(params)
    rows, through = [], []
    for _, what in outputs:

        def value(q: Array, v: Array, p: Params, what: Any = what) -> Array:
            return q[what] if isinstance(what, int) else _scalar(what(q, v, t, p)).astype(q.dtype)

        g_q, g_v = jax.grad(value, (0, 1))(q, v, params)
        rows.append(jnp.concatenate([g_q @ small.Z + g_v @ small.T, g_v @ small.Y]))
        slopes = []
        for _, source in inputs:
            slope = jnp.zeros((), q.dtype)
            if isinstance(source, Parameter) and not isinstance(what, int):
                leaf, place = source

                def moved(x: Array, leaf: int = leaf, value: Any = value) -> Array:
                    p = jax.tree.unflatten(structure, [*leaves[:leaf], x, *leaves[leaf + 1 :]])
                    return value(q, v, p)

                slope = jax.grad(moved)(leaves[leaf]).reshape(-1)[place]
            slopes.append(slope)
        through.append(jnp.stack(slopes) if slopes else jnp.zeros((0,), q.dtype))
    states = small.Z.shape[1] + small.Y.shape[1]
    if not outputs:
        return jnp.zeros((0, states), q.dtype), jnp.zeros((0, len(inputs)), q.dtype)
    return jnp.stack(rows), jnp.stack(through)


def _scalar(value: Any) -> Array:
    return _shaped(value, (), "outputs")


def _shaped(value: Any, shape: tuple[int, ...], argument: str) -> Array:
    if np.shape(value) != shape:
        raise ValueError(
            f"Argument `{argument}` must hold functions that return shape {shape}, but one "
            f"returned {np.shape(value)}; give every number a name of its own."
        )
    return jnp.asarray(value)
