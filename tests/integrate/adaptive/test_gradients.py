"""Derivatives through the accepted steps, in both modes, alone and in batches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxmech import Adaptive, DormandPrince5, simulate
from jaxmech.integrate import ForwardMode
from jaxmech.integrate.trajectory import StepRecord
from tests.small import DOUBLE, PENDULUM, QUATERNION
from tests.test_gradients import central

WEIGHTS = np.random.default_rng(0).normal(size=(4, 8))
GIVEN = {
    "p": {name: jnp.asarray(value) for name, value in DOUBLE.params.items()},
    "rate": jnp.asarray(0.3),
    "ts": jnp.array([0.0, 0.13, 0.3, 0.7]),
}
X, UNRAVEL = ravel_pytree(GIVEN)
ANGLES = 0.4, 1.1


def start(x: Any) -> tuple[Any, Any]:
    """Both rods at given angles, the upper one turning."""
    (a, b), l1, l2 = ANGLES, x["p"]["l1"], x["p"]["l2"]
    upper = l1 * jnp.array([np.cos(a), -np.sin(a)])
    across = l1 * x["rate"] * jnp.array([-np.sin(a), -np.cos(a)])
    lower = upper + l2 * jnp.array([np.cos(b), -np.sin(b)])
    return jnp.concatenate([upper, lower]), jnp.concatenate([across, across])


def motion(flat: Any) -> Any:
    """A number that depends on all saved states."""
    x = UNRAVEL(flat)
    sol = simulate(
        DOUBLE.system, *start(x), x["ts"], x["p"],
        method=DormandPrince5(), steps=Adaptive(rtol=1e-10, atol=1e-10, max_steps=500),
    )  # fmt: skip
    return (WEIGHTS * jnp.concatenate([sol.q, sol.v], axis=1)).sum()


def test_both_modes_agree_with_differences() -> None:
    """With respect to initial velocities, parameters (also of the initial state) and save times."""
    reverse = jax.jit(jax.grad(motion))(X)
    wanted = central(lambda x: motion(x)[None], X, h=1e-3)[0]
    np.testing.assert_allclose(reverse, wanted, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(motion))(X), reverse, rtol=1e-11)


def few(x: Any) -> Any:
    """A number of a short motion with few steps, for programs that compile fast."""
    return of_pendulum(jnp.stack([x, jnp.ones_like(x)]))


def of_pendulum(x: Any) -> Any:
    """The same as a function of g and of the speed."""
    params = {**PENDULUM.params, "g": x[0]}
    sol = simulate(
        PENDULUM.system, PENDULUM.q, x[1] * PENDULUM.v, np.array([0.0, 0.2, 0.3]), params,
        method=DormandPrince5(), steps=Adaptive(rtol=1e-6, atol=1e-6, max_steps=64),
    )  # fmt: skip
    return (sol.q * WEIGHTS[:3, :2]).sum()


@pytest.mark.slow
def test_orders_of_transformations() -> None:
    """Gradients of a batch, in a batch and in a loop, are those of each trajectory."""
    g = jnp.array([1.0, 9.81, 100.0])
    each = jax.jit(jax.vmap(jax.grad(few)))(g)
    total = jax.jit(jax.grad(lambda gs: jax.vmap(few)(gs).sum()))(g)
    looped = jax.jit(lambda gs: jax.lax.map(jax.grad(few), gs))(g)
    alone = jax.jit(jax.grad(few))(g[1])
    np.testing.assert_allclose(total, each, rtol=1e-11)
    np.testing.assert_allclose(looped, each, rtol=1e-11)
    np.testing.assert_allclose(alone, each[1], rtol=1e-11)


@pytest.mark.slow
def test_second_derivatives() -> None:
    x, gradient = jnp.array([9.81, 1.3]), jax.jit(jax.grad(of_pendulum))
    found = jax.jit(jax.jacfwd(jax.grad(of_pendulum)))(x)
    np.testing.assert_allclose(found, found.T, rtol=1e-6)
    change = 1e-4 * jnp.eye(2)
    wanted = [(gradient(x + d) - gradient(x - d)) / 2e-4 for d in change]
    np.testing.assert_allclose(found, jnp.stack(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_singular_mass_matrix_and_closed_over_values() -> None:
    """A quaternion, whose stiffness is not passed as a parameter."""

    def end(k: Any) -> Any:
        params = {**QUATERNION.params, "k": k}
        sol = simulate(
            QUATERNION.system, QUATERNION.q, QUATERNION.v, np.array([0.0, 0.8]), params,
            steps=Adaptive(rtol=1e-10, atol=1e-10, max_steps=100), derivative=ForwardMode(),
        )  # fmt: skip
        return sol.q[-1]

    run = jax.jit(end)
    slope = jax.jit(jax.jacfwd(end))(0.4)
    wanted = (run(0.4 + 1e-4) - run(0.4 - 1e-4)) / 2e-4
    np.testing.assert_allclose(slope, wanted, atol=1e-7)


@pytest.mark.slow
def test_a_failed_trajectory_has_nan_derivatives_and_leaves_others_alone() -> None:
    method, steps = DormandPrince5(), Adaptive(rtol=1e-6, atol=1e-6, max_steps=20)

    def end(g: Any) -> Any:
        sol = simulate(
            DOUBLE.system, DOUBLE.q, DOUBLE.v, np.array([0.0, 0.01, 1.0]),
            {**DOUBLE.params, "g": g}, method=method, steps=steps, throw=False,
        )  # fmt: skip
        return sol.q[-1, 0], sol.q[1, 0]

    g = jnp.array([1.0, 1000.0])
    last, early = jax.jit(jax.vmap(jax.jacrev(end)))(g)
    assert np.isfinite(last[0])
    assert np.isnan(last[1])
    assert np.isfinite(early).all()


NAN = np.nan
# Two steps and a save between them, the second step up to event 1; rows beyond them as in memory.
MOVES = jnp.array([[0.1, 0, 0], [-3.0, 0, 0], [0.2, 2, 5], *3 * [[NAN] * 3]])
STARTS = jnp.array([[1.0, 2.0, 0.0], [1.5, 2.5, 0.1], [NAN, NAN, NAN]])
RECORD = StepRecord(MOVES, STARTS, jnp.asarray(3), jnp.asarray(4))


def test_rows_beyond_the_moves_are_not_read() -> None:
    usual, begin = jnp.asarray(0.5), jnp.asarray(0.0)
    moves = [RECORD.move(jnp.asarray(k), begin, usual) for k in range(4)]
    assert [float(x.size) for x in moves] == [0.1, 0.5, 0.2, 0.5]
    assert [int(x.save) for x in moves] == [0, 3, 0, 0]
    assert [(int(x.which), int(x.row)) for x in moves] == [(-1, -1), (-1, -1), (1, 4), (-1, -1)]
    assert [bool(x.is_made) for x in moves] == [True, True, True, False]


def test_a_search_for_nan_finds_none_in_rows_that_were_not_written() -> None:
    with jax.debug_nans(True):
        masked = RECORD.finished(jnp.asarray(3), jnp.asarray(4))
    assert np.isnan(RECORD.finished(jnp.asarray(3), jnp.asarray(4)).moves).any()
    assert np.isfinite(masked.moves).all()
    np.testing.assert_array_equal(masked.moves[:3], MOVES[:3])
    np.testing.assert_array_equal(masked.starts, [*STARTS[:2], [0, 0, 0]])
