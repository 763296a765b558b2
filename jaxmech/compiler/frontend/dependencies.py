"""Which numbers of the argument of a function each number of its result depends on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxmech.compiler.frontend.from_jaxpr import JaxprReader
from jaxmech.compiler.frontend.primitives import constant
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import UnsupportedError, leaves
from jaxmech.utils.jax_internals import ClosedJaxpr, Tracer


def dependencies(closed: ClosedJaxpr) -> NDArray[np.bool_] | None:
    """Flags (m, n) for a function from (n,) to (m,), by its operations; None if they are unknown.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(dependencies(jax.make_jaxpr(lambda x: x[1:] - x[:-1])(jnp.zeros(3))))
        [[ True  True False]
         [False  True  True]]
    """
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
