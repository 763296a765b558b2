"""Elementwise operations of every type have the results of XLA, at the ends of its range too."""

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import explain, unoptimized, vectorize

SIGNED = [np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)]
UNSIGNED = [np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(np.float32), np.dtype(np.float64)]
TYPES = [np.dtype(bool), *SIGNED, *UNSIGNED, *FLOATS]
Function = Callable[..., Any]

COMPARISONS: dict[str, Function] = {op: getattr(lax, op) for op in ("eq", "ne", "lt", "le")}
COMPARISONS |= {"gt": lax.gt, "ge": lax.ge, "max": lax.max, "min": lax.min}
LOGIC: dict[str, Function] = {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lambda x, y: lax.bitwise_not(x) == y,
}
# A product and a sum may be one instruction, which has a finite result where the product alone is
# infinite: powers are joined with the other argument by an order.
ARITHMETIC: dict[str, Function] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "neg": lambda x, y: lax.neg(x) + y,
    "square": lambda x, y: lax.max(lax.square(x), y),
    "cube": lambda x, y: lax.max(lax.integer_pow(x, 3), y),
    "sign": lambda x, y: lax.sign(x) * y,
    "division of an opposite": lambda x, y: lax.div(-x, y),
    "division by an opposite": lambda x, y: lax.div(x, -y),
    "remainder of an opposite": lambda x, y: lax.rem(-x, y),
    "opposite of a quotient": lambda x, y: -lax.div(x, y),
    "sum with an opposite": lambda x, y: -x + y,
    "product of opposites": lambda x, y: -x * -y,
    "differences": lambda x, y: (x - y) * (y - x),
    "order of opposites": lambda x, y: -x < -y,
    "floor division": lambda x, y: x // y,
    "modulo": lambda x, y: x % y,
}
SIGNS: dict[str, Function] = {
    "abs": lambda x, y: lax.abs(x) + y,
    "size of an opposite": lambda x, y: lax.abs(-x) + y,
}
OF_FLOATS: dict[str, Function] = {
    "floor": lambda x, y: lax.floor(x) + y,
    "ceil": lambda x, y: lax.ceil(x) + y,
    "round": lambda x, y: (lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lax.round(y)),
    "is_finite": lambda x, y: lax.is_finite(x) & lax.is_finite(y),
    "sqrt": lambda x, y: lax.sqrt(x) + y,
    "clamp": lambda x, y: lax.clamp(x, y, jnp.asarray(2.5, x.dtype)),
    "integer power": lambda x, y: lax.pow(x, lax.convert_element_type(y > 0, np.int32) * 3),
}


def operations(dtype: np.dtype) -> dict[str, Function]:
    match dtype.kind:
        case "b":
            return COMPARISONS | LOGIC
        case "u":
            return COMPARISONS | LOGIC | ARITHMETIC
        case "i":
            return COMPARISONS | LOGIC | ARITHMETIC | SIGNS
    return COMPARISONS | ARITHMETIC | SIGNS | OF_FLOATS


def edges(dtype: np.dtype) -> list[Any]:
    if dtype.kind == "b":
        return [np.False_, np.True_]
    if dtype.kind == "f":
        numbers = [0.0, 1.0, -1.0, 2.0, 2.5, -7.0, np.nan, np.inf, -np.inf, 2.0**-100, 1e30]
    else:
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        numbers = sorted({0, 1, 2, 7, most, most // 2 + 1, least, least + 1, max(least, -1)})
    return [dtype.type(x) for x in numbers]


def over_pairs(table: dict[str, Function], dtype: np.dtype) -> dict[str, list[np.ndarray]]:
    """The results of XLA for all pairs of edges, shape (edges, edges)."""
    values = edges(dtype)
    every = np.array([*product(values, repeat=2)], dtype)
    found = jax.jit(jax.vmap(lambda x, y: results(table, x, y)))(every[:, 0], every[:, 1])
    return {
        name: [np.reshape(x, (len(values), len(values))) for x in outs]
        for name, outs in found.items()
    }


def results(table: dict[str, Function], x: Any, y: Any) -> dict[str, list[Any]]:
    return {name: jax.tree.leaves(fn(x, y)) for name, fn in table.items()}


def assert_equal(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    """Compare results at all pairs, with the constants along the last axis."""
    for name, outs in expected.items():
        for a, b in zip(found[name], outs, strict=True):
            assert a.dtype == b.dtype, name
            tolerance = 4 * np.finfo(b.dtype).eps if b.dtype.kind == "f" else 0
            np.testing.assert_allclose(a, b, rtol=tolerance, err_msg=name)


def without_zero(found: dict[str, list[Any]], dtype: np.dtype) -> dict[str, list[Any]]:
    """Without the constant zero of floats: a product with it hides a NaN that others show."""
    first = 1 if dtype.kind == "f" else 0  # its place among the edges
    return {name: [x[:, first:] for x in outs] for name, outs in found.items()}


def transposed(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [x.T for x in outs] for name, outs in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [TYPES[0], *SIGNED[::3], *UNSIGNED[::3], *FLOATS], ids=str)
def test_operations(dtype: np.dtype) -> None:
    """No input is a constant, either is one, or both are: folds apply to their types only."""
    table, values = operations(dtype), np.array(edges(dtype))
    numbers = [jnp.asarray(x) for x in values]
    # XLA itself stops the process where it divides the least integer by -1 among constants.
    expected = over_pairs(table, dtype)

    def both(x: Any, every: Any) -> Any:
        with_each = [results(table, x, y) for y in every]
        return jax.tree.map(lambda *column: jnp.stack(column), *with_each)

    def left(x: Any) -> Any:
        return both(x, numbers)

    def right(x: Any) -> Any:
        return jax.tree.map(
            lambda *column: jnp.stack(column), *[results(table, y, x) for y in numbers]
        )

    def neither(x: Any) -> Any:
        return jax.tree.map(lambda *rows: jnp.stack(rows), *[both(a, numbers) for a in numbers])

    def compare(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
        assert_equal(without_zero(found, dtype), without_zero(expected, dtype))

    told = repr(explain(both, values, values, in_axes=(0, None)))
    assert "plain vmap" not in told, told
    assert_equal(jax.jit(vectorize(both, (0, None)))(values, values), expected)
    compare(jax.jit(vectorize(left))(values), expected)
    compare(jax.jit(vectorize(right))(values), transposed(expected))
    # Thousands of constants are stored: LLVM can only lose time with them, a minute for each type.
    with unoptimized():
        known = jax.jit(vectorize(neither))(values)
    assert_equal({name: [x[0] for x in outs] for name, outs in known.items()}, expected)
