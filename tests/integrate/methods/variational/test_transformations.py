"""Long-time methods under vmap and differentiation, on the double pendulum from its angles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import RATTLE, FixedSteps, simulate
from jaxmech.compiler import explain
from tests.small import DOUBLE

TS = np.linspace(0.0, 0.2, 5)
START = np.array([0.9, 0.4, 9.81])
KINDS = [RATTLE]


def swing(method: Any, per_save: int) -> Any:
    """From two angles at rest and g."""

    def run(start: Any) -> Any:
        rods = [length * jnp.stack([jnp.sin(x), -jnp.cos(x)]) for x, length in zip(
            start[:2], (DOUBLE.params["l1"], DOUBLE.params["l2"]), strict=True
        )]  # fmt: skip
        q = jnp.concatenate([rods[0], rods[0] + rods[1]])
        params = {**DOUBLE.params, "g": start[2]}
        return simulate(
            DOUBLE.system, q, jnp.zeros(4), TS, params, method=method, steps=FixedSteps(per_save)
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_native_code_with_the_bits_of_single_runs(kind: Any) -> None:
    run = swing(kind(), 5)
    starts = np.linspace(0.3, 1.1, 5)[:, None] * START
    together, alone = jax.vmap(run)(starts), run(starts[3])
    np.testing.assert_array_equal(together.q[3], alone.q)
    np.testing.assert_array_equal(together.v[3], alone.v)
    assert [part.reason for part in explain(run, starts).parts] == [""]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_both_modes(kind: Any) -> None:
    """Against central differences, with respect to the initial state and a parameter."""

    @jax.jit
    def end(start: Any) -> Any:
        sol = swing(kind(), 3)(start)
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    steps = 1e-5 * np.eye(3)
    expected = np.stack([(end(START + d) - end(START - d)) / 2e-5 for d in steps], axis=1)
    np.testing.assert_allclose(jax.jacfwd(end)(START), expected, atol=1e-8)
    np.testing.assert_allclose(jax.jacrev(end)(START), expected, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: Any) -> None:
    def height(g: Any) -> Any:
        return swing(kind(), 3)(jnp.stack([0.9, 0.4, g])).q[-1, 3]

    slope = jax.jit(jax.grad(height))
    expected = (slope(9.811) - slope(9.809)) / 2e-3
    np.testing.assert_allclose(jax.grad(slope)(9.81), expected, rtol=1e-5)
