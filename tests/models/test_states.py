"""Start variables lead to consistent states: by default, at random, in batches, with gradients."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.models import CATALOGUE, Model, make

SAMPLES = 64


def residuals(model: Model, q: Any, v: Any, params: Any) -> tuple[Any, Any]:
    """Largest violation of the constraints at the levels of positions and of velocities."""
    q, v, t, params = model.system.arguments(q, v, 0.0, params)
    position = model.system.dynamics.position_level(q, t, params)
    velocity = model.system.dynamics.velocity_level(q, v, t, params)
    return jnp.max(jnp.abs(position), initial=0.0), jnp.max(jnp.abs(velocity), initial=0.0)


def scattered(values: Any, width: float, seed: int) -> dict[str, Any]:
    """A batch of values around the given ones: relative scatter, absolute where they are zero."""
    draw = np.random.default_rng(seed)

    def batch(value: Any) -> np.ndarray:
        value = np.asarray(value, float)
        noise = draw.uniform(-width, width, (SAMPLES, *value.shape))
        return value + noise * np.where(value == 0, 1.0, value)

    return {name: batch(value) for name, value in values.items()}


@pytest.mark.parametrize("name", CATALOGUE)
def test_random_starts_and_parameters_are_consistent_in_a_batch(name: str) -> None:
    model = make(name)
    starts, params = scattered(model.start, 0.2, seed=1), scattered(model.params, 0.05, seed=2)
    q, v = jax.jit(jax.vmap(model.state))(starts, params)
    assert q.shape == v.shape == (SAMPLES, model.system.n)
    position, velocity = jax.jit(jax.vmap(partial(residuals, model)))(q, v, params)
    size = 1 + np.max(np.abs(v), axis=1)
    assert np.all(position < 1e-13)
    assert np.all(velocity < 1e-13 * size)


@pytest.mark.parametrize("name", CATALOGUE)
def test_state_has_finite_derivatives(name: str) -> None:
    model = make(name)
    jacobians = jax.jit(jax.jacfwd(model.state, argnums=(0, 1)))(
        jax.tree.map(jnp.asarray, dict(model.start)), jax.tree.map(jnp.asarray, dict(model.params))
    )
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(jacobians))


@pytest.mark.parametrize("name", CATALOGUE)
def test_single_precision_stays_single(name: str) -> None:
    model = make(name)
    start, params = (
        {key: jnp.asarray(value, jnp.float32) for key, value in values.items()}
        for values in (model.start, model.params)
    )
    q, v = jax.eval_shape(model.state, start, params)
    assert q.dtype == v.dtype == jnp.float32
    blocks = jax.tree.leaves(jax.eval_shape(model.system.equations, q, v, 0.0, params))
    assert {block.dtype for block in blocks} == {np.dtype("float32")}


def test_andrews_angles_do_not_jump_over_a_turn_of_the_crank() -> None:
    """All bodies but the crank and the coupler only swing: their angles stay smooth."""
    model = make("andrews")
    beta = jnp.linspace(0.0, 4 * jnp.pi, 2001)
    starts = {"beta": beta, "beta_rate": jnp.ones_like(beta)}
    q, v = jax.jit(jax.vmap(model.state, in_axes=(0, None)))(starts, dict(model.params))
    assert np.all(np.isfinite(v))
    assert np.max(np.abs(np.diff(q[:, 2:], axis=0))) < 0.02


def test_chain_and_four_bars_take_any_size() -> None:
    for model in (make("chain", {"links": 1}), make("four_bars", {"bars": 5})):
        position, velocity = residuals(model, *model.initial(), model.params)
        assert max(position, velocity) < 1e-13


def test_systems_made_twice_are_equal() -> None:
    """Compiled functions with the system as a static argument are found again."""
    for name in CATALOGUE:
        assert make(name).system == make(name).system
        assert hash(make(name).system) == hash(make(name).system)
