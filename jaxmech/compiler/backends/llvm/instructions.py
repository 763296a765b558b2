"""Scalar operations as LLVM instructions on vectors, one number for each lane."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder, splat, type_of, vector
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


def instruction(
    builder: AssemblyBuilder, node: Node, inputs: Sequence[tuple[str, np.dtype]]
) -> str:
    """Write an operation on inputs (names and types); an `UnsupportedError` if there is none.

    All inputs of an elementwise operation have the same type.
    """
    names, dtype = [name for name, _ in inputs], inputs[0][1]
    if node.op == "convert_element_type":
        return _converted(builder, names[0], dtype, node.dtype)
    if node.op == "bitcast_convert_type":
        kinds = [type_of(kind, builder.lanes) for kind in (dtype, node.dtype)]
        # Signed and unsigned integers have the same type in LLVM.
        return builder.line(f"bitcast {kinds[0]} {names[0]} to {kinds[1]}")
    if node.op in ("select_n", "branch"):
        return _chosen(builder, names, dtype, node.dtype)
    if node.op == "lookup":
        return builder.look_up(np.frombuffer(node.params, node.dtype), names[0], dtype)
    if any(input_dtype != dtype for _, input_dtype in inputs):
        types = ", ".join(str(input_dtype) for _, input_dtype in inputs)
        raise UnsupportedError(f"the operation `{node.op}` of different types ({types})")
    kind = type_of(dtype, builder.lanes)
    if node.op in _TABLES[dtype.kind]:
        return builder.line(f"{_TABLES[dtype.kind][node.op]} {kind} {names[0]}, {names[1]}")
    written = _OTHERS[dtype.kind].get(node.op)
    if written is None:
        raise UnsupportedError(f"the operation `{node.op}` of {dtype}, which has no instruction")
    return written(builder, node, dtype, *names)


def _neg(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    return builder.line(f"fneg {type_of(dtype, builder.lanes)} {x}")


def _round(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    params: Any = node.params
    to_even = int(dict(params)["rounding_method"]) == 1
    return builder.intrinsic("roundeven" if to_even else "round", dtype, x)


def _sign(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    kind = type_of(dtype, builder.lanes)
    unit = builder.intrinsic("copysign", dtype, splat(builder, 1.0, dtype), x)
    is_signed = builder.line(f"fcmp one {kind} {x}, zeroinitializer")
    return builder.select(is_signed, unit, x, dtype)


def _is_finite(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    # Two operations, and false for NaN because the comparison is ordered.
    size = builder.intrinsic("fabs", dtype, x)
    infinite = splat(builder, np.inf, dtype)
    return builder.line(f"fcmp olt {type_of(dtype, builder.lanes)} {size}, {infinite}")


def _rsqrt(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    root = builder.intrinsic("sqrt", dtype, x)
    return builder.line(
        f"fdiv {type_of(dtype, builder.lanes)} {splat(builder, 1.0, dtype)}, {root}"
    )


def _log(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    """Write a logarithm; subnormal numbers are zero for XLA, but not for the C library."""
    logarithm = builder.call_by_lane("log", dtype, x)
    is_zero = builder.line(f"fcmp oeq {type_of(dtype, builder.lanes)} {x}, zeroinitializer")
    return builder.select(is_zero, splat(builder, -np.inf, dtype), logarithm, dtype)


def _logistic(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    kind, unit = type_of(dtype, builder.lanes), splat(builder, 1.0, dtype)
    decay = builder.call_by_lane("exp", dtype, builder.line(f"fneg {kind} {x}"))
    return builder.line(f"fdiv {kind} {unit}, {builder.line(f'fadd {kind} {unit}, {decay}')}")


def _tan(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    """Tangent, on a GPU from sine and cosine: that of libdevice needs double precision."""
    if not builder.on_gpu:
        return builder.call_by_lane("tan", dtype, x)
    sine, cosine = sine_and_cosine(builder, x, dtype)
    return builder.line(f"fdiv {type_of(dtype, builder.lanes)} {sine}, {cosine}")


def _not(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    return builder.line(f"xor {type_of(dtype, builder.lanes)} {x}, {splat(builder, -1, dtype)}")


def _negated(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    return builder.line(f"sub {type_of(dtype, builder.lanes)} zeroinitializer, {x}")


def _size(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    down = builder.line(f"icmp slt {type_of(dtype, builder.lanes)} {x}, zeroinitializer")
    return builder.select(down, _negated(builder, node, dtype, x), x, dtype)


def _direction(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    kind, unit = type_of(dtype, builder.lanes), splat(builder, 1, dtype)
    is_positive = builder.line(f"icmp sgt {kind} {x}, zeroinitializer")
    down = builder.line(f"icmp slt {kind} {x}, zeroinitializer")
    negative = builder.select(down, splat(builder, -1, dtype), "zeroinitializer", dtype)
    return builder.select(is_positive, unit, negative, dtype)


def _is_positive(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str) -> str:
    """Write the sign of an unsigned number."""
    is_positive = builder.line(f"icmp ne {type_of(dtype, builder.lanes)} {x}, zeroinitializer")
    return builder.select(is_positive, splat(builder, 1, dtype), "zeroinitializer", dtype)


def _quotient(operation: str) -> "_Written":
    """Integer division as in XLA: x / 0 is -1, x rem 0 is x, and overflow wraps around."""

    def written(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str, y: str) -> str:
        kind, truth = type_of(dtype, builder.lanes), vector("i1", builder.lanes)
        zero = builder.line(f"icmp eq {kind} {y}, zeroinitializer")
        least = splat(builder, np.iinfo(dtype).min, dtype)
        lowest = builder.line(f"icmp eq {kind} {x}, {least}")
        minus = builder.line(f"icmp eq {kind} {y}, {splat(builder, -1, dtype)}")
        beyond = builder.line(f"and {truth} {lowest}, {minus}")
        unsafe = builder.line(f"or {truth} {zero}, {beyond}")
        divisor = builder.select(unsafe, splat(builder, 1, dtype), y, dtype)
        result = builder.line(f"{operation} {kind} {x}, {divisor}")
        return builder.select(
            zero, splat(builder, -1, dtype) if operation.endswith("div") else x, result, dtype
        )

    return written


def _extreme(comparison: str) -> "_Written":
    def written(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str, y: str) -> str:
        is_first = builder.line(f"{comparison} {type_of(dtype, builder.lanes)} {x}, {y}")
        return builder.select(is_first, x, y, dtype)

    return written


def _extreme_or_nan(comparison: str) -> "_Written":
    """Write a maximum or minimum, NaN if either is, as in XLA; intrinsics are slower."""
    among_numbers = _extreme(comparison)

    def written(builder: AssemblyBuilder, node: Node, dtype: np.dtype, x: str, y: str) -> str:
        extreme = among_numbers(builder, node, dtype, x, y)  # y if either is NaN
        is_nan = builder.line(f"fcmp uno {type_of(dtype, builder.lanes)} {x}, {x}")
        return builder.select(is_nan, x, extreme, dtype)

    return written


def _intrinsic(name: str) -> "_Written":
    return lambda builder, node, dtype, *inputs: builder.intrinsic(name, dtype, *inputs)


def _library(name: str) -> "_Written":
    return lambda builder, node, dtype, *inputs: builder.call_by_lane(name, dtype, *inputs)


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


def _converted(builder: AssemblyBuilder, x: str, old: np.dtype, new: np.dtype) -> str:
    kinds = type_of(old, builder.lanes), type_of(new, builder.lanes)
    if new.kind == "b":
        zero = f"{kinds[0]} {x}, zeroinitializer"
        return builder.line(f"fcmp une {zero}" if old.kind == "f" else f"icmp ne {zero}")
    match old.kind, new.kind:
        case "f", "f":
            how = "fpext" if new.itemsize > old.itemsize else "fptrunc"
        case (("b" | "u"), "f"):
            how = "uitofp"
        case "i", "f":
            how = "sitofp"
        case "f", _:
            return _truncated(builder, x, old, new)
        case "b", _:
            how = "zext"
        case _ if new.itemsize == old.itemsize:
            return x
        case _ if new.itemsize < old.itemsize:
            how = "trunc"
        case _:
            how = "zext" if old.kind == "u" else "sext"
    return builder.line(f"{how} {kinds[0]} {x} to {kinds[1]}")


def _truncated(builder: AssemblyBuilder, x: str, old: np.dtype, new: np.dtype) -> str:
    """Conversion to integers as in XLA: it saturates, and NaN becomes zero."""
    kind, vector_type = type_of(old, builder.lanes), type_of(new, builder.lanes)
    name = f"llvm.fpto{new.kind.replace('i', 's')}i.sat.{builder.suffix(new)}.{builder.suffix(old)}"
    return builder.call(vector_type, name, (kind, x))


def _chosen(
    builder: AssemblyBuilder, names: Sequence[str], index_dtype: np.dtype, dtype: np.dtype
) -> str:
    number, chosen, *remaining = names
    if index_dtype.kind == "b":
        return builder.select(number, remaining[0], chosen, dtype)
    kind = type_of(index_dtype, builder.lanes)
    comparison = "uge" if index_dtype.kind == "u" else "sge"
    for k, alternative in enumerate(remaining, start=1):
        limit = splat(builder, k, index_dtype)
        reached = builder.line(f"icmp {comparison} {kind} {number}, {limit}")
        chosen = builder.select(reached, alternative, chosen, dtype)
    return chosen
