"""`batched` is `jax.vmap` of the same function, whatever is batched and how deep."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.compiler import batched, off

draw = np.random.default_rng(0)
ONE = {"x": draw.normal(size=4), "tree": {"rows": draw.normal(size=(3, 4)), "by": 2.5}, "k": 4}
MANY = {
    "x": draw.normal(size=(5, 4)),
    "tree": {"rows": draw.normal(size=(5, 3, 4)), "by": draw.normal(size=5)},
    "k": np.arange(5),
}


def fn(x: Any, tree: Any, k: Any) -> Any:
    """A scan, a transcendental function, integers, and pytrees as argument and result."""
    total, _ = jax.lax.scan(lambda s, row: (jnp.sin(s) + row @ x, None), x.sum(), tree["rows"])
    return {"total": total * tree["by"], "count": k + 1, "x": (x, tree["rows"] / 3, None)}


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-13, atol=1e-15)
        assert left.dtype == right.dtype


def mapped(function: Any, axes: tuple[Any, ...]) -> Any:
    return jax.jit(jax.vmap(function, axes))


def test_alone_it_is_the_function() -> None:
    assert_same(jax.jit(batched(fn))(*ONE.values()), jax.jit(fn)(*ONE.values()))


@pytest.mark.slow
@pytest.mark.as_users
def test_a_trajectory_alone_is_a_batch_of_one() -> None:
    model = jm.models.pendulum()
    q, v = model.initial()
    ts = jnp.linspace(0.0, 1.0, 11)

    def run(q: Any, v: Any) -> Any:
        sol = jm.simulate(model.system, q, v, ts, model.params, steps=jm.FixedSteps(8))
        return sol.q, sol.v, sol.position_residual

    def end(q: Any, v: Any) -> Any:
        return run(q, v)[0][-1].sum()

    rows = jnp.tile(q, (3, 1)), jnp.tile(v, (3, 1))
    for fn in (run, jax.grad(end)):
        alone, many = jax.jit(fn), jax.jit(jax.vmap(fn))
        assert "@jaxmech_" in alone.lower(q, v).as_text()
        pairs = zip(*map(jax.tree.leaves, (alone(q, v), many(*rows))), strict=True)
        for one, each in pairs:
            # XLA computes the residual of the start, and may fuse a product with a sum there.
            np.testing.assert_allclose(np.stack([one] * 3), each, rtol=0.0, atol=1e-30)
    with off():
        assert "@jaxmech_" not in jax.jit(run).lower(q, v).as_text()


@pytest.mark.parametrize(
    "names",
    [("rows",), ("k",), ("x", "by"), ("x", "rows", "by", "k")],
    ids="-".join,
)
def test_under_vmap_it_is_vmap_of_the_function(names: tuple[str, ...]) -> None:
    def pick(name: str) -> tuple[Any, Any]:
        one, many = (tree[name] if name in tree else tree["tree"][name] for tree in (ONE, MANY))
        return (0, many) if name in names else (None, one)

    axes, args = {}, {}
    for name in ("x", "rows", "by", "k"):
        axes[name], args[name] = pick(name)
    order = (axes["x"], {"rows": axes["rows"], "by": axes["by"]}, axes["k"])
    values = (args["x"], {"rows": args["rows"], "by": args["by"]}, args["k"])
    assert_same(mapped(batched(fn), order)(*values), mapped(fn, order)(*values))


def test_any_axis_and_any_output_axis() -> None:
    axes, args = (1, None, None), (MANY["x"].T, ONE["tree"], ONE["k"])
    outs = {"total": 0, "count": 0, "x": (1, 2, None)}
    one, other = (jax.jit(jax.vmap(f, axes, outs))(*args) for f in (fn, batched(fn)))
    assert_same(one, other)
    assert one["x"][1].shape == (3, 4, 5)


def test_nested() -> None:
    def twice(function: Any) -> Any:
        inner = jax.vmap(function, (None, {"rows": 0, "by": None}, None))
        return jax.jit(jax.vmap(inner, (0, None, 0)))

    args = (MANY["x"], {"rows": MANY["tree"]["rows"], "by": 2.5}, MANY["k"])
    assert_same(twice(batched(fn))(*args), twice(fn)(*args))


def test_leaves_that_are_none() -> None:
    """Leaves may be None, as in a pytree from which integers were removed."""

    def some(x: Any, tree: Any) -> Any:
        return x * tree["a"], tree["b"]

    tree = {"a": jnp.arange(3.0), "b": None}
    out, nothing = jax.vmap(batched(some), (0, {"a": 0, "b": None}))(jnp.ones(3), tree)
    assert out.tolist() == [0.0, 1.0, 2.0]
    assert nothing is None


def test_the_function_is_traced_once_for_a_batch() -> None:
    """The function is traced for one trajectory, and not called for each."""
    calls = []

    def count(x: Any) -> Any:
        calls.append(x.shape)
        return 2 * x

    jax.vmap(batched(count))(jnp.ones((1000, 2)))
    assert set(calls) == {(2,)}
    assert len(calls) <= 3


def test_a_single_call_runs_as_the_batch_that_it_is_said_to_be_of() -> None:
    def damped(x: Any, p: Any) -> Any:
        decay = jnp.exp(p)
        return jax.lax.fori_loop(0, 40, lambda _, x: x - decay * jnp.sin(x), x)

    def program(differ: tuple[bool, bool] | None) -> str:
        return jax.jit(batched(damped, differ=differ)).lower(*args).as_text()

    args = jnp.linspace(0.1, 2.0, 7), jnp.linspace(-3.0, 2.0, 7)
    assert "stablehlo.exponential" in program((True, False))  # of what all share, by XLA
    assert "stablehlo.exponential" not in program(None)
    single = batched(damped, differ=(True, False))(*args)
    of_batch = jax.vmap(batched(damped), (0, None))(jnp.stack([args[0]] * 3), args[1])
    np.testing.assert_array_equal(single, of_batch[1])
