"""`compiler.jacobian` agrees with `jax.jacfwd`, and takes few directions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.compiler import jacobian
from jaxmech.compiler.jacobian import dependencies

X = np.random.default_rng(0).uniform(0.5, 1.5, 12)


def neighbours(x: Any) -> Any:
    """Blocks of three that depend on themselves and on the block before."""
    blocks = x.reshape(-1, 3)
    before = jnp.concatenate([jnp.zeros((1, 3)), blocks[:-1]])
    return (jnp.sin(blocks) * blocks[:, ::-1] + before.sum(1)[:, None]).ravel()


def shared(x: Any) -> Any:
    """Columns of zeros, a column in all rows, and a choice."""
    return jnp.where(x[2:6] > 1.0, x[2:6] ** 2, x[6:10]) * x[0]


def looped(x: Any) -> Any:
    return jax.lax.fori_loop(0, 20, lambda _, y: y + 0.1 * jnp.roll(y, 1) * x, x)


@pytest.mark.parametrize("fn", [neighbours, shared, looped, lambda x: x[:0]])
def test_it_is_that_of_jax(fn: Any) -> None:
    def both(x: Any) -> Any:
        return jacobian(fn, x), jax.jacfwd(fn)(x)

    ours, reference = jax.jit(both)(X)
    np.testing.assert_allclose(ours, reference, atol=1e-15)


def test_its_derivatives_are_those_of_jax() -> None:
    def bent(of: Any) -> Any:
        return lambda x: (of(neighbours, x) ** 3).sum()

    ours = jax.jit(jax.grad(bent(jacobian)))(X)
    reference = jax.jit(jax.grad(bent(lambda fn, x: jax.jacfwd(fn)(x))))(X)
    np.testing.assert_allclose(ours, reference, rtol=1e-12)
    assert np.abs(reference).min() > 0


def test_directions_do_not_grow_with_the_number_of_blocks() -> None:
    def widest(blocks: int) -> int:
        x = jnp.ones(3 * blocks)
        jaxpr = jax.make_jaxpr(lambda x: jacobian(neighbours, x))(x).jaxpr
        sines = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "cos"]
        pushed = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "mul"]
        assert sines
        return max(eqn.outvars[0].aval.size // x.size for eqn in pushed)

    assert widest(4) == widest(12) == 6


def test_dependencies_through_traced_values() -> None:
    found = []

    def run(factor: Any) -> Any:
        found.append(dependencies(jax.make_jaxpr(lambda x: factor * x[::-1] + x[0])(jnp.ones(3))))
        return factor

    jax.jit(run)(2.0)
    np.testing.assert_array_equal(found[0], [[1, 0, 1], [1, 1, 0], [1, 0, 0]])
