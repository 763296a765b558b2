"""Path conditions: the booleans that hold where a value is used, and the signs that they imply.

A value that only one side of a select uses matters only under the condition of that side.
"""

from collections.abc import Iterator
from typing import Any

from jaxmech.compiler.ir.graph import Graph

Condition = frozenset[
    tuple[int, bool]
]  # conjunction: numbers of booleans with their required values
ALWAYS: Condition = frozenset()

SELECTS = ("select_n", "branch")
_MOST_BOOLEANS, _MOST_CONDITIONS = 4, 12  # larger ones are not followed
_DEEPEST = 40  # operations through which a sign is traced
_SIGNED = ("add", "mul", "div", "max", "min", "sqrt", "rsqrt", "convert_element_type")


def alternatives(g: Graph, number: int) -> list[tuple[int, Condition | None]]:
    """The values of a select with their conditions; empty for other nodes.

    The condition is None where an integer selects.
    """
    node = g.nodes[number]
    if node.op not in SELECTS:
        return []
    selector, *values = node.inputs
    if g.nodes[selector].dtype != bool:
        return [(value, None) for value in values]
    return [
        (value, frozenset([_without_not(g, selector, bool(k))])) for k, value in enumerate(values)
    ]


def literal(g: Graph, boolean: int, *, holds: bool) -> Condition:
    """The condition that a boolean has a value."""
    return frozenset([_without_not(g, boolean, holds)])


def _without_not(g: Graph, boolean: int, holds: bool) -> tuple[int, bool]:
    while g.nodes[boolean].op == "not":
        (boolean,), holds = g.nodes[boolean].inputs, not holds
    return boolean, holds


def conjunction(condition: Condition, added: Condition | None) -> Condition:
    """Both conditions, or the first alone where the second is unknown or too many are joined."""
    return condition if added is None or len(condition) >= _MOST_BOOLEANS else condition | added


def add_condition(conditions: set[Condition], condition: Condition) -> None:
    """Add to a disjunction; two conditions that differ in the value of one boolean become one."""
    if (
        len(condition) > _MOST_BOOLEANS
        or (condition and len(conditions) >= _MOST_CONDITIONS)  # `ALWAYS` replaces all others
        or any(k <= condition for k in conditions)
    ):
        return
    for boolean, holds in condition:
        weaker = condition - {(boolean, holds)}
        if weaker | {(boolean, not holds)} in conditions:
            add_condition(conditions, weaker)
            return
    for stronger in [k for k in conditions if condition < k]:
        conditions.remove(stronger)
    conditions.add(condition)


def is_positive(
    g: Graph, number: int, condition: Condition = ALWAYS, or_zero: bool = False
) -> bool:
    """Whether a number is known to be positive or NaN under a condition."""
    return _sign(g, number, condition, _DEEPEST, {}) >= (1 if or_zero else 2)


def is_finite(g: Graph, number: int, condition: Condition) -> bool:
    """Whether a condition implies that a number is neither NaN nor infinite."""
    parts = (part for literal in condition for part in _parts(g, *literal))
    return any(
        holds and g.nodes[i].op == "is_finite" and g.nodes[i].inputs[0] == number
        for i, holds in parts
    )


def _parts(g: Graph, boolean: int, holds: bool) -> Iterator[tuple[int, bool]]:
    """The booleans with their values of which a boolean with its value is the conjunction."""
    # A stack of its own: a condition on an array of a thousand numbers is a chain of as many.
    left = [(boolean, holds)]
    while left:
        boolean, holds = _without_not(g, *left.pop())
        node = g.nodes[boolean]
        if node.op == ("and" if holds else "or"):
            left += [(i, holds) for i in reversed(node.inputs)]
        else:
            yield boolean, holds


def _sign(
    g: Graph, number: int, condition: Condition, depth: int, known: dict[Any, int]
) -> int:  # fmt: skip
    """The sign of a number under a condition, traced through at most `depth` operations.

    2 if positive or NaN, 1 if not negative or NaN, 0 if nothing is known.
    """
    key = g, number, condition
    if key not in known:
        known[key] = _computed_sign(g, number, condition, depth, known)
    return known[key]


def _computed_sign(
    g: Graph, number: int, condition: Condition, depth: int, known: dict[Any, int]
) -> int:  # fmt: skip
    value, node = g.values[number], g.nodes[number]
    if value is not None:
        return 2 if value > 0 else int(value == 0)
    if depth == 0 or node.dtype.kind != "f":
        return 0
    for boolean, holds in (part for literal in condition for part in _parts(g, *literal)):
        # It implies that the number exceeds a non-negative one, or is NaN, which is consistent with
        # any false comparison. A loop may test a number of the graph around it.
        test = g.nodes[boolean]
        if test.op in ("gt", "ge", "lt", "le"):
            larger, smaller = test.inputs if (test.op[0] == "g") == holds else test.inputs[::-1]
            least = 1 if (test.op[1] == "t") == holds else 2
            if larger == number and _sign(g, smaller, ALWAYS, depth - 1, known) >= least:
                return 2
    if node.op == "capture":
        assert g.outer is not None
        return _sign(g.outer, node.params, ALWAYS, depth - 1, known)
    if values := alternatives(g, number):
        return min(
            _sign(g, i, conjunction(condition, branch_condition), depth - 1, known)
            for i, branch_condition in values
        )
    if node.op in ("exp", "exp2"):
        return 2
    if node.op == "abs" or (node.op == "mul" and node.inputs[0] == node.inputs[1]):
        return 1
    if node.op not in _SIGNED:
        return 0
    signs = [_sign(g, i, condition, depth - 1, known) for i in node.inputs]
    # One positive summand is enough if none is negative; a product needs all factors positive.
    return max(signs) if node.op == "max" or (node.op == "add" and min(signs)) else min(signs)
