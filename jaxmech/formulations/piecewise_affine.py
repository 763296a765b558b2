"""Piecewise affine functions: |x|, max(x, y) and comparisons of affine functions.

With the side of every corner fixed, the function is affine. So an equation with it has one
candidate solution for each combination of sides, from a linear system, and those that lie on the
sides they were computed with are all its solutions. The operations of a function, not its values,
decide whether it counts as piecewise affine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.compiler.frontend.jaxprs import call_content
from jaxmech.utils.jax_internals import ClosedJaxpr, JaxprEqn, Literal

_AFFINE = {  # jointly in all operands
    "add", "add_any", "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p",
    "cumsum", "expand_dims", "neg", "pad", "reduce_sum", "reshape", "rev", "slice", "squeeze",
    "sub", "transpose",
}  # fmt: skip
_BILINEAR = {"mul", "dot_general"}
_AFFINE_IN_FIRST = {"div", "dynamic_slice", "gather"}  # if the other operands do not depend on x
_CORNERS: dict[str, Callable[..., Any]] = {
    "abs": lambda side, x: (side * x, x),
    "sign": lambda side, x: (side, x),
    "max": lambda side, x, y: ((x + y + side * (x - y)) / 2, x - y),
    "min": lambda side, x, y: ((x + y - side * (x - y)) / 2, x - y),
    **dict.fromkeys(("gt", "ge"), lambda side, x, y: (side > 0, x - y)),
    **dict.fromkeys(("lt", "le"), lambda side, x, y: (side < 0, x - y)),
}
_CONSTANT_BETWEEN = {"sign", "gt", "ge", "lt", "le"}


@dataclass(frozen=True)
class Pieces:
    """A piecewise affine function of x and other arguments."""

    count: int  # of corners
    # `fn(sides, x, *args)` with sides (count,) of -1 and 1: the value, which is affine in x, and
    # (count,) numbers whose signs are the sides if these are consistent.
    fn: Callable[..., tuple[Array, Float[Array, " k"]]]


class _NotAffineError(Exception):
    """The function has an operation that is neither affine nor piecewise affine in x."""


def pieces(fn: Callable[..., Array], x: Array, *args: Any) -> Pieces | None:
    """The affine pieces of a function of x (k,); None if it is not piecewise affine.

    Example:
        >>> found = pieces(lambda x: 2.0 * jnp.abs(x.sum()), jnp.zeros(2))
        >>> print(found.count, *found.fn(jnp.array([-1.0]), jnp.array([1.0, 2.0])))
        1 -6.0 [3.]
    """
    closed = jax.make_jaxpr(fn)(x, *args)
    count = 0

    def on_sides(sides: Array | None, x: Array, *args: Any) -> tuple[Array, Array]:
        nonlocal count
        reading = _Reading(sides)
        values = [*jax.tree.leaves(x), *jax.tree.leaves(args)]
        (out,) = reading.run(closed, values, [True] + [False] * (len(values) - 1))[0]
        count = reading.count
        at_corners = [jnp.ravel(corner) for corner in reading.corners]
        return out, jnp.concatenate([jnp.zeros(0, x.dtype), *at_corners])

    try:
        jax.eval_shape(on_sides, None, x, *args)
    except _NotAffineError:
        return None
    return Pieces(count, on_sides)


class _Reading:
    """One evaluation of a jaxpr, which without sides only counts the corners."""

    def __init__(self, sides: Array | None) -> None:
        self.sides = sides
        self.corners: list[Array] = []
        self.count = 0

    def run(
        self, closed: ClosedJaxpr, values: list[Any], depends: list[bool]
    ) -> tuple[list[Any], list[bool]]:
        """The results of a jaxpr, and flags of those that depend on x."""
        jaxpr = closed.jaxpr
        env = dict(zip(jaxpr.constvars, [(x, False) for x in closed.consts], strict=True))
        env |= dict(zip(jaxpr.invars, zip(values, depends, strict=True), strict=True))

        def read(atom: Any) -> tuple[Any, bool]:
            return (atom.val, False) if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            outs, out_depends = self.evaluated(
                eqn, [value for value, _ in operands], [depend for _, depend in operands]
            )
            env |= dict(zip(eqn.outvars, zip(outs, out_depends, strict=True), strict=True))
        results = [read(atom) for atom in jaxpr.outvars]
        return [value for value, _ in results], [depend for _, depend in results]

    def evaluated(
        self, eqn: JaxprEqn, values: list[Any], depends: list[bool]
    ) -> tuple[list[Any], list[bool]]:
        """The results of one operation, and flags of those that depend on x."""
        content = call_content(eqn)
        if content is not None:
            return self.run(content, values, depends)
        name = eqn.primitive.name
        if name in _CORNERS and any(depends):
            out, corner = _CORNERS[name](self.next_side(values), *values)
            self.corners.append(corner)
            return [out], [name not in _CONSTANT_BETWEEN]
        if any(depends) and not _is_affine(name, depends):
            raise _NotAffineError(name)
        out = eqn.primitive.bind(*values, **eqn.params)
        outs = list(out) if eqn.primitive.multiple_results else [out]
        return outs, [any(depends)] * len(outs)

    def next_side(self, operands: list[Any]) -> Array:
        """The sides of the corners of one operation."""
        shape = jnp.broadcast_shapes(*map(jnp.shape, operands))
        first, self.count = self.count, self.count + math.prod(shape)
        if self.sides is None:
            return jnp.ones(shape, jnp.result_type(*operands))
        return self.sides[first : self.count].reshape(shape)


def _is_affine(name: str, depends: list[bool]) -> bool:
    if name in _BILINEAR:
        return sum(depends) == 1
    if name in _AFFINE_IN_FIRST:
        return not any(depends[1:])
    if name == "select_n":
        return not depends[0]
    return name in _AFFINE
