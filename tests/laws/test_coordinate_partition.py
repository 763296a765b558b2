"""Independent coordinates: Bravy's formulas, changing charts, absence of drift, failures."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    DormandPrince5,
    FixedSteps,
    Holonomic,
    Status,
    System,
    acceleration,
    simulate,
)
from jaxmech.laws import CoordinatePartition
from jaxmech.linalg import Pivots
from jaxmech.models import make
from tests.small import PENDULUM

LAW = CoordinatePartition()


@partial(jax.jit, static_argnums=0)
def motion_at(system: System, q: Any, v: Any, t: Any, params: Any) -> Any:
    return acceleration(system, q, v, t, params, formulation=LAW)


@partial(jax.jit, static_argnums=0)
def dependent_at(system: System, q: Any, v: Any, t: Any, params: Any) -> Any:
    return Pivots.of(system.equations(q, v, t, params).A).dependent


# Bravy 1987: the examples


def test_bead_on_a_parabola() -> None:
    """Section 10: lambda = -m x1'' / (2 x1) for x1 != 0, with g = +-sqrt(x2 - y).

    At x1 = 0, where this g ends, the other coordinate is the dependent one, and lambda is that of
    the weight and the turn of the path.
    """
    model = make("bead_on_parabola")
    p = {"m": 1.3, "g": 9.81}
    for x1, v1 in ((1.2, 0.7), (-0.8, 2.0), (0.6, -1.0)):
        q, v = model.initial({"x1": x1, "v1": v1}, p)
        motion = motion_at(model.system, q, v, 0.0, p)
        np.testing.assert_allclose(motion.multipliers, [-p["m"] * motion.qdd[0] / (2 * x1)])
        assert dependent_at(model.system, q, v, 0.0, p).tolist() == [1, 0]
        A = jnp.array([[-2 * x1, 1.0]])
        dg_dy = jax.grad(lambda y, q=q, x1=x1: np.sign(x1) * jnp.sqrt(q[1] - y))(0.0)
        np.testing.assert_allclose(Pivots.of(A).inverse(A), [[dg_dy], [0.0]], rtol=1e-14)
    q, v = model.initial({"x1": 0.0, "v1": 2.0}, p)
    motion = motion_at(model.system, q, v, 0.0, p)
    assert dependent_at(model.system, q, v, 0.0, p).tolist() == [0, 1]
    np.testing.assert_allclose(motion.multipliers, [p["m"] * (p["g"] + 2 * 2.0**2)], rtol=1e-14)


# trajectories

# Model, steps per second, and between how many charts it changes at the least.
RUNS = {
    "double_pendulum": (make("double_pendulum"), 1500, 4),
    "four_bars": (make("four_bars", {"bars": 1}), 500, 3),
    "rolling_wheel": (make("rolling_wheel"), 50, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_five_seconds_without_projection(name: str) -> None:
    """The motion agrees with projection, and satisfies the constraints at every step without it.

    The four-bar goes through poses where a constraint is redundant, five times. There the
    velocities are those of a projection, which has pivots close to zero.
    """
    model, rate, charts = RUNS[name]
    ts, q, v = jnp.linspace(0.0, 5.0, 51), *model.initial()
    method, steps = DormandPrince5(), FixedSteps(rate // 10)

    @jax.jit
    def runs(q: Any, v: Any) -> Any:
        run = partial(simulate, model.system, q, v, ts, model.params, method=method, steps=steps)
        return run(formulation=LAW, projection=None), run()

    ours, projected = runs(q, v)
    assert ours.status == projected.status == Status.OK
    np.testing.assert_allclose(ours.q, projected.q, rtol=0, atol=1e-8)
    np.testing.assert_allclose(ours.v, projected.v, rtol=0, atol=1e-8)
    assert ours.position_residual.max() < 1e-13
    assert ours.velocity_residual.max() < (1e-8 if name == "four_bars" else 1e-13)
    each = jax.vmap(lambda q, v, t: dependent_at(model.system, q, v, t, model.params))
    seen = np.unique(each(ours.q, ours.v, ts), axis=0)
    assert len(seen) >= charts, seen


def differences(fn: Any, x: Any, step: Any) -> Any:
    """h times the slope of fn along a step of length h, fourth order."""
    near, far = (fn(x + k * step) - fn(x - k * step) for k in (1, 2))
    return (8 * near - far) / 12


@pytest.mark.slow
def test_gradients_of_a_batch() -> None:
    """With respect to length and initial speed, across a change of chart, in both modes."""
    ts = np.linspace(0.0, 1.0, 6)

    def end(x: Any) -> Any:
        length, speed = x[0], x[1]
        q, v = length * jnp.array([0.6, -0.8]), speed * jnp.array([0.8, 0.6])
        params = {**PENDULUM.params, "l": length}
        sol = simulate(
            PENDULUM.system, q, v, ts, params,
            steps=FixedSteps(10), projection=None, formulation=LAW,
        )  # fmt: skip
        return sol.q[-1] @ jnp.array([1.0, 2.0]) + sol.v[-1, 0]

    x, h = np.array([[2.0, 1.0], [1.5, -3.0], [1.0, 5.0]]), 1e-3
    value = jax.jit(jax.vmap(end))
    slope = np.stack([differences(value, x, h * e) / h for e in np.eye(2)], axis=1)
    found = jax.jit(jax.vmap(jax.grad(end)))(x)
    np.testing.assert_allclose(found, slope, rtol=1e-7, atol=1e-7)


# failures

TS = np.linspace(0.0, 1.0, 11)
GONE = System(
    PENDULUM.system.lagrangian,
    [Holonomic(lambda q, t, p: q @ q - jnp.where(t > p["gone"], -1.0, p["l"] ** 2), "rod")],
    coordinates=("x", "y"),
)


def test_coordinates_that_cannot_be_found_end_in_a_status() -> None:
    """The rod has no real length for one member; the others are unaffected."""

    @jax.jit
    @jax.vmap
    def run(gone: Any) -> Any:
        params = {**PENDULUM.params, "gone": gone}
        return simulate(
            GONE, PENDULUM.q, PENDULUM.v, TS, params,
            steps=FixedSteps(5, times=(0.43,)), projection=None, formulation=LAW,
        )  # fmt: skip

    mixed, alone = run(np.array([9.0, 0.43, 9.0])), run(np.full(3, 9.0))
    assert mixed.status.tolist() == [Status.OK, Status.PROJECTION_FAILED, Status.OK]
    np.testing.assert_allclose(mixed.t_failed[1], 0.43)  # where a step ends, since the length jumps
    assert np.isfinite(mixed.q[1, :5]).all()
    assert np.isnan(mixed.q[1, 5:]).all()
    for k in (0, 2):
        np.testing.assert_array_equal(mixed.q[k], alone.q[k])


@pytest.mark.slow
def test_redundant_rows_that_disagree_end_in_a_status() -> None:
    """The second rod becomes longer than the first, and there is one pivot for both."""
    grows = Holonomic(lambda q, t, p: q @ q - p["l"] ** 2 - jnp.where(t > 0.43, 0.1, 0.0), "grows")
    system = System(
        PENDULUM.system.lagrangian, [*PENDULUM.system.constraints, grows], coordinates=("x", "y")
    )
    sol = simulate(
        system, PENDULUM.q, PENDULUM.v, TS, PENDULUM.params,
        steps=FixedSteps(5, times=(0.43,)), projection=None, formulation=LAW, throw=False,
    )  # fmt: skip
    assert sol.status == Status.PROJECTION_FAILED
    assert sol.rank == 1
    np.testing.assert_allclose(sol.t_failed, 0.43)  # where a step ends, since `grows` jumps


def test_a_step_that_is_too_coarse_has_a_status() -> None:
    q, v = PENDULUM.q, 20 * PENDULUM.v
    options = {"projection": None, "formulation": CoordinatePartition(iterations=1)}
    options["steps"] = FixedSteps(1)
    sol = simulate(PENDULUM.system, q, v, TS, PENDULUM.params, throw=False, **options)
    assert sol.status == Status.PROJECTION_FAILED
