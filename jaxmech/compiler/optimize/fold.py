"""Algebraic folding: operations are simplified by known properties of their inputs.

An operation on constants is a constant; products with zero or one and sums with zero disappear,
which exploits the sparsity of a matrix. Signs move outwards until a sum absorbs them, and
loop-invariant factors are multiplied outside the loop. So a product of several factors may be
rounded in another order, and the sign of a zero may differ; sums keep their order. Comparisons of
counts of booleans become logic.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import INVARIANT, Graph, Node

Fold = Callable[[Graph, str, tuple[int, ...], Any], int]


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


def _constant(g: Graph, fn: Callable[..., Any], inputs: tuple[int, ...], dtype: Any) -> int | None:
    """Fold an operation on constants; None unless all inputs are constants."""
    values = []
    for i in inputs:
        value = g.values[i]
        if value is None:
            return None
        values.append(value)
    with np.errstate(all="ignore"):
        return g.const(fn(*values), dtype)


def _evaluated(
    g: Graph, fn: Callable[..., Any], op: str, inputs: tuple[int, ...], params: Any, dtype: Any
) -> int:  # fmt: skip
    """A constant if all inputs are, else the operation itself."""
    constant = _constant(g, fn, inputs, dtype)
    return g.add(op, inputs, params, dtype) if constant is None else constant


def _constants_only(fn: Callable[..., Any], commutes: bool = False, dtype: Any = None) -> Fold:
    """A fold of operations whose inputs are all constants, and of no others."""

    def fold(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
        inputs = tuple(sorted(inputs)) if commutes else inputs
        out = g.nodes[inputs[0]].dtype if dtype is None else dtype
        return _evaluated(g, fn, op, inputs, params, out)

    return fold


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
    if (constant := _constant(g, np.add, (x, y), dtype)) is not None:
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
    if (constant := _constant(g, np.subtract, (x, y), dtype)) is not None:
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
    return _evaluated(g, np.negative, "neg", (x,), (), node.dtype)


def _mul(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = sorted(inputs)
    dtype = g.nodes[x].dtype
    if (constant := _constant(g, np.multiply, (x, y), dtype)) is not None:
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
    node = g.nodes[inputs[0]]
    inputs = node.inputs if node.op == "neg" else inputs
    return _evaluated(g, np.abs, op, inputs, params, node.dtype)


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
    if (constant := _constant(g, exact, (x, y), dtype)) is not None:
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
    if node.op in ("lookup", "read"):  # their type is not that of the input
        return g.add(node.op, tuple(chosen), node.params, node.dtype)
    return folded(g, node.op, *chosen, params=node.params)


def _convert(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    dtype = np.dtype(params)
    if g.nodes[inputs[0]].dtype == dtype:
        return inputs[0]
    return _evaluated(g, lambda value: converted(value, dtype), op, inputs, params, dtype)


def _bitcast(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    dtype = np.dtype(params)
    if g.nodes[inputs[0]].dtype == dtype:
        return inputs[0]
    return _evaluated(g, lambda value: value.view(dtype), op, inputs, params, dtype)


def _and_or(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    x, y = sorted(inputs)
    dtype = g.nodes[x].dtype
    fn = {"and": np.bitwise_and, "or": np.bitwise_or}[op]
    if (constant := _constant(g, fn, (x, y), dtype)) is not None:
        return constant
    if x == y:
        return x
    for a, b in ((x, y), (y, x)):
        if dtype.kind == "b" and g.values[a] is not None:
            return a if bool(g.values[a]) == (op == "or") else b
    return g.add(op, (x, y), (), dtype)


def _not(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    (x,) = inputs
    if g.nodes[x].op == "not":
        return g.nodes[x].inputs[0]
    return _evaluated(g, np.invert, op, inputs, params, g.nodes[x].dtype)


def _branch(g: Graph, op: str, inputs: tuple[int, ...], params: Any) -> int:
    """Fold a branch: its inputs are the condition, the usual value and the rare one."""
    condition, usual, rare = inputs
    if g.values[condition] is not None:
        return rare if g.values[condition] else usual
    return usual if usual == rare else g.add(op, inputs, params, g.nodes[usual].dtype)


def _comparison(fn: Callable[..., Any], commutes: bool = False) -> Fold:
    """The fold of a comparison; a count of booleans becomes an `or` or `and` where possible."""
    otherwise = _constants_only(fn, commutes, bool)

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
    return reduce(lambda x, y: _and_or(g, op, (x, y), ()), flags)


def _boolean(g: Graph, condition: int, yes: bool, no: bool) -> int:
    """The boolean that is `yes` where another one holds, and `no` elsewhere."""
    if yes == no:
        return g.const(yes, bool)
    return condition if yes else _not(g, "not", (condition,), ())


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
    "branch": _branch,
    "and": _and_or,
    "or": _and_or,
    "not": _not,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "eq": _comparison(np.equal, commutes=True),
    "ne": _comparison(np.not_equal, commutes=True),
    "lt": _comparison(np.less),
    "le": _comparison(np.less_equal),
    "gt": _comparison(np.greater),
    "ge": _comparison(np.greater_equal),
    "max": _constants_only(np.maximum, commutes=True),
    "min": _constants_only(np.minimum, commutes=True),
    "rem": _constants_only(remainder),
    "abs": _abs,
    "sign": _constants_only(np.sign),
    "sqrt": _constants_only(np.sqrt),
    "exp": _constants_only(np.exp),
    "log": _constants_only(np.log),
    "sin": _constants_only(np.sin),
    "cos": _constants_only(np.cos),
    "tan": _constants_only(np.tan),
    "tanh": _constants_only(np.tanh),
    "atan2": _constants_only(np.arctan2),
    "pow": _constants_only(np.power),
    "floor": _constants_only(np.floor),
    "ceil": _constants_only(np.ceil),
    "is_finite": _constants_only(np.isfinite, dtype=bool),
}
