"""Scalar operations as LLVM instructions on vectors, one number for each lane."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmech.compiler.backends.llvm.builder import Text, splat, type_of, vector
from jaxmech.compiler.backends.llvm.trigonometry import sine_and_cosine
from jaxmech.compiler.ir.graph import Node
from jaxmech.compiler.ir.loops import UnsupportedError

# Called lane by lane from the C library, because LLVM has no vector instructions for them.
_LIBRARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cosh", "erf", "erfc", "exp",
    "exp2", "expm1", "log1p", "sinh", "tanh",
)  # fmt: skip
_LIBRARY_OF_TWO = {"atan2": "atan2", "pow": "pow", "nextafter": "nextafter", "rem": "fmod"}
_INTRINSICS = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil"}
# Without flags: with reassociation the bits could depend on the number of lanes, and `nnan` would
# hide failures.
_FLOAT = {
    "add": "fadd",
    "add_any": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "div": "fdiv",
    "eq": "fcmp oeq",
    "ne": "fcmp une",
    "lt": "fcmp olt",
    "le": "fcmp ole",
    "gt": "fcmp ogt",
    "ge": "fcmp oge",
}
_INTEGER = {
    "add": "add",
    "add_any": "add",
    "sub": "sub",
    "mul": "mul",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "eq": "icmp eq",
    "ne": "icmp ne",
    "lt": "icmp slt",
    "le": "icmp sle",
    "gt": "icmp sgt",
    "ge": "icmp sge",
}
_UNSIGNED = {op: name.replace("icmp s", "icmp u") for op, name in _INTEGER.items()}
_LOGIC = ("and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge")
_BOOLEAN = {op: _UNSIGNED[op] for op in _LOGIC}  # no arithmetic, which would be modulo two
_TABLES = {"f": _FLOAT, "i": _INTEGER, "u": _UNSIGNED, "b": _BOOLEAN}


def instruction(text: Text, node: Node, inputs: Sequence[tuple[str, np.dtype]]) -> str:
    """Write an operation on inputs (names and types); an `UnsupportedError` if there is none.

    All inputs of an elementwise operation have the same type.
    """
    names, dtype = [name for name, _ in inputs], inputs[0][1]
    if node.op == "convert_element_type":
        return _converted(text, names[0], dtype, node.dtype)
    if node.op == "bitcast_convert_type":
        kinds = [type_of(kind, text.lanes) for kind in (dtype, node.dtype)]
        # Signed and unsigned integers have the same type in LLVM.
        return text.line(f"bitcast {kinds[0]} {names[0]} to {kinds[1]}")
    if node.op in ("select_n", "branch"):
        return _chosen(text, names, dtype, node.dtype)
    if node.op == "lookup":
        return text.look_up(np.frombuffer(node.params, node.dtype), names[0], dtype)
    if any(other != dtype for _, other in inputs):
        types = ", ".join(str(other) for _, other in inputs)
        raise UnsupportedError(f"the operation `{node.op}` of different types ({types})")
    kind = type_of(dtype, text.lanes)
    if node.op in _TABLES[dtype.kind]:
        return text.line(f"{_TABLES[dtype.kind][node.op]} {kind} {names[0]}, {names[1]}")
    written = _OTHERS[dtype.kind].get(node.op)
    if written is None:
        raise UnsupportedError(f"the operation `{node.op}` of {dtype}, which has no instruction")
    return written(text, node, dtype, *names)


def _neg(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    return text.line(f"fneg {type_of(dtype, text.lanes)} {x}")


def _round(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    params: Any = node.params
    to_even = int(dict(params)["rounding_method"]) == 1
    return text.intrinsic("roundeven" if to_even else "round", dtype, x)


def _sign(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    kind = type_of(dtype, text.lanes)
    one = text.intrinsic("copysign", dtype, splat(text, 1.0, dtype), x)
    is_signed = text.line(f"fcmp one {kind} {x}, zeroinitializer")
    return text.select(is_signed, one, x, dtype)


def _is_finite(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    # Two operations, and false for NaN because the comparison is ordered.
    size = text.intrinsic("fabs", dtype, x)
    infinite = splat(text, np.inf, dtype)
    return text.line(f"fcmp olt {type_of(dtype, text.lanes)} {size}, {infinite}")


def _rsqrt(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    root = text.intrinsic("sqrt", dtype, x)
    return text.line(f"fdiv {type_of(dtype, text.lanes)} {splat(text, 1.0, dtype)}, {root}")


def _log(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    """Write a logarithm; subnormal numbers are zero for XLA, but not for the C library."""
    found = text.each("log", dtype, x)
    is_zero = text.line(f"fcmp oeq {type_of(dtype, text.lanes)} {x}, zeroinitializer")
    return text.select(is_zero, splat(text, -np.inf, dtype), found, dtype)


def _logistic(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    kind, one = type_of(dtype, text.lanes), splat(text, 1.0, dtype)
    decay = text.each("exp", dtype, text.line(f"fneg {kind} {x}"))
    return text.line(f"fdiv {kind} {one}, {text.line(f'fadd {kind} {one}, {decay}')}")


def _tan(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    """Tangent, on a GPU from sine and cosine: that of libdevice needs double precision."""
    if not text.on_gpu:
        return text.each("tan", dtype, x)
    sine, cosine = sine_and_cosine(text, x, dtype)
    return text.line(f"fdiv {type_of(dtype, text.lanes)} {sine}, {cosine}")


def _not(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    return text.line(f"xor {type_of(dtype, text.lanes)} {x}, {splat(text, -1, dtype)}")


def _negated(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    return text.line(f"sub {type_of(dtype, text.lanes)} zeroinitializer, {x}")


def _size(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    down = text.line(f"icmp slt {type_of(dtype, text.lanes)} {x}, zeroinitializer")
    return text.select(down, _negated(text, node, dtype, x), x, dtype)


def _direction(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    kind, one = type_of(dtype, text.lanes), splat(text, 1, dtype)
    up = text.line(f"icmp sgt {kind} {x}, zeroinitializer")
    down = text.line(f"icmp slt {kind} {x}, zeroinitializer")
    below = text.select(down, splat(text, -1, dtype), "zeroinitializer", dtype)
    return text.select(up, one, below, dtype)


def _is_positive(text: Text, node: Node, dtype: np.dtype, x: str) -> str:
    """Write the sign of an unsigned number."""
    up = text.line(f"icmp ne {type_of(dtype, text.lanes)} {x}, zeroinitializer")
    return text.select(up, splat(text, 1, dtype), "zeroinitializer", dtype)


def _quotient(operation: str) -> "_Written":
    """Integer division as in XLA: x / 0 is -1, x rem 0 is x, and overflow wraps around."""

    def written(text: Text, node: Node, dtype: np.dtype, x: str, y: str) -> str:
        kind, truth = type_of(dtype, text.lanes), vector("i1", text.lanes)
        zero = text.line(f"icmp eq {kind} {y}, zeroinitializer")
        least = splat(text, np.iinfo(dtype).min, dtype)
        lowest = text.line(f"icmp eq {kind} {x}, {least}")
        minus = text.line(f"icmp eq {kind} {y}, {splat(text, -1, dtype)}")
        beyond = text.line(f"and {truth} {lowest}, {minus}")
        unsafe = text.line(f"or {truth} {zero}, {beyond}")
        divisor = text.select(unsafe, splat(text, 1, dtype), y, dtype)
        result = text.line(f"{operation} {kind} {x}, {divisor}")
        return text.select(
            zero, splat(text, -1, dtype) if operation.endswith("div") else x, result, dtype
        )

    return written


def _extreme(comparison: str) -> "_Written":
    def written(text: Text, node: Node, dtype: np.dtype, x: str, y: str) -> str:
        which = text.line(f"{comparison} {type_of(dtype, text.lanes)} {x}, {y}")
        return text.select(which, x, y, dtype)

    return written


def _extreme_or_nan(comparison: str) -> "_Written":
    """Write a maximum or minimum, NaN if either is, as in XLA; intrinsics are slower."""
    among_numbers = _extreme(comparison)

    def written(text: Text, node: Node, dtype: np.dtype, x: str, y: str) -> str:
        found = among_numbers(text, node, dtype, x, y)  # y if either is NaN
        is_nan = text.line(f"fcmp uno {type_of(dtype, text.lanes)} {x}, {x}")
        return text.select(is_nan, x, found, dtype)

    return written


def _intrinsic(name: str) -> "_Written":
    return lambda text, node, dtype, *inputs: text.intrinsic(name, dtype, *inputs)


def _library(name: str) -> "_Written":
    return lambda text, node, dtype, *inputs: text.each(name, dtype, *inputs)


_Written = Callable[..., str]
_of_floats: dict[str, _Written] = {
    **{op: _intrinsic(name) for op, name in _INTRINSICS.items()},
    **{op: _library(op) for op in _LIBRARY},
    **{op: _library(name) for op, name in _LIBRARY_OF_TWO.items()},
    "max": _extreme_or_nan("fcmp ogt"),
    "min": _extreme_or_nan("fcmp olt"),
    "neg": _neg,
    "round": _round,
    "sign": _sign,
    "is_finite": _is_finite,
    "rsqrt": _rsqrt,
    "logistic": _logistic,
    "log": _log,
    "tan": _tan,
}
_of_integers: dict[str, _Written] = {
    "not": _not,
    "neg": _negated,
    "abs": _size,
    "sign": _direction,
    "div": _quotient("sdiv"),
    "rem": _quotient("srem"),
    "max": _extreme("icmp sgt"),
    "min": _extreme("icmp slt"),
}
_of_unsigned: dict[str, _Written] = {
    "not": _not,
    "neg": _negated,
    "sign": _is_positive,
    "div": _quotient("udiv"),
    "rem": _quotient("urem"),
    "max": _extreme("icmp ugt"),
    "min": _extreme("icmp ult"),
}
_of_booleans = {op: _of_unsigned[op] for op in ("not", "max", "min")}
_OTHERS = {"f": _of_floats, "i": _of_integers, "u": _of_unsigned, "b": _of_booleans}


def _converted(text: Text, x: str, old: np.dtype, new: np.dtype) -> str:
    kinds = type_of(old, text.lanes), type_of(new, text.lanes)
    if new.kind == "b":
        zero = f"{kinds[0]} {x}, zeroinitializer"
        return text.line(f"fcmp une {zero}" if old.kind == "f" else f"icmp ne {zero}")
    match old.kind, new.kind:
        case "f", "f":
            how = "fpext" if new.itemsize > old.itemsize else "fptrunc"
        case (("b" | "u"), "f"):
            how = "uitofp"
        case "i", "f":
            how = "sitofp"
        case "f", _:
            return _truncated(text, x, old, new)
        case "b", _:
            how = "zext"
        case _ if new.itemsize == old.itemsize:
            return x
        case _ if new.itemsize < old.itemsize:
            how = "trunc"
        case _:
            how = "zext" if old.kind == "u" else "sext"
    return text.line(f"{how} {kinds[0]} {x} to {kinds[1]}")


def _truncated(text: Text, x: str, old: np.dtype, new: np.dtype) -> str:
    """Conversion to integers as in XLA: it saturates, and NaN becomes zero."""
    kind, many = type_of(old, text.lanes), type_of(new, text.lanes)
    name = f"llvm.fpto{new.kind.replace('i', 's')}i.sat.{text.suffix(new)}.{text.suffix(old)}"
    return text.call(many, name, (kind, x))


def _chosen(text: Text, names: Sequence[str], which: np.dtype, dtype: np.dtype) -> str:
    number, chosen, *others = names
    if which.kind == "b":
        return text.select(number, others[0], chosen, dtype)
    kind = type_of(which, text.lanes)
    for k, other in enumerate(others, start=1):
        is_this = text.line(
            f"icmp {'u' if which.kind == 'u' else 's'}ge {kind} {number}, {splat(text, k, which)}"
        )
        chosen = text.select(is_this, other, chosen, dtype)
    return chosen
