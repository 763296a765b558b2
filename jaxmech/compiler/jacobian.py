"""`jacobian`: a Jacobian by as few directions as its structural zeros allow.

`dependencies` says which numbers of an argument each number of the result depends on.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from jaxmech.compiler.frontend.from_jaxpr import JaxprReader
from jaxmech.compiler.frontend.primitives import constant
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import UnsupportedError, leaves
from jaxmech.utils.jax_internals import ClosedJaxpr, Tracer

WORTHWHILE = 0.7  # of all directions: with more, one for each number is as good


def jacobian(fn: Callable[[Array], Array], x: Float[Array, " n"]) -> Float[Array, " m n"]:
    """`jax.jacfwd(fn)(x)`, for a function whose results depend on few numbers of x each.

    Columns without a common row of nonzero numbers share a direction (Curtis, Powell and Reid
    1974): the mass matrix of a hundred bodies takes as many as that of one.
    """
    flags = dependencies(jax.make_jaxpr(fn)(jax.ShapeDtypeStruct(x.shape, x.dtype)))
    if flags is None or flags.size == 0:
        return jax.jacfwd(fn)(x)
    groups = _groups(flags)
    count = groups.max() + 1
    if count > WORTHWHILE * x.size:
        return jax.jacfwd(fn)(x)
    if count == 0:
        return jnp.zeros(flags.shape, x.dtype)
    seeds = (groups == np.arange(count)[:, None]).astype(x.dtype)
    pushed = jax.vmap(lambda seed: jax.jvp(fn, (x,), (seed,))[1])(jnp.asarray(seeds))
    return jnp.concatenate(list(_columns(pushed, groups, flags))).T


def _groups(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The direction (n,) that each column shares with others; -1 for columns of zeros."""
    groups, occupied = np.full(flags.shape[1], -1), np.zeros((0, flags.shape[0]), bool)
    for j, column in enumerate(flags.T):
        if not column.any():
            continue
        free = np.flatnonzero(~(occupied & column).any(1))
        groups[j] = free[0] if free.size else len(occupied)
        if not free.size:
            occupied = np.concatenate([occupied, np.zeros((1, len(column)), bool)])
        occupied[groups[j]] |= column
    return groups


def _columns(pushed: Array, groups: NDArray[np.int64], flags: NDArray[np.bool_]) -> Iterator[Array]:
    """The columns as rows, in pieces that are slices of the directions."""
    n, start = len(groups), 0
    while start < n:
        first, stop = groups[start], start + 1
        step = 0 if first < 0 else 1
        while stop < n and groups[stop] == first + step * (stop - start):
            stop += 1
        mask = flags.T[start:stop]
        if first < 0:
            yield jnp.zeros(mask.shape, pushed.dtype)
        else:
            piece = pushed[first : first + stop - start]
            yield piece if mask.all() else jnp.where(mask, piece, 0.0)
        start = stop


def dependencies(closed: ClosedJaxpr) -> NDArray[np.bool_] | None:
    """Flags (m, n) for a function from (n,) to (m,), by its operations; None if unknown."""
    reader, jaxpr = JaxprReader(Graph()), closed.jaxpr
    traced = {
        var: value
        for var, value in zip(jaxpr.constvars, closed.consts, strict=True)
        if isinstance(value, Tracer)
    }
    try:
        inputs = [*jaxpr.invars, *traced]
        env: dict[Any, Any] = dict(
            zip(inputs, leaves(reader.graph, "input", [x.aval for x in inputs]), strict=True)
        )
        for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
            if var not in traced:
                env[var] = constant(reader.graph, np.asarray(value))
        reader.equations(jaxpr.eqns, env)
        out = reader.value(jaxpr.outvars[0], env)
    except UnsupportedError:
        return None
    if reader.loops or not isinstance(out, np.ndarray):
        return None
    return _flags(reader.graph, env[jaxpr.invars[0]], out)


def _flags(graph: Graph, x: np.ndarray, out: np.ndarray) -> NDArray[np.bool_]:
    """Whether the nodes of the result depend on those of the argument."""
    positions = {i: k for k, i in enumerate(x.tolist())}
    sets: list[
        int
    ] = []  # for each node the set of numbers it depends on, as the bits of an integer
    for i, node in enumerate(graph.nodes):
        mask = 1 << positions[i] if i in positions else 0
        for k in node.inputs:
            mask |= sets[k]
        sets.append(mask)
    rows = [[sets[i] >> k & 1 for k in range(x.size)] for i in out.tolist()]
    return np.array(rows, bool).reshape(out.size, x.size)
