"""Rows that loops write at places of their own in every trajectory."""

from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.compiler import empty_rows, explain, vectorize, with_row
from jaxmech.compiler.frontend.build import loop_kernel

MOST = 7


def crossings(x: Any, marks: Any) -> Any:
    """Find the times at which steps of varying size pass the marks, none or several per step."""

    def mark(k: Any) -> Any:
        return jax.lax.dynamic_index_in_dim(marks, jnp.minimum(k, MOST - 1), keepdims=False)

    def step(carry: Any) -> Any:
        k, t, rows, numbers = carry
        after = t + 0.1 + 0.3 * jnp.sin(x + t) ** 2

        def write(inner: Any) -> Any:
            k, rows, numbers = inner
            row = jnp.stack([mark(k) * x, (mark(k) - t) / (after - t)])
            return k + 1, with_row(rows, k, row, True), with_row(numbers, k, 10 * k, k != 2)

        k, rows, numbers = jax.lax.while_loop(
            lambda inner: (inner[0] < MOST) & (mark(inner[0]) <= after), write, (k, rows, numbers)
        )
        return k, after, rows, numbers

    start = 0, 0.0 * x, empty_rows(MOST, jnp.zeros(2)), empty_rows(MOST, jnp.asarray(0))
    found = jax.lax.while_loop(lambda c: (c[0] < MOST) & (c[1] < 5.0), step, start)
    k, t, rows, numbers = found
    places = jnp.arange(MOST)
    rows = jnp.where((places < k)[:, None], rows, jnp.nan)
    return rows, t, jnp.where((places < k) & (places != 2), numbers, -1)


X = np.linspace(0.0, 3.0, 37)
MARKS = np.array([0.1, 0.15, 0.2, 1.0, 2.0, 2.5, 6.0])


@pytest.mark.parametrize("shared", [True, False])
def test_rows_are_those_of_plain_loops(shared: bool) -> None:
    marks = MARKS if shared else np.linspace(0.5, 1.0, 37)[:, None] * MARKS
    axes = (0, None if shared else 0)
    assert "plain vmap" not in repr(explain(crossings, X, marks, in_axes=axes))
    found = jax.jit(vectorize(crossings, axes))(X, marks)
    wanted = jax.jit(jax.vmap(crossings, axes))(X, marks)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert np.isnan(found[0]).any()
    assert found[2].max() == 10 * (MOST - 2 + (not shared))
    assert (np.asarray(found[2])[:, 2] == -1).all()


def test_rows_are_written_where_the_equations_before_the_loop_have_no_native_code() -> None:
    def sorted_before(x: Any, marks: Any) -> Any:
        return crossings(x, jnp.sort(marks))

    marks = np.linspace(0.5, 1.0, 37)[:, None] * MARKS[::-1]
    assert "plain vmap" not in repr(explain(sorted_before, X, marks))
    found = jax.jit(vectorize(sorted_before))(X, marks)
    for a, b in zip(found, jax.jit(jax.vmap(sorted_before))(X, marks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_places_outside_are_dropped() -> None:
    def fn(first: Any) -> Any:
        rows = jax.lax.while_loop(
            lambda c: c[0] < 6,
            lambda c: (c[0] + 1, with_row(c[1], c[0] + first, jnp.asarray(1.0 * c[0]), True)),
            (0, empty_rows(4, jnp.asarray(0.0))),
        )[1]
        place = jnp.arange(4) - first
        return jnp.where((place >= 0) & (place < 6), rows, -1.0)

    first = jnp.array([-3, -1, 0, 2, 9])
    np.testing.assert_array_equal(jax.jit(vectorize(fn))(first), jax.jit(jax.vmap(fn))(first))
    np.testing.assert_array_equal(fn(2), [-1.0, -1.0, 0.0, 1.0])


def test_tangents_of_rows() -> None:
    def third(x: Any) -> Any:
        return crossings(x, MARKS)[0][3]

    x, change = 0.7, 1e-6
    slope = jax.jvp(third, (x,), (1.0,))[1]
    wanted = (third(x + change) - third(x - change)) / (2 * change)
    np.testing.assert_allclose(slope, wanted, rtol=1e-7)


@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")
def test_rows_outside_of_loops_run_by_jax() -> None:
    def fn(x: Any) -> Any:
        return with_row(with_row(empty_rows(2, x), 0, x, True), 1, x + 1, True)

    np.testing.assert_array_equal(jax.jit(vectorize(fn))(X), jax.vmap(fn)(X))


LARGE = 30_000  # rows of three numbers: more than could be split into scalars


def last_and_sum(x: Any, table: Any, marks: Any) -> Any:
    """Read rows of a large array, in a branch of a loop within a loop, until one is beyond x."""

    def outer(carry: Any) -> Any:
        k, total = carry

        def inner(carry: Any) -> Any:
            j, total = carry
            row = jax.lax.dynamic_index_in_dim(table, 1000 * k + j, keepdims=False)
            return j + 1, jax.lax.cond(j == 1, lambda: total - row, lambda: total + row)

        _, total = jax.lax.while_loop(lambda c: c[0] < 3, inner, (0, total))
        return k + 1, total

    return jax.lax.while_loop(lambda c: marks[c[0]] < x, outer, (0, jnp.zeros(3)))


@pytest.mark.parametrize("shared", [True, False])
def test_rows_of_large_arguments_are_read_from_memory(shared: bool) -> None:
    x, marks = np.linspace(1.0, 35.0, 5), np.arange(40.0)
    table = np.random.default_rng(0).normal(size=(5, LARGE, 3))
    given, axes = (table[0], (0, None, None)) if shared else (table, (0, 0, None))
    (part,) = explain(last_and_sum, x, given, marks, in_axes=axes).parts
    assert part.reason == ""
    assert part.operations < 100
    found = jax.jit(vectorize(last_and_sum, axes))(x, given, marks)
    wanted = jax.jit(jax.vmap(last_and_sum, axes))(x, given, marks)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)
    np.testing.assert_array_equal(found[0], wanted[0])
    for k, (count, total) in enumerate(zip(*found, strict=True)):
        rows = np.minimum(1000 * np.arange(count)[:, None] + np.arange(3), LARGE - 1)
        own = table[0 if shared else k][rows]
        np.testing.assert_allclose(total, (own * [[[1], [-1], [1]]]).sum((0, 1)), rtol=1e-11)


def test_a_large_argument_that_is_also_used_whole() -> None:
    def fn(x: Any, table: Any) -> Any:
        def more(carry: Any) -> Any:
            k, total = carry
            row = jax.lax.dynamic_index_in_dim(table, k, keepdims=False)
            return k + 1, total + x * row + table.sum()

        return jax.lax.while_loop(lambda c: c[0] < 20, more, (0, jnp.zeros(40)))[1]

    x, table = np.linspace(0.0, 1.0, 3), np.linspace(-1.0, 2.0, 1600).reshape(40, 40)
    found = jax.jit(vectorize(fn, (0, None)))(x, table)
    wanted = jax.jit(jax.vmap(fn, (0, None)))(x, table)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_known_rows_of_a_large_argument_are_read_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first compilation of the loop, with the equations before it, is the only one."""
    compilations = []

    def counted(*args: Any) -> Any:
        compilations.append(args)
        return loop_kernel(*args)

    monkeypatch.setattr(import_module("jaxmech.compiler.vectorize"), "loop_kernel", counted)

    def fn(x: Any, table: Any) -> Any:
        def more(total: Any, row: Any) -> tuple[Any, None]:
            return total + x * row * table[3], None

        return jax.lax.scan(more, 2 * table[-1], table, reverse=True)[0]

    x, table = np.linspace(0.0, 1.0, 3), np.linspace(-1.0, 2.0, 4800).reshape(3, 40, 40)
    found = jax.jit(vectorize(fn))(x, table)
    assert len(compilations) == 1
    wanted = 2 * table[:, -1] + x[:, None] * table.sum(1) * table[:, 3]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
