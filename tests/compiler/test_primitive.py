"""The call of native code as a primitive of JAX: its results, and equations compiled with it."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import batched, explain, off, vectorize
from jaxmech.compiler.explain import part
from jaxmech.compiler.frontend import from_jaxpr as reading
from jaxmech.compiler.frontend import jaxprs
from jaxmech.compiler.frontend.jaxprs import call_content
from jaxmech.utils.jax_internals import ClosedJaxpr, Jaxpr, JaxprEqn, without_unused

STEPS = 20


def audited(x: Any) -> Any:
    """A loop with an audit in its carry and in its saved results."""

    def body(carry: Any, _: Any) -> Any:
        y, worst = carry
        y = jnp.sin(y) + x
        miss = jnp.abs(jnp.cosh(y).sum() - jnp.tanh(y[0]))
        return (y, jnp.maximum(worst, miss)), (y, miss)

    return lax.scan(body, (x, jnp.zeros(())), None, length=STEPS)


def batch(*sizes: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(*sizes, 3)))


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for eqn in jaxpr.eqns:
        content = call_content(eqn)
        if content is None:
            yield eqn
        else:
            yield from equations(content.jaxpr)


def program(fn: Callable[..., Any], *args: Any) -> list[JaxprEqn]:
    """The compiled equations, without those that no result needs."""
    closed: ClosedJaxpr = jax.make_jaxpr(fn)(*args)
    return list(equations(without_unused(closed).jaxpr))


def native(fn: Callable[..., Any], *args: Any) -> JaxprEqn:
    """The one call of native code in it."""
    (eqn,) = [eqn for eqn in program(fn, *args) if eqn.primitive.name == "lanes"]
    return eqn


def test_unused_outputs_are_eliminated() -> None:
    def asked(x: Any) -> Any:
        return vectorize(audited)(x)[0][0]

    x = batch(20)
    whole, less = (part("", native(fn, x).params["kernel"]) for fn in (vectorize(audited), asked))
    assert less.operations < whole.operations / 2
    np.testing.assert_allclose(jax.jit(asked)(x), jax.vmap(audited)(x)[0][0], rtol=1e-13)
    assert "lanes" not in {e.primitive.name for e in program(lambda x: (asked(x), 1)[1], x)}


def test_a_batch_of_batches_is_one_call() -> None:
    x = batch(3, 7)
    nested = jax.vmap(vectorize(audited))
    assert native(nested, x).params["sizes"] == (3, 7)
    for mine, plain in zip(
        jax.tree.leaves(nested(x)), jax.tree.leaves(jax.vmap(jax.vmap(audited))(x)), strict=True
    ):
        np.testing.assert_allclose(mine, plain, rtol=1e-12, atol=1e-13)


def test_a_batch_with_something_that_all_of_its_members_share() -> None:
    def one(x: Any, shared: Any) -> Any:
        return lax.fori_loop(0, STEPS, lambda _, y: jnp.sin(y) * shared, x)

    x, shared = batch(4, 6), batch(4)
    mine = jax.vmap(vectorize(one, (0, None)))(x, shared)
    plain = jax.vmap(jax.vmap(one, (0, None)))(x, shared)
    np.testing.assert_allclose(mine, plain, rtol=1e-12)


def leading(x: Any) -> Any:
    """A loop after a product with a constant matrix, whose result is wanted as well."""
    start = jnp.eye(3) @ jnp.exp(x)
    return lax.fori_loop(0, STEPS, lambda _, y: jnp.sin(y) + x, start), start.sum()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are compiled separately from their surroundings, as those with long sequences are."""
    monkeypatch.setattr(jaxprs, "LARGEST_SEQUENCES", -1)


@pytest.mark.usefixtures("apart")
def test_the_prologue_of_a_loop_is_compiled_with_it() -> None:
    x = batch(5)
    names = {eqn.primitive.name for eqn in program(vectorize(leading), x)}
    assert "lanes" in names
    assert not names & {"exp", "dot_general", "scan"}
    for mine, plain in zip(vectorize(leading)(x), jax.vmap(leading)(x), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-13)


@pytest.mark.usefixtures("apart")
def test_constants_in_a_prologue_are_folded() -> None:
    with_constant = explain(leading, batch(5)).parts[0]
    without = explain(
        lambda x: lax.fori_loop(0, STEPS, lambda _, y: jnp.sin(y) + x, jnp.exp(x)), batch(5)
    ).parts[0]
    assert with_constant.operations == without.operations < with_constant.requested


def test_a_function_with_a_short_loop_is_one_kernel() -> None:
    x = batch(5)
    assert repr(explain(leading, x)).startswith("function: ")
    names = [eqn.primitive.name for eqn in program(vectorize(leading), x)]
    assert names.count("lanes") == 1
    assert not {"exp", "reduce_sum"} & set(names)


def test_repeated_operations_are_counted_as_requested() -> None:
    (found,) = explain(lambda x: jnp.sin(x) * jnp.sin(x), jnp.ones(5)).parts
    assert (found.requested, found.operations) == (3, 2)


def test_a_loop_that_all_trajectories_share_runs_once() -> None:
    def shared(x: Any, y: Any) -> Any:
        return x * plain_loop(y).sum()

    x, y = batch(5), jnp.ones(3)
    names = [eqn.primitive.name for eqn in program(vectorize(shared, (0, None)), x, y)]
    assert {"scan", "while"} & set(names)
    np.testing.assert_allclose(
        vectorize(shared, (0, None))(x, y), jax.vmap(shared, (0, None))(x, y), rtol=1e-13
    )


def plain_loop(x: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda _, y: jnp.sin(y) + x, x)


def test_effects_before_a_loop_happen() -> None:
    seen: list[float] = []

    def watched(x: Any) -> Any:
        jax.debug.callback(lambda y: seen.append(float(y)), x[0])
        return plain_loop(x)

    x = batch(5)
    np.testing.assert_allclose(jax.jit(vectorize(watched))(x), jax.vmap(plain_loop)(x), rtol=1e-13)
    jax.effects_barrier()
    assert sorted(seen) == sorted(map(float, x[:, 0]))


@pytest.mark.usefixtures("apart")
def test_a_large_prologue_is_computed_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("jaxmech.compiler.vectorize")
    monkeypatch.setattr(module, "MOST_PASSED", 2)
    x = batch(5)
    assert "exp" in {eqn.primitive.name for eqn in program(vectorize(leading), x)}
    for mine, plain in zip(vectorize(leading)(x), jax.vmap(leading)(x), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-13)


def test_a_short_loop_that_is_large_stays_one(
    monkeypatch: pytest.MonkeyPatch, forget_readings: Callable[[], None]
) -> None:
    def staged(x: Any) -> Any:
        def step(_: Any, y: Any) -> Any:
            weights = jnp.array([0.5, 0.25, 0.125])
            return lax.scan(lambda z, w: (jnp.sin(z) + w * x, None), y, weights)[0]

        return lax.fori_loop(0, STEPS, step, x)

    x = batch(5)
    unrolled = explain(staged, x).parts[0].operations
    monkeypatch.setattr(reading, "LARGEST_UNROLLED", 20)
    forget_readings()
    assert explain(staged, x).parts[0].operations < unrolled
    np.testing.assert_allclose(vectorize(staged)(x), jax.vmap(staged)(x), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_bits_do_not_depend_on_the_size_of_the_batch(dtype: type) -> None:
    def fn(x: Any) -> Any:
        def turn(_: Any, y: Any) -> Any:
            return jnp.sin(y) * jnp.sqrt(1.5 + jnp.cos(y[::-1])) + 0.3 * x / (2.0 + y * y)

        return lax.fori_loop(0, STEPS, turn, x)

    run = vectorize(fn)
    every = run(batch(300).astype(dtype))
    for size in (1, 2, 7, 8, 33, 256, 257):
        np.testing.assert_array_equal(run(batch(300)[:size].astype(dtype)), every[:size])


def test_programs_of_different_settings_are_not_confused() -> None:
    inner = jax.jit(batched(plain_loop))

    def is_native() -> bool:
        return "custom_call" in jax.jit(jax.vmap(inner)).lower(batch(5)).as_text()

    assert is_native()
    with off():
        assert not is_native()
    assert is_native()


def test_results_of_many_pages() -> None:
    """Large results are requested in large pages, wherever their memory begins."""
    x = jnp.arange(600_001.0)
    np.testing.assert_array_equal(vectorize(lambda x: x + 1.0)(x), x + 1.0)
