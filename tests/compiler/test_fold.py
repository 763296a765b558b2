"""Folding in the scalar graph, and expressions that it must not fold."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.compiler import vectorize
from jaxmech.compiler.frontend import primitives
from jaxmech.compiler.frontend.build import function_kernel
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.optimize.fold import folded
from jaxmech.linalg import LDL
from jaxmech.linalg.products import gram

FLOAT = np.dtype(np.float64)


class Body:
    """The graph of the body of a loop, with numbers x and y of its carry and h and w of before."""

    def __init__(self, dtype: np.dtype = FLOAT) -> None:
        around = Graph()
        self.graph, self.dtype = Graph(around), dtype
        self.x, self.y = (self.graph.add("carry", (), k, dtype) for k in range(2))
        self.h, self.w = (self.graph.capture(around.add("input", (), k, dtype)) for k in range(2))

    def __call__(self, op: str, *inputs: int) -> int:
        return folded(self.graph, op, *inputs)

    def number(self, value: float) -> int:
        return self.graph.const(value, self.dtype)

    def op(self, number: int) -> str:
        return self.graph.nodes[number].op


SAME: dict[str, Callable[[Body], tuple[int, int]]] = {
    "half of twice": lambda g: (g("mul", g.number(0.5), g("add", g.x, g.x)), g.x),
    "sum of opposites": lambda g: (
        g("add", g("neg", g.x), g("neg", g.y)),
        g("neg", g("add", g.x, g.y)),
    ),
    "difference from an opposite": lambda g: (
        g("sub", g("neg", g.x), g.y),
        g("neg", g("add", g.x, g.y)),
    ),
    "opposite difference": lambda g: (
        g("mul", g.h, g("sub", g.x, g.y)),
        g("neg", g("mul", g.h, g("sub", g.y, g.x))),
    ),
    "size of an opposite": lambda g: (g("abs", g("sub", g.x, g.y)), g("abs", g("sub", g.y, g.x))),
    "constants": lambda g: (
        g("mul", g.number(3.0), g("mul", g.x, g.number(0.5))),
        g("mul", g.number(1.5), g.x),
    ),
    "step and weight": lambda g: (
        g("mul", g.h, g("mul", g.number(0.5), g.x)),
        g("mul", g("mul", g.number(0.5), g.h), g.x),
    ),
    "what only a run knows": lambda g: (
        g("mul", g.h, g("mul", g.w, g.x)),
        g("mul", g("mul", g.h, g.w), g.x),
    ),
}


MIRRORED = {"eq": "eq", "ge": "le", "gt": "lt", "lt": "gt"}
COUNTS: dict[str, tuple[str, int, str]] = {
    "all": ("eq", 3, "and"),
    "not all": ("lt", 3, "not"),
    "none": ("eq", 0, "not"),
    "any": ("gt", 0, "or"),
    "always": ("ge", 0, "const"),
    "never": ("gt", 3, "const"),
    "most": ("ge", 2, "ge"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_booleans(name: str) -> None:
    comparison, limit, op = COUNTS[name]

    def fn(x: jax.Array) -> jax.Array:
        count = sum((x > 0)[k].astype(jnp.int32) for k in range(3))
        left, right = getattr(jax.lax, comparison), getattr(jax.lax, MIRRORED[comparison])
        other = jnp.asarray(limit, jnp.int32)
        return jnp.stack([left(count, other), right(other, count)])

    kernel = function_kernel(jax.make_jaxpr(fn)(jnp.ones(3)))
    graph = kernel.reader.graph
    assert {graph.nodes[i].op for i in kernel.outs[0]} == {op, MIRRORED.get(op, op)}
    assert ("add" in [graph.nodes[i].op for i in kernel.live.nodes]) == (name == "most")
    signs = 1.0 - 2.0 * np.array(list(np.ndindex(2, 2, 2)))
    np.testing.assert_array_equal(vectorize(fn)(signs), jax.vmap(fn)(signs))


@pytest.mark.parametrize("name", SAME)
def test_a_difference_and_its_reverse_are_shared(name: str) -> None:
    one, other = SAME[name](Body())
    assert one == other


def test_factors_are_multiplied_before_the_loop() -> None:
    g = Body()
    product = g("mul", g.h, g("mul", g.number(0.5), g.x))
    assert sorted(map(g.op, g.graph.nodes[product].inputs)) == ["capture", "carry"]
    assert [node.op for node in g.graph.nodes].count("mul") == 2  # as asked for, and at once


def test_the_range_of_single_precision_is_not_left() -> None:
    g = Body(np.dtype(np.float32))
    product = g("mul", g.h, g("mul", g.w, g.x))
    assert sorted(map(g.op, g.graph.nodes[product].inputs)) == ["capture", "mul"]


def test_very_large_constants_stay_apart() -> None:
    g = Body()
    product = g("mul", g.number(1e200), g("mul", g.number(1e200), g.x))
    assert sorted(map(g.op, g.graph.nodes[product].inputs)) == ["const", "mul"]


def test_twice_a_whole_number_is_a_sum() -> None:
    g = Body(np.dtype(np.int32))
    assert g.op(g("add", g.x, g.x)) == "add"
    assert g.op(g("mul", g.h, g("mul", g.number(2), g.x))) == "mul"


def test_a_symmetric_elimination_takes_one_triangle() -> None:
    rows = 6

    def last(C: jax.Array) -> jax.Array:
        return LDL().factor(C).inverse_pivots[-1]

    kernel = function_kernel(jax.make_jaxpr(last)(jnp.ones((rows, rows + 1))))
    ops = [kernel.reader.graph.nodes[number].op for number in kernel.live.nodes]
    assert ops.count("sub") == rows * (rows**2 - 1) // 6


BANDED = np.triu(np.tril(np.ones((60, 70)), 3), -3)


@pytest.mark.slow
def test_zeros_of_a_sparse_matrix_leave_what_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded all at once in products, sums and differences, to the operations of one by one."""

    def fn(x: Any) -> Any:
        A = x * BANDED
        return A * A[::-1, ::-1] - A, (-A) * 0.0 + A, BANDED * -BANDED

    x = np.random.default_rng(1).uniform(0.5, 1.5, BANDED.shape)
    ours = vectorize(fn)(x[None])
    for one, other in zip(ours, fn(x), strict=True):
        np.testing.assert_array_equal(one[0], other)
    count = function_kernel(jax.make_jaxpr(fn)(x)).operations
    monkeypatch.setattr(primitives, "MANY", x.size + 1)
    assert function_kernel(jax.make_jaxpr(fn)(x)).operations == count > 100


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(20, 30), (60, 70)])
def test_a_large_gram_matrix_has_the_products_of_a_small_one(shape: tuple[int, int]) -> None:
    """Beyond 65,536 products it is a dot, with the same operations in native code."""
    mask = BANDED[: shape[0], : shape[1]]

    def operations(fn: Any) -> int:
        return function_kernel(jax.make_jaxpr(lambda x: fn(x * mask))(mask)).operations

    def squares(C: Any) -> Any:
        return jnp.stack([(C[:, None] * C[None, k : k + 1]).sum((1, 2)) for k in range(len(C))])

    found, reference = operations(gram), operations(squares)
    assert found == reference > 100
    x = np.random.default_rng(2).normal(size=shape)
    np.testing.assert_allclose(gram(jnp.asarray(x)), x @ x.T, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1])
def test_products_of_matrices_without_rows(rows: int) -> None:
    x = np.ones((1, 3, 3))
    found = vectorize(lambda x: (x[:rows] @ x[:rows].T, x[:, :0] @ x[:0], x[0]))(x)
    assert [one.shape for one in found] == [(1, rows, rows), (1, 3, 3), (1, 3)]
    assert (np.asarray(found[0]) == 3).all()
    assert (np.asarray(found[1]) == 0).all()
