"""`jax.vmap` of `simulate` and its gradient, gradients of batches, and nested batches agree."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Solution, observe, simulate
from jaxmech.models import make
from tests.small import PENDULUM

TS = np.linspace(0.0, 0.5, 4)
ANGLES = np.array([0.2, 0.9, -0.4, 1.7, 2.5, 3.0])
LENGTHS = np.array([2.0, 1.0, 1.5, 2.5, 0.7, 1.2])


def run(angle: Any, l: Any, g: Any = 9.81) -> Solution:  # noqa: E741
    q = l * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
    v = 0.3 * l * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return simulate(PENDULUM.system, q, v, TS, {"m": 1.0, "l": l, "g": g}, steps=FixedSteps(3))


def end(angle: Any, l: Any, g: Any = 9.81) -> Any:  # noqa: E741
    sol = run(angle, l, g)
    return sol.q[-1] @ jnp.array([1.0, 2.0]) + sol.v[-1, 0]


@pytest.fixture(scope="module")
def batch() -> Solution:
    return jax.jit(jax.vmap(run))(ANGLES, LENGTHS)


def assert_equal_trees(one: Any, other: Any, **tolerance: float) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, **{"rtol": 1e-12, "atol": 1e-14, **tolerance})


def test_a_batch_is_its_members(batch: Solution) -> None:
    single = jax.jit(run)
    for k in range(6):
        member = jax.tree.map(lambda leaf, k=k: leaf[k], batch)
        assert_equal_trees(member, single(ANGLES[k], LENGTHS[k]), atol=1e-12)
    assert batch.q.shape == (6, 4, 2)
    assert batch.ts.shape == (6, 4)
    assert batch.status.shape == batch.t_failed.shape == batch.energy_drift.shape == (6,)
    assert batch.coordinates == ("x", "y")


def test_without_jit(batch: Solution) -> None:
    np.testing.assert_array_equal(jax.vmap(run)(ANGLES, LENGTHS).q, batch.q)


def test_nested(batch: Solution) -> None:
    """2 by 3, and every angle with every length."""
    inner = jax.vmap(run)
    nested = jax.jit(jax.vmap(inner))(ANGLES.reshape(2, 3), LENGTHS.reshape(2, 3))
    flat = jax.tree.map(lambda leaf: leaf.reshape(6, *leaf.shape[2:]), nested)
    assert_equal_trees(flat, batch, atol=1e-12)
    table = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(ANGLES, LENGTHS)
    assert table.q.shape == (6, 6, 4, 2)
    for k in range(6):
        np.testing.assert_allclose(table.q[k, k], batch.q[k], atol=1e-12)


def test_times_and_parameters_alone_may_be_batched() -> None:
    g = np.array([9.81, 1.62])
    moon = jax.jit(jax.vmap(lambda g: run(0.9, 2.0, g)))(g)
    np.testing.assert_allclose(moon.q[0], run(0.9, 2.0).q, rtol=1e-13)
    assert np.abs(moon.q[0, -1] - moon.q[1, -1]).max() > 0.1
    ts = np.stack([TS, 2 * TS])
    times = jax.vmap(
        lambda ts: simulate(*PENDULUM[:1], *PENDULUM[2:], ts, PENDULUM.params, steps=FixedSteps(1))
    )(ts)
    np.testing.assert_array_equal(times.ts, ts)


@pytest.mark.slow
def test_gradients_in_any_order() -> None:
    """vmap(grad) and grad(vmap) of nested batches, by parameters of each member and shared ones."""
    each = jax.jit(jax.vmap(jax.grad(end, argnums=(0, 1, 2)), (0, 0, None)))(ANGLES, LENGTHS, 9.81)

    def total(angles: Any, lengths: Any, g: Any) -> Any:
        return jax.vmap(end, (0, 0, None))(angles, lengths, g).sum()

    whole = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(ANGLES, LENGTHS, 9.81)
    np.testing.assert_array_equal(whole[0], each[0])
    np.testing.assert_array_equal(whole[1], each[1])
    np.testing.assert_allclose(whole[2], each[2].sum(), rtol=1e-13)
    nested = jax.jit(jax.vmap(jax.grad(total), (0, 0, None)))(
        ANGLES.reshape(2, 3), LENGTHS.reshape(2, 3), 9.81
    )
    np.testing.assert_allclose(nested.reshape(6), each[0], rtol=1e-12)
    h = 1e-5
    ends = jax.jit(jax.vmap(end))
    differences = (ends(ANGLES + h, LENGTHS) - ends(ANGLES - h, LENGTHS)) / (2 * h)
    np.testing.assert_allclose(each[0], differences, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_the_gradient_of_many_steps_takes_little_memory() -> None:
    """10,000 steps of 4,096 double pendulums, of whose states one in a hundred is stored."""
    model = make("double_pendulum")
    steps, size, states = 10_000, 4096, 8 * 8  # bytes of a state

    def far(q: Any, v: Any) -> Any:
        ts = jnp.array([0.0, 1e-3 * steps])
        return simulate(model.system, q, v, ts, model.params, steps=FixedSteps(steps)).q[-1].sum()

    start = jax.ShapeDtypeStruct((size, 4), float)
    compiled = jax.jit(jax.vmap(jax.grad(far, (0, 1)))).lower(start, start).compile()
    taken = compiled.memory_analysis().temp_size_in_bytes
    assert size * states * 100 < taken < 3 * size * states * 100


def test_batches_can_be_observed(batch: Solution) -> None:
    params = {"m": np.ones(6), "l": LENGTHS, "g": np.full(6, 9.81)}
    seen = jax.jit(jax.vmap(lambda sol, p: observe(PENDULUM.system, sol, p)))(batch, params)
    assert seen.multipliers["rod"].shape == (6, 4, 1)
    speed2 = np.sum(np.asarray(batch.v) ** 2, -1)
    expected = (9.81 * batch.q[..., 1] - speed2) / LENGTHS[:, None] ** 2
    np.testing.assert_allclose(seen.multipliers["rod"][..., 0], expected, rtol=1e-11)
