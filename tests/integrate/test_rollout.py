"""Steps and save times: against a Runge-Kutta method in numpy, forwards, backwards and uneven."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    RK4,
    Baumgarte,
    DormandPrince5,
    FixedSteps,
    Projection,
    Solution,
    System,
    simulate,
)
from tests.small import DOUBLE, OSCILLATOR, PENDULUM, PRESCRIBED, solved, times_of

FORCED = System(
    lambda q, v, t, p: 0.5 * v @ v - 0.5 * p["k"] * q @ q,
    force=lambda q, v, t, p: jnp.stack([jnp.sin(t), -0.3 * v[1] * t]),
    coordinates=("x", "y"),
)


def reference(tableau: Any, ts: Any, per_save: int) -> np.ndarray:
    """The forced oscillator in plain numpy, (T, 4)."""

    def rate(y: Any, t: Any) -> Any:
        return np.array([*y[2:], np.sin(t) - 4 * y[0], -0.3 * y[3] * t - 4 * y[1]])

    y, out = np.array([1.0, 0.0, 0.0, 3.0]), []
    for t, t_next in pairwise(ts):
        out.append(y)
        h = (t_next - t) / per_save
        for k in range(per_save):
            rates: list[Any] = []
            for node, stage in zip(tableau.nodes, tableau.stages, strict=True):
                inner = sum((a * r for a, r in zip(stage, rates, strict=False)), np.zeros(4))
                rates.append(rate(y + h * inner, t + (k + node) * h))
            y = y + h * sum(b * r for b, r in zip(tableau.weights, rates, strict=True))
    return np.array([*out, y])


@pytest.mark.parametrize(
    ("method", "per_save"),
    [(RK4(), 1), (RK4(), 3), (DormandPrince5(), 1)],
    ids=repr,
)
def test_steps_are_those_of_the_tableau(method: Any, per_save: int) -> None:
    """At uneven save times, with a force that depends on time."""
    ts = np.array([0.5, 0.6, 0.65, 1.0, 1.5])
    sol = simulate(
        FORCED, *OSCILLATOR[2:], ts, OSCILLATOR.params, method=method, steps=FixedSteps(per_save)
    )
    expected = reference(method.tableau, ts, per_save)
    np.testing.assert_allclose(np.hstack([sol.q, sol.v]), expected, rtol=1e-12, atol=1e-12)


def test_steps_per_save_are_steps_that_are_not_saved() -> None:
    ts = jnp.linspace(0.0, 1.0, 13)
    coarse = simulate(*PENDULUM[:1], *PENDULUM[2:], ts[::4], PENDULUM.params, steps=FixedSteps(4))
    fine = simulate(*PENDULUM[:1], *PENDULUM[2:], ts, PENDULUM.params, steps=FixedSteps(1))
    np.testing.assert_allclose(coarse.q, fine.q[::4], rtol=1e-13)
    np.testing.assert_allclose(coarse.v, fine.v[::4], rtol=1e-13, atol=1e-13)
    worst = np.asarray(fine.position_residual)[1:].reshape(3, 4).max(1)
    np.testing.assert_allclose(coarse.position_residual[1:], worst, atol=1e-15)


def test_backwards_in_time_it_comes_back() -> None:
    ts = jnp.linspace(0.0, 1.0, 13)
    there = simulate(PENDULUM.system, *PENDULUM[2:], ts, PENDULUM.params, steps=FixedSteps(4))
    back = simulate(
        PENDULUM.system, there.q[-1], there.v[-1], ts[::-1], PENDULUM.params, steps=FixedSteps(4)
    )
    np.testing.assert_allclose(back.q[::-1], there.q, atol=1e-7)
    np.testing.assert_allclose(back.v[::-1], there.v, atol=1e-7)


def test_a_step_of_no_length_changes_nothing() -> None:
    """Traced times are not checked; repeated ones do no harm."""
    run = jax.jit(
        lambda ts: simulate(
            PENDULUM.system, *PENDULUM[2:], ts, PENDULUM.params, steps=FixedSteps(1)
        )
    )
    sol = run(jnp.array([0.0, 0.1, 0.1, 0.2]))
    np.testing.assert_allclose(sol.q[1], sol.q[2], atol=1e-15)
    assert sol.ok


STEPS = (20, 40, 80, 160)
SPAN = 1.0


@pytest.fixture(scope="module")
def exact() -> np.ndarray:
    """The double pendulum by an independent integrator: (q, v) at the end."""

    def angle(rod: Any, speed: Any) -> tuple[float, float]:
        return np.arctan2(rod[0], -rod[1]), (rod[0] * speed[1] - rod[1] * speed[0]) / (rod @ rod)

    q, v = DOUBLE.q, DOUBLE.v
    (a, wa), (b, wb) = angle(q[:2], v[:2]), angle(q[2:] - q[:2], v[2:] - v[:2])
    return solved([a, b, wa, wb], SPAN)


def sweep(**policies: Any) -> Solution:
    """The same motion of the double pendulum with ever smaller steps."""
    times = np.stack([times_of(steps, STEPS[-1], SPAN) for steps in STEPS])
    policies = {"steps": FixedSteps(1), **policies}
    run = jax.vmap(lambda ts: simulate(DOUBLE.system, *DOUBLE[2:], ts, DOUBLE.params, **policies))
    return jax.jit(run)(times)


def slopes(errors: Any) -> np.ndarray:
    """By what power of the step the errors fall."""
    return np.log2(np.asarray(errors)[:-1] / np.asarray(errors)[1:])


def errors(sol: Solution, exact: np.ndarray) -> np.ndarray:
    return np.abs(np.hstack([sol.q[:, -1], sol.v[:, -1]]) - exact).max(1)


@pytest.mark.parametrize(("method", "order"), [(RK4(), 4), (DormandPrince5(), 5)], ids=repr)
def test_order_with_projection(method: Any, order: int, exact: np.ndarray) -> None:
    sol = sweep(method=method)
    assert sol.ok.all()
    measured = slopes(errors(sol, exact))
    assert np.all(np.abs(measured[1:] - order) < 0.35), measured
    assert errors(sol, exact)[-1] < {2: 5e-3, 4: 1e-6, 5: 1e-8}[order]
    energy = slopes(sol.energy_drift)
    assert energy[-1] > order - 0.3, energy
    assert sol.energy_drift[-1] < {2: 1e-2, 4: 1e-6, 5: 1e-8}[order]
    assert sol.position_residual[-1].max() < 1e-13
    assert sol.velocity_residual[-1].max() < 1e-12


@pytest.mark.slow
def test_without_projection_the_constraints_drift(exact: np.ndarray) -> None:
    """They drift by the error of the method, of order 4, which the residuals show."""
    none, feedback = sweep(projection=None), sweep(projection=Baumgarte(alpha=10.0, beta=10.0))
    kept = sweep(projection=Projection())
    worst = [sol.position_residual.max(1) for sol in (none, feedback, kept)]
    assert np.all(worst[2] < 1e-3 * worst[0])
    assert np.all(worst[1] < worst[0])
    assert np.all(worst[2] < worst[1])
    assert np.all(slopes(worst[0]) > 3.5)
    assert worst[0][-1] > 1e-10
    for sol in (none, feedback):
        assert np.all(slopes(errors(sol, exact))[1:] > 3.6)
        assert np.all(np.diff(sol.velocity_residual.max(1)) < 0)
    q, p = np.asarray(none.q[-1]), DOUBLE.params
    first, second = q[:, :2], q[:, 2:] - q[:, :2]
    phi = [(np.sum(r**2, 1) - l**2) / 2 for r, l in ((first, p["l1"]), (second, p["l2"]))]  # noqa: E741
    np.testing.assert_allclose(none.position_residual[-1], np.abs(phi).max(0), atol=1e-15)


def test_a_prescribed_motion_is_followed() -> None:
    """As many constraints as coordinates, all of them depending on time."""
    ts = jnp.linspace(0.0, 2.0, 21)
    sol = simulate(PRESCRIBED.system, *PRESCRIBED[2:], ts, PRESCRIBED.params, steps=FixedSteps(1))
    np.testing.assert_allclose(sol.q, np.stack([np.sin(ts), 2 * ts**3], 1), atol=1e-13)
    np.testing.assert_allclose(sol.v, np.stack([np.cos(ts), 6 * ts**2], 1), atol=1e-12)
    assert sol.rank == 2
