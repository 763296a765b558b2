"""Boolean folding: logic, comparisons that reduce to logic, and branches."""

from collections.abc import Callable
from functools import reduce
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


def fold_and_or(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """Fold `and` and `or`, bitwise for integers."""
    x, y = sorted(inputs)
    dtype = g.nodes[x].dtype
    fn = {"and": np.bitwise_and, "or": np.bitwise_or}[op]
    if (constant := fold_constants(g, fn, (x, y), dtype)) is not None:
        return constant
    if x == y:
        return x
    for a, b in ((x, y), (y, x)):
        if dtype.kind == "b" and g.values[a] is not None:
            return a if bool(g.values[a]) == (op == "or") else b
    return g.add(op, (x, y), (), dtype)


def fold_not(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """Fold `not`."""
    (x,) = inputs
    if g.nodes[x].op == "not":
        return g.nodes[x].inputs[0]
    constant = fold_constants(g, np.invert, (x,), g.nodes[x].dtype)
    return g.add(op, inputs, params, g.nodes[x].dtype) if constant is None else constant


def fold_branch(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """Fold a branch: its inputs are the condition, the usual value and the rare one."""
    condition, usual, rare = inputs
    if g.values[condition] is not None:
        return rare if g.values[condition] else usual
    return usual if usual == rare else g.add(op, inputs, params, g.nodes[usual].dtype)


def comparison(fn: Callable[..., Any], commutes: bool = False) -> Fold:
    """The fold of a comparison; a count of booleans becomes an `or` or `and` where possible."""
    otherwise = constants_only(fn, commutes, bool)

    def fold(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
        for position, x in enumerate(inputs):
            limit, flags = g.values[inputs[1 - position]], _summed_booleans(g, x)
            if limit is not None and flags and _can_count(len(flags), g.nodes[x].dtype):
                counts = range(len(flags) + 1)
                # The outcome for every possible count. If all but zero agree, the comparison tests
                # whether any of them holds, and if all but the full count agree, whether every one
                # does.
                at_zero, *at_counts = (
                    bool(fn(k, limit) if position == 0 else fn(limit, k)) for k in counts
                )
                *at_fewer, at_most = at_zero, *at_counts
                if len(set(at_counts)) == 1:
                    return _boolean(g, _joined(g, "or", flags), at_counts[0], at_zero)
                if len(set(at_fewer)) == 1:
                    return _boolean(g, _joined(g, "and", flags), at_most, at_zero)
        return otherwise(g, op, inputs, params)

    return fold


def _summed_booleans(g: Graph, number: int) -> list[int]:
    """The booleans that a node is the sum of; empty if it is no such sum, or one occurs twice."""
    flags, work, visited = list[int](), [number], set[int]()
    while work:
        number = work.pop()
        if number in visited:
            return []
        visited.add(number)
        node = g.nodes[number]
        if node.op == "convert_element_type" and g.nodes[node.inputs[0]].dtype == bool:
            flags += node.inputs
        elif node.op == "add":
            work += node.inputs
        else:
            return []
    return flags


def _can_count(highest: int, dtype: np.dtype) -> bool:
    """Whether sums of booleans in this type are exact."""
    return highest <= (2**24 if dtype.kind == "f" else np.iinfo(dtype).max)


def _joined(g: Graph, op: str, flags: list[int]) -> int:
    return reduce(lambda x, y: fold_and_or(g, op, (x, y), ()), flags)


def _boolean(g: Graph, condition: int, yes: bool, no: bool) -> int:
    """The boolean that is `yes` where another one holds, and `no` elsewhere."""
    return (
        g.const(yes, bool)
        if yes == no
        else condition
        if yes
        else fold_not(g, "not", (condition,), ())
    )
