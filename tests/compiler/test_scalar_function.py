"""Functions that are read once: the same numbers, the same folding, and the same NaN."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import explain, vectorize
from jaxmech.compiler.frontend import primitives, scalar_function
from jaxmech.compiler.frontend.build import Kernel, function_kernel
from tests.compiler.test_fold_zeros import FUNCTIONS, POINTS, is_finite, much

Function = Callable[..., Any]


def repeated(fn: Function, times: int = 3) -> Function:
    """The results of a function in a short loop, which is unrolled."""
    return lambda x: lax.scan(lambda y, _: (y, fn(y)), x, None, length=times)[1]


def kernel_of(fn: Function, *args: Any) -> Kernel:
    return function_kernel(jax.make_jaxpr(fn)(*args))


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the arithmetic primitives that are read from now on."""
    names: list[str] = []
    for name in ("sin", "cos", "exp"):
        read = primitives.PRIMITIVES[name]

        def counted(g: Any, eqn: Any, *xs: Any, name: str = name, read: Any = read) -> Any:
            names.append(name)
            return read(g, eqn, *xs)

        monkeypatch.setitem(primitives.PRIMITIVES, name, counted)
    monkeypatch.setattr(scalar_function, "_KEPT", {})
    return names


def test_a_body_of_a_loop_is_read_once(readings: list[str]) -> None:
    def body(carry: Any, weight: Any) -> Any:
        return weight * jnp.sin(carry), carry

    kernel = kernel_of(lambda x: lax.scan(body, x, jnp.asarray([1.0, 2.0, 3.0, 0.0])), 1.0)
    assert kernel.operations == 1 + 2 + 2  # a weight of 1 needs no product, one of 0 no sine
    assert readings == ["sin"]


@jax.jit
def long(x: Any, y: Any) -> Any:
    """A call of enough equations to be read on its own."""
    for _ in range(12):
        x = jnp.sin(x * y) + jnp.exp(x)
    return x


def test_equal_calls_are_read_once_per_constants(readings: list[str]) -> None:
    def fn(x: Any) -> Any:
        return long(x, 2.0 + x) + long(2.0 * x, x)

    first = kernel_of(fn, 1.0)
    assert first.operations == 2 * 48 + 3
    assert len(readings) == 24
    # Also in another program, in which the same function is traced anew.
    again = kernel_of(lambda x: jax.jit(long.__wrapped__)(x, 3.0 + x), 1.0)
    assert again.operations == 48 + 1
    assert len(readings) == 24
    # A constant is folded: sin(0) is 0, and only the exponentials are left.
    zero = kernel_of(lambda x: long(x, 0.0), 1.0)
    assert zero.operations == 12
    assert len(readings) == 48


def test_not_more_functions_are_kept_than_the_limit(
    readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scalar_function, "MOST_KEPT", 2)
    for constant in (1.0, 2.0, 3.0, 4.0):
        assert kernel_of(lambda x, constant=constant: long(x, constant), 1.0).operations > 12
    assert [dict(constants) for _, constants in scalar_function._KEPT] == [
        {1: np.float64(constant).tobytes()} for constant in (3.0, 4.0)
    ]
    assert len(readings) == 4 * 24


@pytest.mark.parametrize(
    "name", ["root", "zero over a root", "mask", "a divisor that hides", "chosen", "constant"]
)
def test_a_repeated_function_hides_no_nan(name: str) -> None:
    fn, x = repeated(FUNCTIONS[name]), jnp.asarray(POINTS)
    mine, plain = jax.jit(vectorize(fn))(x), jax.jit(jax.vmap(fn))(x)
    finite = is_finite(plain, len(x))
    assert 0 < finite.sum() < len(x)
    assert explain(fn, x).parts[0].name == "function"  # the whole, with the loop unrolled
    np.testing.assert_array_equal(is_finite(mine, len(x)), finite)
    np.testing.assert_allclose(mine[finite], plain[finite], rtol=1e-14)


def test_a_zero_over_an_input_that_is_zero() -> None:
    # 0 / y is folded for a y that is unknown, but y is 0 in the second iteration.
    def fn(x: Any) -> Any:
        return lax.scan(lambda y, k: (y, 0.0 / k + y), x, jnp.asarray([1.0, 0.0, 2.0]))[1]

    x = jnp.arange(1.0, 4.0)
    assert explain(fn, x).parts[0].name == "function"
    assert np.isnan(jax.jit(vectorize(fn))(x)).tolist() == [[False, True, False]] * 3


def branches(x: Any) -> Any:
    """Two rare cases in the same function, each under its own condition."""

    def body(y: Any, limit: Any) -> Any:
        return lax.cond(y > limit, lambda: much(y), lambda: y) + 1.0, y

    return lax.scan(body, x, jnp.asarray([0.5, 1.5, 2.5]))


def indexed(x: Any) -> Any:
    """An index that is computed only where the function is read on its own."""
    table = jnp.stack([x, 2.0 * x, x**2])
    return lax.fori_loop(0, 3, lambda k, y: y + table[k], x)


def nested(x: Any) -> Any:
    """Loops in a loop, and integers that count."""

    def inner(k: Any, carry: Any) -> Any:
        y, total = carry
        return y + k * jnp.sin(0.01 * total * y), total + k

    return lax.fori_loop(0, 4, lambda k, c: lax.fori_loop(0, 3, inner, (c[0] + k, c[1])), (x, 1))


@pytest.mark.parametrize("fn", [branches, indexed, nested, repeated(much)])
def test_values_agree_with_vmap(fn: Function) -> None:
    x = jnp.linspace(0.0, 2.0, 21)
    mine, plain = jax.jit(vectorize(fn))(x), jax.jit(jax.vmap(fn))(x)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_each_use_has_branches_of_its_own() -> None:
    graph = kernel_of(branches, 1.0).reader.graph
    numbers = [(node.params, node.inputs[0]) for node in graph.nodes if node.op == "branch"]
    assert len(set(numbers)) == len({number for number, _ in numbers}) == 3
