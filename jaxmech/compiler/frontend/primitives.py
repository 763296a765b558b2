"""The translation of each JAX primitive to the scalar graph.

Primitives that only move numbers (slices, transposes, ...) are applied to the node numbers, by
numpy.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import pairwise, product
from typing import Any

import jax
import numpy as np

from jaxmech.compiler.frontend import indexing
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import (
    LARGEST_ARRAY,
    Ids,
    UnsupportedError,
    dtype_of,
    native_dtype,
    shape_of,
)
from jaxmech.compiler.optimize.fold import FOLDS, folded
from jaxmech.utils.jax_internals import JaxprEqn, Primitive

MANY = 64  # numbers of an array whose zeros are worth a search

Reading = Callable[..., Iterable[Ids]]
Params = Mapping[str, Any]


def constant(g: Graph, value: np.ndarray) -> Ids:
    """An array of constants."""
    if value.size > LARGEST_ARRAY:
        raise UnsupportedError(f"a constant of {value.size} numbers")
    if (native := native_dtype(value.dtype)) != value.dtype:
        value = np.zeros(value.shape, native)
    key = value.tobytes(), value.dtype, value.shape
    ids = g.arrays.get(key)
    if ids is None:
        numbers = [g.const(x, value.dtype) for x in value.ravel()]
        ids = g.arrays[key] = np.array(numbers, np.int64).reshape(value.shape)
        ids.setflags(write=False)
    return ids


def _each(g: Graph, op: str, *arrays: Ids | np.int64, params: Any = ()) -> Ids:
    """Apply an operation elementwise to arrays of the same shape."""
    if op in ("mul", "add", "sub") and arrays[0].size >= MANY:
        return _with_zeros(g, op, *arrays)
    return _one_by_one(g, op, *arrays, params=params)


def _with_zeros(g: Graph, op: str, *arrays: Any) -> Ids:
    """Apply a product, a sum or a difference; the zeros of sparse matrices are folded together."""
    x, y = (np.ravel(a) for a in arrays)
    zeros = list(g.zero_constants)
    x_is_zero, y_is_zero = np.isin(x, zeros), np.isin(y, zeros)
    operand = np.where(x_is_zero, y, x)
    if op != "mul":
        # As in `fold`: of two zeros in a sum, the one with the larger number is left.
        operand = np.where(x_is_zero & y_is_zero, np.maximum(x, y) if op == "add" else x, operand)
        is_folded = x_is_zero | y_is_zero if op == "add" else y_is_zero
        out = np.where(is_folded, operand, 0)
    else:
        out, both_zero = np.zeros_like(x), x_is_zero & y_is_zero
        for pair in product(zeros, repeat=2):  # there are few: of both signs, and of each type
            matches = both_zero & (x == pair[0]) & (y == pair[1])
            if matches.any():
                out[matches] = folded(g, op, *pair)
        is_folded = x_is_zero ^ y_is_zero
        # Products of other constants are left to `fold`, and those with a zero that may hide a NaN.
        numbers = np.unique(operand[is_folded]).tolist()
        numbers = [i for i in numbers if g.values[i] is None and not g.is_exposed(i)]
        is_folded &= np.isin(operand, numbers)
        if numbers:
            out[is_folded] = g.const(0, g.nodes[numbers[0]].dtype)
            g.add_zeros(("mul", i) for i in numbers)
        is_folded |= both_zero
    g.requested += int(is_folded.sum())
    remaining = ~is_folded
    out[remaining] = _one_by_one(g, op, x[remaining], y[remaining])
    return out.reshape(arrays[0].shape)


def _one_by_one(g: Graph, op: str, *arrays: Ids | np.int64, params: Any = ()) -> Ids:
    ids, folded_nodes = [], g.folded
    for inputs in zip(*[a.ravel().tolist() for a in arrays], strict=True):
        number = folded_nodes.get((op, inputs, params))  # here too, since a call takes longer
        if number is None:
            number = folded(g, op, *inputs, params=params)
        else:
            g.requested += 1
        ids.append(number)
    return np.array(ids, np.int64).reshape(arrays[0].shape)


def _elementwise(g: Graph, eqn: JaxprEqn, *arrays: Ids) -> Iterable[Ids]:
    name, shape = eqn.primitive.name, shape_of(eqn.outvars[0])
    params: Any = ()
    if eqn.params:
        params = tuple(sorted((k, v) for k, v in eqn.params.items() if v is not None))
    if name == "convert_element_type":
        params = str(np.dtype(eqn.params["new_dtype"]))
    alike = [a if a.shape == shape else np.broadcast_to(a, shape) for a in arrays]
    yield _each(g, name, *alike, params=params)


def _slice(x: Ids, p: Params) -> Ids:
    strides = p["strides"] or (1,) * x.ndim
    spans = zip(p["start_indices"], p["limit_indices"], strides, strict=True)
    return x[tuple(slice(*bounds) for bounds in spans)]


# Primitives that only move numbers, in terms of numpy.
_MOVES: dict[str, Callable[[Ids, Params], Ids]] = {
    "reshape": lambda x, p: x.reshape(p["new_sizes"]),
    "transpose": lambda x, p: x.transpose(p["permutation"]),
    "squeeze": lambda x, p: x.squeeze(p["dimensions"]),
    "expand_dims": lambda x, p: np.expand_dims(x, p["dimensions"]),
    "rev": lambda x, p: np.flip(x, p["dimensions"]),
    "tile": lambda x, p: np.tile(x, p["reps"]),
    "slice": _slice,
}


def _moved(g: Graph, eqn: JaxprEqn, x: Ids, *operands: Ids) -> Iterable[Ids]:
    # numpy returns a number instead of an array where there are no axes.
    yield np.asarray(_MOVES[eqn.primitive.name](x, eqn.params))


def _pad(g: Graph, eqn: JaxprEqn, x: Ids, filling: Ids) -> Iterable[Ids]:
    """Pad an array, inside too; negative padding crops."""
    config = eqn.params["padding_config"]
    sizes = [n + max(n - 1, 0) * gap for n, (_, _, gap) in zip(x.shape, config, strict=True)]
    spread = np.full(sizes, int(filling))
    spread[tuple(slice(None, None, gap + 1) for _, _, gap in config)] = x
    widths = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    padded = np.pad(spread, widths, constant_values=int(filling))
    yield padded[
        tuple(
            slice(max(-low, 0), size - max(-high, 0))
            for (low, high, _), size in zip(config, padded.shape, strict=True)
        )
    ]


def _broadcast(g: Graph, eqn: JaxprEqn, x: Ids, *dynamic: Ids) -> Iterable[Ids]:
    shape = eqn.params["shape"]
    spread = [1] * len(shape)
    for dimension, size in zip(eqn.params["broadcast_dimensions"], x.shape, strict=True):
        spread[dimension] = size
    if int(np.prod(shape)) > LARGEST_ARRAY:
        raise UnsupportedError(f"an array of {int(np.prod(shape))} numbers")
    yield np.broadcast_to(x.reshape(spread), shape)


def _iota(g: Graph, eqn: JaxprEqn) -> Iterable[Ids]:
    shape, dimension = eqn.params["shape"], eqn.params["dimension"]
    spread = [1] * len(shape)
    spread[dimension] = -1
    line = np.arange(shape[dimension]).reshape(spread)
    yield constant(g, np.broadcast_to(line, shape).astype(eqn.params["dtype"]))


def _unset(g: Graph, eqn: JaxprEqn) -> Iterable[Ids]:
    """Zeros, as in XLA, for the unused numbers in derivatives of a `cond` from jax 0.12 on."""
    yield constant(g, np.zeros(shape_of(eqn.outvars[0]), dtype_of(eqn.outvars[0])))


def _neutral(op: str, dtype: np.dtype) -> Any:
    if op in ("max", "min"):
        lowest, highest = {"f": (-np.inf, np.inf), "b": (False, True)}.get(dtype.kind) or (
            np.iinfo(dtype).min,
            np.iinfo(dtype).max,
        )
        return lowest if op == "max" else highest
    if op == "and":
        return np.invert(np.zeros((), dtype))  # all bits set
    return {"add": 0, "mul": 1, "or": 0, "xor": 0}[op]


def _reduced(g: Graph, op: str, lines: Ids, dtype: Any) -> Ids:
    """Reduce the last axis, from left to right."""
    if lines.shape[-1] == 0:
        return constant(g, np.full(lines.shape[:-1], _neutral(op, dtype), dtype))
    out = lines[..., 0]
    for k in range(1, lines.shape[-1]):
        out = _each(g, op, out, lines[..., k])
    return out


def _reduction(op: str) -> Reading:
    def reduce(g: Graph, eqn: JaxprEqn, x: Ids) -> Iterable[Ids]:
        axes = eqn.params["axes"]
        remaining_axes = [d for d in range(x.ndim) if d not in axes]
        size = int(np.prod([x.shape[d] for d in axes]))
        lines = x.transpose(*remaining_axes, *axes).reshape(
            *(x.shape[d] for d in remaining_axes), size
        )
        yield _reduced(g, op, lines, dtype_of(eqn.outvars[0]))

    return reduce


def _dot(g: Graph, eqn: JaxprEqn, x: Ids, y: Ids) -> Iterable[Ids]:
    (cx, cy), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    fx = [d for d in range(x.ndim) if d not in (*cx, *batch_x)]
    fy = [d for d in range(y.ndim) if d not in (*cy, *batch_y)]
    out = eqn.outvars[0]
    batch = [x.shape[d] for d in batch_x]
    left_shape = [int(np.prod([x.shape[d] for d in dims])) for dims in (fx, cx)]
    right_size = int(np.prod([y.shape[d] for d in fy]))
    X = x.transpose(*batch_x, *fx, *cx).reshape(*batch, left_shape[0], 1, left_shape[1])
    Y = y.transpose(*batch_y, *fy, *cy).reshape(*batch, 1, right_size, left_shape[1])
    dtype = dtype_of(out)
    # As in XLA: products and sums have the type of the result; those of truth values are logic.
    times, plus = ("and", "or") if dtype.kind == "b" else ("mul", "add")
    X, Y = (_as_type(g, a, var, dtype) for a, var in ((X, eqn.invars[0]), (Y, eqn.invars[1])))
    X, Y = np.broadcast_arrays(X, Y)
    # Line by line, because the products of all of them would be a large array.
    shape = int(np.prod(X.shape[:-2])), *X.shape[-2:]
    pairs = zip(X.reshape(shape), Y.reshape(shape), strict=True)
    lines = [_reduced(g, plus, _each(g, times, *pair), dtype) for pair in pairs]
    yield np.array(lines, np.int64).reshape(shape_of(out))


def _power(g: Graph, eqn: JaxprEqn, x: Ids, exponent: Ids) -> Iterable[Ids]:
    """A power of a float; an integer exponent is converted first, as in JAX."""
    yield from _elementwise(
        g, eqn, x, _as_type(g, exponent, eqn.invars[1], dtype_of(eqn.outvars[0]))
    )


def _as_type(g: Graph, x: Ids, var: Any, dtype: np.dtype) -> Ids:
    return x if dtype_of(var) == dtype else _each(g, "convert_element_type", x, params=str(dtype))


def _bitcast(g: Graph, eqn: JaxprEqn, x: Ids) -> Iterable[Ids]:
    """The bits of numbers as numbers of another type."""
    old_dtype, dtype = dtype_of(eqn.invars[0]), dtype_of(eqn.outvars[0])
    if old_dtype.itemsize != dtype.itemsize or "b" in (old_dtype.kind, dtype.kind):
        raise UnsupportedError(f"the primitive `bitcast_convert_type` from {old_dtype} to {dtype}")
    yield _each(g, "bitcast_convert_type", x, params=str(dtype))


def _log2(g: Graph, eqn: JaxprEqn, x: Ids) -> Iterable[Ids]:
    """The binary logarithm, by the factor that XLA uses; a primitive from jax 0.12 on."""
    per_e = constant(g, np.full(x.shape, 1 / np.log(2.0), dtype_of(eqn.outvars[0])))
    yield _each(g, "mul", _each(g, "log", x), per_e)


def _polynomial(g: Graph, eqn: JaxprEqn, x: Ids, *coefficients: Ids) -> Iterable[Ids]:
    """Horner's rule, rising powers first; a primitive from jax 0.12 on."""
    shape = shape_of(eqn.outvars[0])
    x, *rising = (np.broadcast_to(array, shape) for array in (x, *coefficients))
    value = rising[-1]
    for coefficient in reversed(rising[:-1]):
        value = _each(g, "add", _each(g, "mul", value, x), coefficient)
    yield value


def _clamp(g: Graph, eqn: JaxprEqn, low: Ids, x: Ids, high: Ids) -> Iterable[Ids]:
    low, high = (np.broadcast_to(limit, x.shape) for limit in (low, high))
    yield _each(g, "min", _each(g, "max", x, low), high)


def _cumulative(op: str) -> Reading:
    def cumulate(g: Graph, eqn: JaxprEqn, x: Ids) -> Iterable[Ids]:
        out = np.array(x)
        lines = np.moveaxis(out, eqn.params["axis"], 0)
        order = list(range(len(lines)))[:: -1 if eqn.params["reverse"] else 1]
        for previous, k in pairwise(order):
            lines[k] = _each(g, op, lines[previous], lines[k])
        yield out

    return cumulate


def _argument(better: str) -> Reading:
    """Read `argmax` or `argmin`: the index of the first best number, or of the first NaN."""

    def find(g: Graph, eqn: JaxprEqn, x: Ids) -> Iterable[Ids]:
        (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
        best, *remaining = np.moveaxis(x, axis, 0)
        position = constant(g, np.zeros(best.shape, dtype))
        for k, line in enumerate(remaining, start=1):
            # NaN beats numbers, and only an earlier NaN beats NaN.
            wins = _each(g, "or", _each(g, better, line, best), _each(g, "ne", line, line))
            wins = _each(g, "and", wins, _each(g, "eq", best, best))
            index = constant(g, np.full(best.shape, k, dtype))
            best = _each(g, "select_n", wins, best, line)
            position = _each(g, "select_n", wins, position, index)
        yield position

    return find


def _in_total_order(op: str) -> Reading:
    """Read `lt_to` or `le_to` of searches: NaN is above all numbers; JAX has normalized zeros."""

    def compare(g: Graph, eqn: JaxprEqn, x: Ids, y: Ids) -> Iterable[Ids]:
        greater = _each(g, "ne", y, y)
        if op == "lt":
            greater = _each(g, "and", greater, _each(g, "eq", x, x))
        yield _each(g, "or", _each(g, op, x, y), greater)

    return compare


@cache
def _platform_index(primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> np.ndarray:
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.jit(lambda: primitive.bind(**dict(params)))())


def _split(g: Graph, eqn: JaxprEqn, x: Ids) -> Iterable[Ids]:
    # Without the rest after the last part, which is empty; there may be no part at all.
    return np.split(x, np.cumsum(eqn.params["sizes"], dtype=int), eqn.params["axis"])[:-1]


_OTHER_ELEMENTWISE = (
    "rsqrt", "cbrt", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2",
    "log1p", "expm1", "logistic", "erf", "erfc", "erf_inv", "lgamma", "digamma", "round",
    "nextafter", "xor",
)  # fmt: skip

PRIMITIVES: dict[str, Reading] = {
    **dict.fromkeys((*FOLDS, *_OTHER_ELEMENTWISE), _elementwise),
    **dict.fromkeys(_MOVES, _moved),
    "concatenate": lambda g, eqn, *arrays: [np.concatenate(arrays, eqn.params["dimension"])],
    "split": _split,
    "stack": lambda g, eqn, *arrays: [np.stack(arrays, eqn.params["axis"])],
    "unstack": lambda g, eqn, x: map(np.asarray, np.moveaxis(x, eqn.params["axis"], 0)),
    "pad": _pad,
    "dynamic_slice": indexing.dynamic_slice,
    "dynamic_update_slice": indexing.dynamic_update_slice,
    "gather": indexing.gather,
    "scatter": partial(indexing.scatter, False),
    "scatter-add": partial(indexing.scatter, True),
    "scatter_add": partial(indexing.scatter, True),
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
    "empty": _unset,
    "empty2": _unset,
    "dot_general": _dot,
    "pow": _power,
    "log2": _log2,
    "bitcast_convert_type": _bitcast,
    "polynomial": _polynomial,
    "clamp": _clamp,
    "argmax": _argument("gt"),
    "argmin": _argument("lt"),
    "lt_to": _in_total_order("lt"),
    "le_to": _in_total_order("le"),
    "platform_index": lambda g, eqn: [
        constant(g, _platform_index(eqn.primitive, tuple(eqn.params.items())))
    ],
    **{f"reduce_{op}": _reduction(op) for op in ("max", "min", "and", "or", "xor")},
    "reduce_sum": _reduction("add"),
    "reduce_prod": _reduction("mul"),
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max"),
    "cummin": _cumulative("min"),
}
