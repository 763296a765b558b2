"""Operations on scalars, folded: what is known of the inputs spares an operation or makes another.

An operation on constants is a constant; a product with zero or one and a sum with zero are gone, so
the sparsity of a matrix comes out by itself. Signs move outwards until a sum takes them, and what
does not change in a loop is multiplied beforehand. So a product of several factors may be rounded
in another order, and the sign of a zero may differ; sums keep their order.
"""

from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.optimize.constants import Fold, evaluated, plain
from jaxmech.compiler.optimize.fold_booleans import branch, compared, junction, negation

_KNOWN = {"const", "capture"}  # before a loop begins


def folded(g: Graph, op: str, *inputs: int, params: Any = ()) -> int:
    """The result of an operation, folded where its inputs allow it."""
    g.requested += 1
    key = op, inputs, params
    known = g.folded.get(key)
    if known is None:
        fold = FOLDS.get(op)
        if fold is not None:
            known = fold(g, op, inputs, params)
        else:
            known = g.add(op, inputs, params, g.nodes[inputs[0]].dtype)
        g.folded[key] = known
    return known


def _is(g: Graph, number: int, value: int) -> bool:
    known = g.values[number]
    return known is not None and bool(known == value)


def _add(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = sorted(inputs)
    if _is(g, x, 0):
        return y
    if _is(g, y, 0):
        return x
    dtype = g.nodes[x].dtype
    if (known := evaluated(g, np.add, (x, y), dtype)) is not None:
        return known
    for a, b in ((x, y), (y, x)):
        if g.nodes[b].op == "neg":
            return _sub(g, "sub", (a, g.nodes[b].inputs[0]), ())
    if x == y and dtype.kind == "f":
        return _mul(g, "mul", (x, g.const(2, dtype)), ())
    return g.add("add", (x, y), (), dtype)


def _sub(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = inputs
    if _is(g, y, 0):
        return x
    if _is(g, x, 0):
        return _neg(g, "neg", (y,), ())
    dtype = g.nodes[x].dtype
    if (known := evaluated(g, np.subtract, (x, y), dtype)) is not None:
        return known
    if g.nodes[y].op == "neg":
        return _add(g, "add", (x, g.nodes[y].inputs[0]), ())
    if g.nodes[x].op == "neg":
        return _neg(g, "neg", (_add(g, "add", (g.nodes[x].inputs[0], y), ()),), ())
    if (reverse := g.known(Node("sub", (y, x), (), dtype))) is not None:
        return g.add("neg", (reverse,), (), dtype)
    return g.add("sub", (x, y), (), dtype)


def _neg(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,) = inputs
    node = g.nodes[x]
    if node.op == "neg":
        return node.inputs[0]
    known = evaluated(g, np.negative, (x,), node.dtype)
    return g.add("neg", (x,), (), node.dtype) if known is None else known


def _mul(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = sorted(inputs)
    dtype = g.nodes[x].dtype
    if (known := evaluated(g, np.multiply, (x, y), dtype)) is not None:
        return known
    for a, b in ((x, y), (y, x)):
        factor = g.values[a]
        if factor is not None:
            if factor == 0 and not g.doubtful[b]:
                return _zero(g, "mul", b)
            if factor == 1:
                return b
            if factor == -1:
                return _neg(g, "neg", (b,), ())
        if g.nodes[a].op == "neg":
            return _neg(g, "neg", (_mul(g, "mul", (g.nodes[a].inputs[0], b), ()),), ())
        if (product := _one_factor(g, a, b)) is not None:
            return product
    return g.add("mul", (x, y), (), dtype)


def _zero(g: Graph, op: str, other: int) -> int:
    """A product of zero or a quotient of zero, folded; `zeros.py` looks at it again."""
    dtype = g.nodes[other].dtype
    if dtype.kind == "f":
        g.zeros[op, other] = None
    return g.const(0, dtype)


def _one_factor(g: Graph, factor: int, number: int) -> int | None:
    """A known factor times the product of another and a number, as one factor times the number.

    Two factors that only a run knows are left alone in float32, whose range is small, and so are
    constants that are very large or small.
    """
    node = g.nodes[number]
    if node.op != "mul" or node.dtype.kind != "f" or g.nodes[factor].op not in _KNOWN:
        return None
    for other, rest in (node.inputs, node.inputs[::-1]):
        if g.nodes[other].op in _KNOWN and g.nodes[rest].op not in _KNOWN:
            values = [g.values[k] for k in (factor, other) if g.values[k] is not None]
            is_safe = all(2**-30 < abs(value) < 2**30 for value in values)
            if is_safe and (values or node.dtype == np.float64):
                return _mul(g, "mul", (_mul(g, "mul", (factor, other), ()), rest), ())
    return None


def _abs(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,) = inputs
    return plain(np.abs)(g, op, g.nodes[x].inputs if g.nodes[x].op == "neg" else inputs, params)


def _square(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    return _mul(g, "mul", (*inputs, *inputs), ())


def _one_minus_square(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    one = g.const(1, g.nodes[inputs[0]].dtype)
    return _sub(g, "sub", (one, _square(g, op, inputs, ())), ())


def _div(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = inputs
    dtype = g.nodes[x].dtype
    floating = np.issubdtype(dtype, np.floating)
    quotient = np.divide if floating else lambda x, y: np.trunc(x / y)
    if (known := evaluated(g, quotient, (x, y), dtype)) is not None:
        return known
    if _is(g, x, 0) and not g.doubtful[y]:
        return _zero(g, "div", y)
    if _is(g, y, 1):
        return x
    if g.nodes[x].op == "neg":
        return _neg(g, "neg", (_div(g, "div", (g.nodes[x].inputs[0], y), ()),), ())
    divisor = g.values[y]
    if floating and divisor is not None and abs(np.frexp(divisor)[0]) == 0.5:
        return _mul(g, "mul", (x, g.const(1 / divisor, dtype)), ())  # a power of two: exact
    return g.add("div", (x, y), (), dtype)


def _integer_pow(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """An integer power as multiplications, by squaring."""
    (x,), exponent = inputs, dict(params)["y"]
    if exponent < 0:
        inverse = _integer_pow(g, op, inputs, (("y", -exponent),))
        return _div(g, "div", (g.const(1, g.nodes[x].dtype), inverse), ())
    result, square = g.const(1, g.nodes[x].dtype), x
    while exponent:
        if exponent & 1:
            result = _mul(g, "mul", (result, square), ())
        exponent >>= 1
        if exponent:
            square = _mul(g, "mul", (square, square), ())
    return result


def _select(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    which, *cases = inputs
    if g.values[which] is not None:
        return cases[int(g.values[which])]
    cases = [_under(g, which, k, case) for k, case in enumerate(cases)]
    if len(set(cases)) == 1:
        return cases[0]
    return g.add("select_n", (which, *cases), (), g.nodes[cases[0]].dtype)


def _under(g: Graph, which: int, value: int, number: int) -> int:
    """A node where `which` is known to have a value: selects by it, one deep, make their choice."""
    node = g.nodes[number]
    if node.op == "select_n" and node.inputs[0] == which:
        return node.inputs[1 + value]
    chosen = [
        g.nodes[i].inputs[1 + value]
        if g.nodes[i].op == "select_n" and g.nodes[i].inputs[0] == which
        else i
        for i in node.inputs
    ]
    return (
        number if tuple(chosen) == node.inputs else folded(g, node.op, *chosen, params=node.params)
    )


def _convert(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,), dtype = inputs, np.dtype(params)
    if g.nodes[x].dtype == dtype:
        return x
    known = evaluated(g, lambda value: np.asarray(value).astype(dtype), (x,), dtype)
    return g.add(op, (x,), params, dtype) if known is None else known


FOLDS: dict[str, Fold] = {
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "neg": _neg,
    "mul": _mul,
    "square": _square,
    "one_minus_square": _one_minus_square,
    "div": _div,
    "integer_pow": _integer_pow,
    "select_n": _select,
    "branch": branch,
    "and": junction,
    "or": junction,
    "not": negation,
    "convert_element_type": _convert,
    "eq": compared(np.equal, commutes=True),
    "ne": compared(np.not_equal, commutes=True),
    "lt": compared(np.less),
    "le": compared(np.less_equal),
    "gt": compared(np.greater),
    "ge": compared(np.greater_equal),
    "max": plain(np.maximum, commutes=True),
    "min": plain(np.minimum, commutes=True),
    "abs": _abs,
    "sign": plain(np.sign),
    "sqrt": plain(np.sqrt),
    "exp": plain(np.exp),
    "log": plain(np.log),
    "sin": plain(np.sin),
    "cos": plain(np.cos),
    "tan": plain(np.tan),
    "tanh": plain(np.tanh),
    "atan2": plain(np.arctan2),
    "pow": plain(np.power),
    "floor": plain(np.floor),
    "ceil": plain(np.ceil),
    "is_finite": plain(np.isfinite, dtype=bool),
}
