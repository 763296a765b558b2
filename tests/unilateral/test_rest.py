"""A ball that bounces until it rests, alone, in a batch and with derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.unilateral.systems import BALL, G, height, time_to_rest

TS = jnp.linspace(0.0, 2.0, 11)
FIXED, BY_TOLERANCE = jm.FixedSteps(10), jm.Adaptive(max_steps=256)


def dropped(e: Any, steps: Any = FIXED, ts: Any = TS, start: Any = 1.0) -> jm.Solution:
    return jm.simulate(BALL, start * jnp.ones(1), jnp.zeros(1), ts, {"e": e}, steps=steps)


@pytest.mark.parametrize(
    "steps", [FIXED, pytest.param(BY_TOLERANCE, marks=pytest.mark.slow)], ids=["fixed", "tolerance"]
)
def test_a_ball_comes_to_rest_and_stays(steps: Any) -> None:
    e = jnp.array([0.0, 0.3, 0.6])
    sols = jax.vmap(lambda e: dropped(e, steps))(e)
    hits = sols.events["floor closes"]
    first = np.sqrt(2 / G)
    for k in range(len(e)):
        assert sols.status[k] == jm.Status.OK
        # The sum of all bounces, but for those slower than a millionth.
        last = hits.t[k, hits.count[k] - 1]
        np.testing.assert_allclose(last, time_to_rest(float(e[k])), rtol=1e-5)
        count = min(int(hits.count[k]), 5)
        between = 2 * first * e[k] ** jnp.arange(1, count)
        np.testing.assert_allclose(jnp.diff(hits.t[k, :count]), between, rtol=1e-9)
        rests = time_to_rest(float(e[k])) < TS
        assert rests.any()
        assert not sols.q[k][rests].any()
        assert not sols.v[k][rests].any()
        np.testing.assert_array_equal(sols.events.active["floor"][k], rests)
    # A single ball is compiled in another form than a batch.
    np.testing.assert_allclose(dropped(e[1], steps).q, sols.q[1], atol=1e-14)


def test_derivatives_go_through_all_bounces() -> None:
    def time_of_bounce(e: Any, start: Any) -> Any:
        return dropped(e, start=start).events["floor closes"].t[3]

    # first + 2 first (e + e^2 + e^3), first = sqrt(2 start / g)
    wrt_e, wrt_start = jax.grad(time_of_bounce, argnums=(0, 1))(0.5, 1.0)
    first = np.sqrt(2 / G)
    np.testing.assert_allclose(wrt_e, 2 * first * (1 + 1.0 + 0.75), rtol=1e-9)
    np.testing.assert_allclose(wrt_start, first * (1 + 2 * 0.875) / 2, rtol=1e-9)


@pytest.mark.slow
def test_an_implicit_method_finds_all_bounces() -> None:
    def bounces(e: Any) -> tuple[Any, jm.Solution]:
        start, policies = (jnp.ones(1), jnp.zeros(1)), {"method": jm.Rodas5P(), "steps": FIXED}
        sol = jm.simulate(BALL, *start, TS, {"e": e}, **policies)
        return sol.events["floor closes"].t[2], sol

    first = np.sqrt(2 / G)
    (third, sol), slope = jax.value_and_grad(bounces, has_aux=True)(0.3)
    np.testing.assert_allclose([third, slope], [first * 1.78, first * 3.2], rtol=1e-9)
    hits = sol.events["floor closes"]
    np.testing.assert_allclose(hits.t[hits.count - 1], time_to_rest(0.3), rtol=1e-5)
    assert not sol.q[-1].any()


def test_the_floor_pushes_while_the_ball_rests() -> None:
    sol = dropped(jnp.asarray(0.3))
    push = jm.observe(BALL, sol, {"e": jnp.asarray(0.3)}).multipliers["floor"]
    np.testing.assert_allclose(push[:, 0], np.where(sol.events.active["floor"], G, 0.0))


@pytest.mark.slow
def test_a_rest_speed_ends_the_bounces() -> None:
    quiet = jm.System(
        BALL.lagrangian,
        [jm.Unilateral(height, restitution=0.5, rest_speed=1.5, name="floor")],
        coordinates=("y",),
    )
    sol = jm.simulate(quiet, jnp.ones(1), jnp.zeros(1), TS, steps=FIXED)
    # Impacts at 4.43 and 2.21 m/s, of which the second one would rebound at 1.1 m/s.
    assert sol.events["floor closes"].count == 2


@pytest.mark.slow
def test_single_precision() -> None:
    ts, e = TS.astype(jnp.float32), jnp.float32(0.3)
    sol = jm.simulate(BALL, jnp.ones(1, jnp.float32), jnp.zeros(1, jnp.float32), ts, {"e": e},
                      steps=FIXED)  # fmt: skip
    assert sol.q.dtype == jnp.float32
    assert not sol.q[-1].any()
