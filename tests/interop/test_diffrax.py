"""Motions through diffrax: on the constraints, with unsupported solvers refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.interop.diffrax import to_diffrax
from tests.small import PENDULUM, QUATERNION, SKATE

diffrax = pytest.importorskip("diffrax", reason="diffrax is not installed: jaxmech[diffrax]")

START = tuple(map(jnp.asarray, PENDULUM[2:]))
TIGHT = diffrax.PIDController(rtol=1e-10, atol=1e-12)
TS = jnp.linspace(0.0, 1.0, 8)


def solve(system: Any, y0: Any, params: Any, solver: Any = None, **options: Any) -> Any:
    term, projected = to_diffrax(system, solver)
    given = {"stepsize_controller": TIGHT, "dt0": 0.01, "saveat": diffrax.SaveAt(ts=TS), **options}
    dt0 = given.pop("dt0")
    return diffrax.diffeqsolve(term, projected, 0.0, 1.0, dt0, y0, args=params, **given)


@pytest.mark.slow
def test_values_between_steps_are_those_of_simulate_and_on_the_rod() -> None:
    sol = solve(PENDULUM.system, START, PENDULUM.params)
    ours = jm.simulate(PENDULUM.system, *START, TS, PENDULUM.params, steps=jm.FixedSteps(100))
    q, v = sol.ys
    np.testing.assert_allclose(q, ours.q, atol=2e-8)
    np.testing.assert_allclose(v, ours.v, atol=2e-7)
    np.testing.assert_allclose((q * q).sum(1), 4.0, atol=1e-14)
    np.testing.assert_allclose((q * v).sum(1), 0.0, atol=1e-14)


@pytest.mark.slow
def test_a_stage_kept_from_the_last_step_is_not_reused() -> None:
    """Steps of Tsit5 with a kept last stage (FSAL), from the projected state."""
    from jaxmech.interop.diffrax.solver import project

    y, steps = START, 3
    term, projected = to_diffrax(PENDULUM.system)
    for k in range(steps):
        t = 0.1 * k
        state = diffrax.Tsit5().init(term, t, t + 0.1, y, PENDULUM.params)
        y, *_ = diffrax.Tsit5().step(term, t, t + 0.1, y, PENDULUM.params, state, made_jump=False)
        y = project(projected.scheme, t + 0.1, y, PENDULUM.params)
    stepped = START
    state = projected.init(term, 0.0, 0.1, stepped, PENDULUM.params)
    for k in range(steps):
        t = 0.1 * k
        stepped, _, _, state, _ = projected.step(
            term, t, t + 0.1, stepped, PENDULUM.params, state, made_jump=False
        )
    np.testing.assert_allclose(stepped[0], y[0], atol=1e-14)
    np.testing.assert_allclose(stepped[1], y[1], atol=1e-14)


@pytest.mark.slow
def test_gradients_include_the_projection() -> None:
    def end(g: Any) -> Any:
        sol = solve(
            PENDULUM.system, START, {**PENDULUM.params, "g": g},
            saveat=diffrax.SaveAt(t1=True), dt0=0.1,
            stepsize_controller=diffrax.ConstantStepSize(),
        )  # fmt: skip
        return sol.ys[0][-1, 0]

    end = jax.jit(end)
    expected = (end(9.811) - end(9.809)) / 2e-3
    np.testing.assert_allclose(jax.grad(end)(9.81), expected, rtol=1e-6)


@pytest.mark.slow
def test_a_failed_projection_is_tried_again_with_a_shorter_step() -> None:
    """With a constant step the result is NaN."""
    fast = START[0], 30 * START[1]
    sol = solve(PENDULUM.system, fast, PENDULUM.params, dt0=0.9)
    assert np.isfinite(sol.ys[0]).all()
    constant = diffrax.ConstantStepSize()
    sol = solve(
        PENDULUM.system, fast, PENDULUM.params, dt0=0.5, stepsize_controller=constant, throw=False
    )
    assert np.isnan(sol.ys[0][-1]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "solver"),
    [(QUATERNION, diffrax.Dopri8()), (SKATE, diffrax.Kvaerno5())],
    ids=["singular M", "nonholonomic"],
)
def test_other_systems_and_an_implicit_solver(case: Any, solver: Any) -> None:
    y0 = tuple(map(jnp.asarray, case[2:]))
    ours = jm.simulate(case.system, *y0, TS, case.params, steps=jm.FixedSteps(100))
    q, v = solve(case.system, y0, case.params, solver).ys
    np.testing.assert_allclose(q, ours.q, atol=1e-6)
    np.testing.assert_allclose(v, ours.v, atol=1e-6)
