"""Algebraic folding: operations are simplified by known properties of their inputs.

An operation on constants is a constant; products with zero or one and sums with zero disappear,
which exploits the sparsity of a matrix. Signs move outwards until a sum absorbs them, and
loop-invariant factors are multiplied outside the loop. So a product of several factors may be
rounded in another order, and the sign of a zero may differ; sums keep their order.
"""

from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import INVARIANT, Graph, Node
from jaxmech.compiler.optimize.fold_booleans import (
    Fold,
    comparison,
    constants_only,
    fold_and_or,
    fold_branch,
    fold_constants,
    fold_not,
)


def wrapped(value: int, dtype: np.dtype) -> Any:
    """An integer of any size, modulo the size of a type."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = value % 2 ** (8 * dtype.itemsize)
    return np.asarray(bits, unsigned).view(dtype)[()]


def quotient(x: Any, y: Any) -> Any:
    """x / y, rounded towards zero."""
    dividend, divisor = int(x), int(y)
    if divisor == 0:
        return wrapped(-1, x.dtype)
    size = abs(dividend) // abs(divisor)
    return wrapped(size if (dividend < 0) == (divisor < 0) else -size, x.dtype)


def remainder(x: Any, y: Any) -> Any:
    """The remainder of x / y, with the sign of x."""
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    dividend, divisor = int(x), int(y)
    if divisor == 0:
        return x
    size = abs(dividend) % abs(divisor)
    return wrapped(-size if dividend < 0 else size, x.dtype)


def converted(value: Any, dtype: np.dtype) -> Any:
    """A number as another type."""
    if value.dtype.kind != "f" or dtype.kind not in "iu":
        return value.astype(dtype)
    if np.isnan(value):
        return dtype.type(0)
    limits = np.iinfo(dtype)
    if value >= limits.max:
        return dtype.type(limits.max)
    return dtype.type(limits.min if value <= limits.min else int(value))


def folded(g: Graph, op: str, *inputs: int, params: Any = ()) -> int:
    """The node of an operation, folded where its inputs allow it."""
    g.requested += 1
    key = op, inputs, params
    number = g.folded.get(key)
    if number is None:
        fold = FOLDS.get(op)
        if fold is not None:
            number = fold(g, op, inputs, params)
        else:
            number = g.add(op, inputs, params, g.nodes[inputs[0]].dtype)
        g.folded[key] = number
    return number


# Not elementwise: the type of the result is not that of the input.
_READS = ("lookup", "read")


def _is(g: Graph, number: int, value: int) -> bool:
    constant = g.values[number]
    return constant is not None and bool(constant == value)


def _add(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    # Sums of two commute to the bit, so sorting finds equal nodes; no sum is reassociated.
    x, y = sorted(inputs)
    if _is(g, x, 0):
        return y
    if _is(g, y, 0):
        return x
    dtype = g.nodes[x].dtype
    if (constant := fold_constants(g, np.add, (x, y), dtype)) is not None:
        return constant
    for a, b in ((x, y), (y, x)):
        if g.nodes[b].op == "neg":
            return _sub(g, "sub", (a, g.nodes[b].inputs[0]), ())
    # x + x comes from the derivative of x^2 / 2: as a product, its 2 cancels the 1/2.
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
    if (constant := fold_constants(g, np.subtract, (x, y), dtype)) is not None:
        return constant
    if g.nodes[y].op == "neg":
        return _add(g, "add", (x, g.nodes[y].inputs[0]), ())
    if g.nodes[x].op == "neg":
        return _neg(g, "neg", (_add(g, "add", (g.nodes[x].inputs[0], y), ()),), ())
    # The derivative of a distance has both x - y and y - x; one is the other
    # with a sign, which moves outwards until a sum absorbs it.
    if (reverse := g.find(Node("sub", (y, x), (), dtype))) is not None:
        return g.add("neg", (reverse,), (), dtype)
    return g.add("sub", (x, y), (), dtype)


def _neg(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,) = inputs
    node = g.nodes[x]
    if node.op == "neg":
        return node.inputs[0]
    constant = fold_constants(g, np.negative, (x,), node.dtype)
    return g.add("neg", (x,), (), node.dtype) if constant is None else constant


def _mul(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = sorted(inputs)
    dtype = g.nodes[x].dtype
    if (constant := fold_constants(g, np.multiply, (x, y), dtype)) is not None:
        return constant
    for a, b in ((x, y), (y, x)):
        factor = g.values[a]
        if factor is not None:
            if factor == 0 and not g.is_exposed(b):
                return _zero(g, "mul", b)
            if factor == 1:
                return b
            if factor == -1:
                return _neg(g, "neg", (b,), ())
        if g.nodes[a].op == "neg":
            return _neg(g, "neg", (_mul(g, "mul", (g.nodes[a].inputs[0], b), ()),), ())
        if (product := _joined_factors(g, a, b)) is not None:
            return product
    return g.add("mul", (x, y), (), dtype)


def _zero(g: Graph, op: str, operand: int) -> int:
    """Fold a product with zero or a quotient of zero; `fold_zeros` reviews it."""
    dtype = g.nodes[operand].dtype
    g.add_zeros([(op, operand)])
    return g.const(0, dtype)


def _joined_factors(g: Graph, factor: int, number: int) -> int | None:
    """Rewrite a (b x) as (a b) x where a and b are loop-invariant; None if impossible.

    The product a b must not overflow or underflow: constants are checked, and factors of unknown
    size are joined in float64 only.
    """
    node = g.nodes[number]
    if node.op != "mul" or node.dtype.kind != "f" or g.nodes[factor].op not in INVARIANT:
        return None
    for inner, varying in (node.inputs, node.inputs[::-1]):
        if g.nodes[inner].op in INVARIANT and g.nodes[varying].op not in INVARIANT:
            values = [g.values[k] for k in (factor, inner) if g.values[k] is not None]
            is_safe = all(2**-30 < abs(value) < 2**30 for value in values)
            if is_safe and (values or node.dtype == np.float64):
                return _mul(g, "mul", (_mul(g, "mul", (factor, inner), ()), varying), ())
    return None


def _abs(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,) = inputs
    return constants_only(np.abs)(
        g, op, g.nodes[x].inputs if g.nodes[x].op == "neg" else inputs, params
    )


def _square(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    return _mul(g, "mul", (*inputs, *inputs), ())


def _one_minus_square(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    unit = g.const(1, g.nodes[inputs[0]].dtype)
    return _sub(g, "sub", (unit, _square(g, op, inputs, ())), ())


def _div(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = inputs
    dtype = g.nodes[x].dtype
    floating = dtype.kind == "f"
    exact = np.divide if floating else quotient
    if (constant := fold_constants(g, exact, (x, y), dtype)) is not None:
        return constant
    if _is(g, y, 1):
        return x
    if not floating:  # none of what follows holds for zero divisors or for unsigned numbers
        return g.add("div", (x, y), (), dtype)
    if _is(g, x, 0) and not g.is_exposed(y):
        return _zero(g, "div", y)
    if g.nodes[x].op == "neg":
        return _neg(g, "neg", (_div(g, "div", (g.nodes[x].inputs[0], y), ()),), ())
    if (inverse := _exact_inverse(g.values[y], dtype)) is not None:
        return _mul(g, "mul", (x, g.const(inverse, dtype)), ())
    return g.add("div", (x, y), (), dtype)


def _exact_inverse(divisor: Any, dtype: np.dtype) -> Any:
    """The inverse of a power of two, unless it or the divisor counts as zero; else None."""
    if divisor is None or abs(np.frexp(divisor)[0]) != 0.5:
        return None
    limits = np.finfo(dtype)
    is_normal = limits.tiny <= abs(divisor) <= 1 / limits.tiny
    return 1 / divisor if is_normal else None


def _integer_pow(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """Fold an integer power by repeated squaring."""
    (x,), exponent = inputs, dict(params)["y"]
    if exponent < 0:
        # As JAX lowers it: one division at the end.
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
    condition, *cases = inputs
    if g.values[condition] is not None:
        return cases[min(max(int(g.values[condition]), 0), len(cases) - 1)]
    if g.nodes[condition].dtype == bool:
        cases = [_under(g, condition, k, case) for k, case in enumerate(cases)]
    if len(set(cases)) == 1:
        return cases[0]
    return g.add("select_n", (condition, *cases), (), g.nodes[cases[0]].dtype)


def _under(g: Graph, condition: int, value: int, number: int) -> int:
    """A node given the value of a boolean, which resolves selects by it and in its inputs."""
    node = g.nodes[number]
    if node.op == "select_n" and node.inputs[0] == condition:
        return node.inputs[1 + value]
    chosen = [
        g.nodes[i].inputs[1 + value]
        if g.nodes[i].op == "select_n" and g.nodes[i].inputs[0] == condition
        else i
        for i in node.inputs
    ]
    if tuple(chosen) == node.inputs:
        return number
    if node.op in _READS:
        return g.add(node.op, tuple(chosen), node.params, node.dtype)
    return folded(g, node.op, *chosen, params=node.params)


def _convert(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,), dtype = inputs, np.dtype(params)
    if g.nodes[x].dtype == dtype:
        return x
    constant = fold_constants(g, lambda value: converted(value, dtype), (x,), dtype)
    return g.add(op, (x,), params, dtype) if constant is None else constant


def _bitcast(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,), dtype = inputs, np.dtype(params)
    if g.nodes[x].dtype == dtype:
        return x
    kind = g.nodes[x].dtype
    constant = fold_constants(g, lambda value: np.asarray(value, kind).view(dtype), (x,), dtype)
    return g.add(op, (x,), params, dtype) if constant is None else constant


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
    "branch": fold_branch,
    "and": fold_and_or,
    "or": fold_and_or,
    "not": fold_not,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "eq": comparison(np.equal, commutes=True),
    "ne": comparison(np.not_equal, commutes=True),
    "lt": comparison(np.less),
    "le": comparison(np.less_equal),
    "gt": comparison(np.greater),
    "ge": comparison(np.greater_equal),
    "max": constants_only(np.maximum, commutes=True),
    "min": constants_only(np.minimum, commutes=True),
    "rem": constants_only(remainder),
    "abs": _abs,
    "sign": constants_only(np.sign),
    "sqrt": constants_only(np.sqrt),
    "exp": constants_only(np.exp),
    "log": constants_only(np.log),
    "sin": constants_only(np.sin),
    "cos": constants_only(np.cos),
    "tan": constants_only(np.tan),
    "tanh": constants_only(np.tanh),
    "atan2": constants_only(np.arctan2),
    "pow": constants_only(np.power),
    "floor": constants_only(np.floor),
    "ceil": constants_only(np.ceil),
    "is_finite": constants_only(np.isfinite, dtype=bool),
}
