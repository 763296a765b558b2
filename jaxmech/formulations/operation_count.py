"""The number of scalar operations of a function, counted in its jaxpr."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax

from jaxmech.compiler.frontend.jaxprs import call_content, loop_content
from jaxmech.utils.jax_internals import Jaxpr, JaxprEqn

# Primitives that only move numbers, or make constants.
_FREE = {
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "device_put",
    "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "iota", "pad", "reshape",
    "rev", "scatter", "slice", "split", "squeeze", "stack", "stop_gradient", "transpose",
}  # fmt: skip
_SUMS = "reduce_", "arg", "cum"  # how the names of sums, products, maxima and so on begin


def operations(fn: Callable[..., Any], *args: Any) -> int:
    """The number of scalar sums, products, comparisons and so on in `fn(*args)`.

    Operations are counted as written: nothing is folded, shared or eliminated, a loop counts as
    often as it runs, a `cond` as its longest branch, and moving numbers is free. A library
    factorization of an n by n matrix counts as n^2 operations, which is far too few.

    Args:
        fn: a function of arrays and pytrees of arrays.
        *args: arguments of the function, or their shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> operations(lambda A, x: A @ x + 1.0, jnp.ones((2, 3)), jnp.ones(3))
        14
    """
    return _count(jax.make_jaxpr(fn)(*args).jaxpr)


def _count(jaxpr: Jaxpr) -> int:
    return sum(map(_cost, jaxpr.eqns))


def _cost(eqn: JaxprEqn) -> int:
    name = eqn.primitive.name
    inside = call_content(eqn)
    if inside is not None:
        return _count(inside.jaxpr)
    if name == "scan":
        return eqn.params["length"] * _count(loop_content(eqn)[0].jaxpr)
    if name in _FREE:
        return 0
    if name == "cond":
        return max(_count(branch.jaxpr) for branch in eqn.params["branches"])
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        operand: Any = eqn.invars[0].aval
        terms = prod(operand.shape[axis] for axis in contracted)
        return 2 * terms * _size(eqn.outvars)
    return _size(eqn.invars if name.startswith(_SUMS) else eqn.outvars)


def _size(atoms: Any) -> int:
    return sum(prod(atom.aval.shape) for atom in atoms)
