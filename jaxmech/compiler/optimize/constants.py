"""What every fold can do: an operation on constants is a constant."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph

Fold = Callable[[Graph, str, tuple[int, ...], Any], int]


def evaluated(g: Graph, fn: Callable[..., Any], inputs: tuple[int, ...], dtype: Any) -> int | None:
    """The constant that an operation on constants is; None where an input is no constant."""
    values = []
    for i in inputs:
        value = g.values[i]
        if value is None:
            return None
        values.append(value)
    with np.errstate(all="ignore"):
        return g.const(fn(*values), dtype)


def plain(fn: Callable[..., Any], commutes: bool = False, dtype: Any = None) -> Fold:
    """The fold of an operation of which nothing is known but its value on constants."""

    def fold(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
        inputs = tuple(sorted(inputs)) if commutes else inputs
        out = g.nodes[inputs[0]].dtype if dtype is None else dtype
        known = evaluated(g, fn, inputs, out)
        return g.add(op, inputs, params, out) if known is None else known

    return fold
