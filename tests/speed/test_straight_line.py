"""C from a scalar graph agrees with JAX, and unsupported operations are reported."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from experiments.speed import straight_line as route
from experiments.speed.cases import make
from experiments.speed.jax_routes import end_of_simulation

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
draw = np.random.default_rng(3)
X, Y = draw.uniform(-2, 2, (37, 3)), draw.uniform(-2, 2, (37, 2))  # no whole number of vectors


def operations(x: Array, y: Array) -> tuple[Array, Array]:
    """All operations that graphs of mechanisms contain."""
    a, b, c = x
    numbers = [
        jnp.sin(30 * a), jnp.cos(30 * b), jnp.sin(1e7 * a), jnp.cos(a), jnp.sin(a),
        jnp.sqrt(jnp.abs(c)), a**3, 1 / b**2, jnp.maximum(a, b), jnp.minimum(a, 0.5),
        jnp.clip(a, b, 1.0), -a, jnp.where(a > 0.0, jnp.inf, -jnp.inf),
    ]  # fmt: skip
    less, more = a < b, c > 0.5
    truths = [
        less, ~less, less & more, less | more, jnp.isfinite(a / b), jnp.isnan(a), a != b,
        *(op(a, b) for op in (lax.lt, lax.le, lax.gt, lax.ge, lax.eq)), c.astype(bool),
    ]  # fmt: skip
    count = less.astype(int) + 1
    integers = [count, jnp.where(more, count, 5), count < 2, count == 2, more.astype(int) + count]
    both = [jnp.asarray(value, float) for value in truths + integers]
    return jnp.stack(numbers), jnp.stack(both)


@pytest.mark.slow
@needs_compiler
def test_the_route_reaches_the_states_of_simulate() -> None:
    case = make("pendulum", batch=50, steps=20, step_size=5e-3)
    start = {"theta": np.linspace(-3.0, 3.0, 50), "omega": np.linspace(5.0, -2.0, 50)}
    q0, v0 = map(np.asarray, jax.vmap(case.model.initial)(start))
    prepared = route.straight_line(case, q0, v0)
    run = jax.vmap(end_of_simulation(case, None), in_axes=(0, 0, None))
    expected = jax.jit(run)(q0, v0, case.model.params)
    assert prepared.compile_seconds > 0
    for result, exact in zip(prepared.run(), expected, strict=True):
        np.testing.assert_allclose(result, exact, rtol=0, atol=1e-11 * np.abs(exact).max())
