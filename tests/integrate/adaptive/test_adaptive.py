"""Adaptive steps: errors, work, batches, failures, configuration."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    RK4,
    Adaptive,
    DormandPrince5,
    DormandPrince8,
    FixedSteps,
    Holonomic,
    Solution,
    Status,
    System,
    simulate,
)
from jaxmech.errors import SimulationError
from jaxmech.integrate import AbstractMethod, AbstractSteps
from jaxmech.integrate.methods.runge_kutta import AbstractPair
from tests.small import DOUBLE, PENDULUM, along, rod

TS = np.array([0.0, 0.1, 0.37, 0.4, 1.0])
PAIRS = {"5": DormandPrince5(), "8": DormandPrince8()}
by_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


@pytest.fixture(scope="module")
def exact() -> Solution:
    return run(DormandPrince8(), FixedSteps(per_save=60), DOUBLE)


def run(method: AbstractMethod, steps: AbstractSteps, case: Any, ts: Any = TS) -> Solution:
    return simulate(case.system, case.q, case.v, ts, case.params, method=method, steps=steps)


@by_pair
def test_errors_fall_in_proportion_to_the_tolerance(pair: AbstractPair, exact: Solution) -> None:
    tolerances = np.array([1e-6, 1e-8, 1e-10])
    sols = [run(pair, Adaptive(rtol=tol, atol=tol), DOUBLE) for tol in tolerances]
    errors = np.array([abs(sol.q - exact.q).max() for sol in sols])
    assert (errors < 20 * tolerances).all()
    slope = np.polyfit(np.log(tolerances), np.log(errors), 1)[0]
    assert 0.7 < slope < 1.3
    assert (np.diff([sol.accepted for sol in sols]) > 0).all()
    for sol in sols:
        assert sol.position_residual.max() < 1e-14
        assert sol.velocity_residual.max() < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("pair", [DormandPrince5(), DormandPrince8()], ids=["5", "8"])
def test_saved_times_do_not_change_the_steps(pair: AbstractPair) -> None:
    """Of a pair that interpolates with two states, and of one with three."""
    steps = Adaptive(rtol=1e-7, atol=1e-7)
    few, many = (run(pair, steps, DOUBLE, np.linspace(0.0, 1.0, count)) for count in (2, 101))
    assert few.accepted == many.accepted
    assert few.evaluations == many.evaluations
    np.testing.assert_allclose(few.q[-1], many.q[-1], rtol=1e-14)


@pytest.mark.slow
def test_saves_within_a_step_are_on_the_constraints_and_as_accurate(exact: Solution) -> None:
    ts = np.linspace(0.0, 1.0, 61)
    reference = run(DormandPrince8(), FixedSteps(per_save=4), DOUBLE, ts)
    for pair in (DormandPrince5(), DormandPrince8()):
        sol = run(pair, Adaptive(rtol=1e-9, atol=1e-9), DOUBLE, ts)
        assert sol.position_residual.max() < 1e-14
        assert abs(sol.q - reference.q).max() < 2e-8
        assert abs(sol.v - reference.v).max() < 2e-7


def test_work_is_counted() -> None:
    sol = run(DormandPrince5(), Adaptive(rtol=1e-4, atol=1e-4), DOUBLE)
    assert sol.evaluations == 2 + 6 * (sol.accepted + sol.rejected)
    assert sol.step * sol.accepted > 1.0
    fixed = run(RK4(), FixedSteps(10), DOUBLE)
    assert (fixed.accepted, fixed.rejected, fixed.evaluations) == (40, 0, 160)
    assert np.isnan(sol.t_stiff)


def test_backwards_in_time() -> None:
    there = run(DormandPrince8(), Adaptive(rtol=1e-10, atol=1e-10), DOUBLE)
    back = simulate(
        DOUBLE.system, there.q[-1], there.v[-1], TS[::-1], DOUBLE.params,
        steps=Adaptive(rtol=1e-10, atol=1e-10),
    )  # fmt: skip
    np.testing.assert_allclose(back.q[::-1], there.q, atol=1e-8)


METHOD, STEPS = DormandPrince5(), Adaptive(rtol=1e-7, atol=1e-9)


@jax.jit
@partial(jax.vmap, in_axes=(0, None))
def of_lengths(g: Any, ts: Any) -> Solution:
    return run(METHOD, STEPS, DOUBLE._replace(params={**DOUBLE.params, "g": g}), ts)


@pytest.mark.slow
def test_a_trajectory_has_the_same_bits_alone_and_in_any_batch() -> None:
    """Motions from slow to fast, so that neighbouring lanes have very different steps."""
    g = np.geomspace(0.1, 1000.0, 37)
    whole = of_lengths(g, TS)
    assert len(set(whole.accepted.tolist())) > 10
    turned, some = of_lengths(g[::-1], TS), of_lengths(g[7:19], TS)
    alone = run(METHOD, STEPS, DOUBLE._replace(params={**DOUBLE.params, "g": g[11]}))
    for name in ("q", "v", "accepted", "rejected", "integration_error", "t_failed"):
        values = np.asarray(getattr(whole, name))
        np.testing.assert_array_equal(np.asarray(getattr(turned, name))[::-1], values)
        np.testing.assert_array_equal(getattr(some, name), values[7:19])
        np.testing.assert_array_equal(getattr(alone, name), values[11])


@pytest.mark.slow
def test_most_steps() -> None:
    few = Adaptive(rtol=1e-9, atol=1e-9, max_steps=8)
    with pytest.raises(SimulationError, match=r"MAX_STEPS at t = 0\.\d+ s: .*`max_steps`") as error:
        run(DormandPrince5(), few, PENDULUM)
    sol = error.value.solution
    assert sol.accepted + sol.rejected == 8
    ts = np.linspace(0.0, 1.0, 101)  # also within the last step
    with pytest.raises(SimulationError) as error:
        run(DormandPrince5(), few, PENDULUM, ts)
    dense = error.value.solution
    np.testing.assert_array_equal(np.isfinite(dense.q[:, 0]), sol.t_failed >= ts)
    whole = run(DormandPrince5(), replace(few, max_steps=1000), PENDULUM)
    reached = sol.t_failed >= TS
    assert 1 < reached.sum() < len(TS)
    np.testing.assert_array_equal(np.isfinite(sol.q[:, 0]), reached)
    np.testing.assert_allclose(sol.q[reached], whole.q[reached], rtol=1e-13)


def test_times_out_of_order_end_with_a_status() -> None:
    """They are not known under `vmap`; -0.5 used to be taken as 0.5."""
    ts = jnp.array([TS, [0.0, -0.5, 0.3, 0.5, 1.0], [0.0, 0.1, 0.5, 1.0, 0.7], [*TS[:-1], np.nan]])
    sols = jax.vmap(lambda ts: run(METHOD, STEPS, DOUBLE, ts))(ts)
    np.testing.assert_array_equal(sols.status, [Status.OK, *[Status.NONFINITE] * 3])
    assert np.isnan(sols.q[1:, 1:]).all()


def test_a_singular_force_ends_in_underflow() -> None:
    """A force like 1 / (t - 0.5)^2 cannot be integrated across t = 0.5."""

    def force(q: Any, v: Any, t: Any, p: Any) -> Any:
        return jnp.array([1.0, 0.0]) / (t - 0.5) ** 2

    system = System(along, [Holonomic(rod)], force=force, coordinates=("x", "y"))
    sol = simulate(
        system, PENDULUM.q, PENDULUM.v, TS, PENDULUM.params,
        steps=Adaptive(rtol=1e-6, atol=1e-6), throw=False,
    )  # fmt: skip
    assert Status(int(sol.status)) in (Status.STEP_UNDERFLOW, Status.MAX_STEPS)
    assert 0.4 < sol.t_failed <= 0.5


@pytest.mark.slow
def test_steps_at_the_limit_of_stability_are_reported() -> None:
    """A damper of rate 1e4 that acts on a slow motion."""

    def force(q: Any, v: Any, t: Any, p: Any) -> Any:
        return -1e4 * (v - jnp.cos(t))

    system = System(lambda q, v, t, p: 0.5 * v @ v, force=force, coordinates=("x",))
    run = partial(simulate, system, np.zeros(1), np.ones(1), np.array([0.0, 1.0]), throw=False)
    whole = run(method=DormandPrince5(), steps=Adaptive(rtol=1e-4, atol=1e-4))
    assert whole.ok
    assert 0.0 < whole.t_stiff < 0.1
    np.testing.assert_allclose(whole.q[-1], np.sin(1.0), atol=1e-3)
    stopped = run(method=DormandPrince5(), steps=Adaptive(rtol=1e-4, atol=1e-4, max_steps=500))
    assert stopped.status == Status.STIFF
