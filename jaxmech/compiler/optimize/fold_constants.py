"""Constant folding: operations on constants are replaced by their value."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph

Fold = Callable[[Graph, str, tuple[int, ...], Any], int]


def fold_constants(
    g: Graph, fn: Callable[..., Any], inputs: tuple[int, ...], dtype: Any
) -> int | None:
    """Fold an operation on constants; None unless all inputs are constants."""
    values = []
    for i in inputs:
        value = g.values[i]
        if value is None:
            return None
        values.append(value)
    with np.errstate(all="ignore"):
        return g.const(fn(*values), dtype)


def constants_only(fn: Callable[..., Any], commutes: bool = False, dtype: Any = None) -> Fold:
    """A fold of operations whose inputs are all constants, and of no others."""

    def fold(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
        inputs = tuple(sorted(inputs)) if commutes else inputs
        out = g.nodes[inputs[0]].dtype if dtype is None else dtype
        constant = fold_constants(g, fn, inputs, out)
        return g.add(op, inputs, params, out) if constant is None else constant

    return fold
