"""Sensitivities against central differences, alone and in a batch, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Status, models, simulate
from jaxmech.analysis import sensitivities
from jaxmech.run import slopes_by_groups
from tests.test_gradients import central

MODEL = models.double_pendulum()
TS = jnp.linspace(0.0, 0.8, 5)
THETA = {"theta1": 0.4, "masses": jnp.array([1.0, 2.0])}


def start(theta: Any) -> tuple[Any, Any, Any]:
    params = {**MODEL.params, "m1": theta["masses"][0], "m2": theta["masses"][1]}
    return *MODEL.initial({"theta1": theta["theta1"]}, params), params


def unpacked(x: Any) -> Any:
    return {"theta1": x[0], "masses": x[1:]}


@pytest.mark.slow
def test_equal_central_differences() -> None:
    found = jax.jit(
        lambda theta: sensitivities(MODEL.system, start, theta, TS, steps=FixedSteps(5))
    )(THETA)

    def states(x: Any) -> jax.Array:
        q0, v0, params = start(unpacked(x))
        sol = simulate(MODEL.system, q0, v0, TS, params, steps=FixedSteps(5), throw=False)
        return jnp.stack([sol.q, sol.v]).ravel()

    slopes = central(states, np.array([0.4, 1.0, 2.0]), 1e-3).reshape(2, len(TS), 4, 3)
    assert np.abs(slopes).max() > 0.1
    for ours, expected in zip((found.q, found.v), slopes, strict=True):
        np.testing.assert_allclose(ours["theta1"], expected[..., 0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(ours["masses"], expected[..., 1:], rtol=1e-7, atol=1e-9)
    assert int(found.solution.status) == Status.OK


@pytest.mark.parametrize("together", [1, 2])
def test_derivatives_in_groups_are_those_of_the_whole(together: int) -> None:
    matrix = jnp.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])
    x = jnp.array([0.3, -0.2, 0.7])
    slopes, value = slopes_by_groups(lambda x: (jnp.sin(matrix @ x), x.sum()), x, together)
    expected = np.cos(np.asarray(matrix @ x))[None] * np.asarray(matrix).T
    np.testing.assert_allclose(slopes, expected, rtol=1e-14)
    np.testing.assert_allclose(value, 0.8, rtol=1e-14)


def test_a_batch_closes_over_its_own_start() -> None:
    """`start` may use values of the enclosing `vmap`; a failed member does not affect others."""
    angles = jnp.array([0.1, 0.5, 0.9])
    stretched = jnp.array([1.0, 1.0, 1.3])

    def one(angle: Any, stretch: Any) -> Any:
        def start_here(theta: Any) -> tuple[Any, Any, Any]:
            params = {**MODEL.params, "g": theta}
            q0, v0 = MODEL.initial({"theta1": angle}, params)
            return stretch * q0, v0, params

        return sensitivities(MODEL.system, start_here, 9.81, TS, steps=FixedSteps(5))

    found, compiled = jax.vmap(one)(angles, stretched), jax.jit(one)
    for k in range(2):
        alone = compiled(angles[k], 1.0)
        np.testing.assert_allclose(found.q[k], alone.q, rtol=1e-12, atol=1e-14)
    assert found.solution.status.tolist() == [Status.OK, Status.OK, Status.INCONSISTENT]
    assert np.isnan(found.q[2, 1:]).all()
