"""Folds of truth values: their logic, comparisons that come down to it, and branches."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.optimize.constants import Fold, evaluated, plain


def junction(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """The fold of `and` and `or`."""
    x, y = sorted(inputs)
    dtype = g.nodes[x].dtype
    fn = {"and": np.bitwise_and, "or": np.bitwise_or}[op]
    if (known := evaluated(g, fn, (x, y), dtype)) is not None:
        return known
    if x == y:
        return x
    for a, b in ((x, y), (y, x)):
        if dtype.kind == "b" and g.values[a] is not None:
            return a if bool(g.values[a]) == (op == "or") else b
    return g.add(op, (x, y), (), dtype)


def negation(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """The fold of `not`."""
    (x,) = inputs
    if g.nodes[x].op == "not":
        return g.nodes[x].inputs[0]
    known = evaluated(g, np.invert, (x,), g.nodes[x].dtype)
    return g.add(op, inputs, params, g.nodes[x].dtype) if known is None else known


def branch(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """The fold of a branch: whether the case holds, the usual value, that of the case."""
    which, usual, rare = inputs
    if g.values[which] is not None:
        return rare if g.values[which] else usual
    return usual if usual == rare else g.add(op, inputs, params, g.nodes[usual].dtype)


def compared(fn: Callable[..., Any], commutes: bool = False) -> Fold:
    """The fold of a comparison; a count of truths may be as large as it can be, or zero."""
    otherwise = plain(fn, commutes, bool)

    def fold(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
        for place, x in enumerate(inputs):
            limit, truths = g.values[inputs[1 - place]], _counted(g, x)
            if limit is not None and truths:
                counts = range(len(truths) + 1)
                none, *some = (bool(fn(k, limit) if place == 0 else fn(limit, k)) for k in counts)
                *few, every = none, *some
                if len(set(some)) == 1:
                    return _either(g, _joint(g, "or", truths), some[0], none)
                if len(set(few)) == 1:
                    return _either(g, _joint(g, "and", truths), every, none)
        return otherwise(g, op, inputs, params)

    return fold


def _counted(g: Graph, number: int) -> list[int]:
    """The truth values of which a node is the sum; none if it is something else, or a multiple."""
    truths, work, seen = list[int](), [number], set[int]()
    while work:
        number = work.pop()
        if number in seen:
            return []
        seen.add(number)
        node = g.nodes[number]
        if node.op == "convert_element_type" and g.nodes[node.inputs[0]].dtype == bool:
            truths += node.inputs
        elif node.op == "add":
            work += node.inputs
        else:
            return []
    return truths


def _joint(g: Graph, op: str, truths: list[int]) -> int:
    return reduce(lambda x, y: junction(g, op, (x, y), ()), truths)


def _either(g: Graph, which: int, yes: bool, no: bool) -> int:
    """A truth value made of another one."""
    return g.const(yes, bool) if yes == no else which if yes else negation(g, "not", (which,), ())
