"""The estimated integration error compared with the true error, from a much finer run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import RK4, DormandPrince5, FixedSteps, System, simulate
from jaxmech.integrate import ForwardMode, ReverseMode

OSCILLATOR = System(lambda q, v, t, p: 0.5 * (v @ v - q @ q), coordinates=("x",))
KEPLER = System(
    lambda q, v, t, p: 0.5 * v @ v + 1 / jnp.sqrt(q @ q), coordinates=("x", "y"), force=None
)
DAMPED = System(
    lambda q, v, t, p: 0.5 * v @ v + 9.81 * jnp.cos(q[0]),
    force=lambda q, v, t, p: -0.5 * v,
    coordinates=("angle",),
)
CASES: dict[str, tuple[System, Any, Any, float]] = {
    "oscillator": (OSCILLATOR, [1.0], [0.0], 20.0),
    "Kepler's orbit": (KEPLER, [1.0, 0.0], [0.0, 1.2], 20.0),
    "damped pendulum": (DAMPED, [2.0], [0.0], 10.0),
}


def true_error(
    system: System, q: Any, v: Any, ts: Any, method: Any, steps: Any
) -> tuple[float, float]:
    """The relative error at the end as `integration_error` defines it, and its estimate."""
    sol = simulate(system, q, v, ts, method=method, steps=steps)
    fine = simulate(system, q, v, ts, method=DormandPrince5(), steps=FixedSteps(4 * steps.per_save))
    width, speed = np.ptp(fine.q, axis=0).max(), np.abs(fine.v).max()
    errors = abs(sol.q - fine.q).max() / width, abs(sol.v - fine.v).max() / speed
    return float(max(errors)), float(sol.integration_error)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("method", "per_save"), [(RK4(), 4), (DormandPrince5(), 4)], ids=str)
def test_it_is_within_a_factor_of_twenty(name: str, method: Any, per_save: int) -> None:
    system, q, v, end = CASES[name]
    true, estimate = true_error(
        system, q, v, np.linspace(0.0, end, 101), method, FixedSteps(per_save)
    )
    assert 1 / 20 < estimate / true < 20


def test_uneven_saves_and_no_saves_in_between() -> None:
    _, q, v, end = CASES["damped pendulum"]
    rng = np.random.default_rng(3)
    inner = np.linspace(0, end, 401)[1:-1] + rng.uniform(-0.4, 0.4, 399) * end / 400
    even, uneven, ends = (
        float(simulate(DAMPED, q, v, ts, steps=FixedSteps(per_save)).integration_error)
        for ts, per_save in (
            (np.linspace(0, end, 401), 1),
            (np.array([0, *inner, end]), 1),
            ([0.0, end], 400),
        )
    )
    assert 1 < uneven / even < 10  # longer steps among shorter ones
    assert 0.2 < ends / even < 5


@pytest.mark.slow
def test_it_has_no_derivative_and_one_value_per_trajectory() -> None:
    ts = jnp.linspace(0.0, 1.0, 21)

    def both(q: Any, forward: bool = False) -> Any:
        mode = ForwardMode() if forward else ReverseMode()
        sol = simulate(DAMPED, q, jnp.zeros(1), ts, derivative=mode, steps=FixedSteps(1))
        return sol.q[-1, 0], sol.integration_error

    q = jnp.array([[2.0], [0.1], [0.0]])
    alone = jnp.stack([both(x)[1] for x in q])
    np.testing.assert_allclose(jax.vmap(both)(q)[1], alone, rtol=1e-3, atol=1e-18)
    assert min(alone[:2]) > 1e-7
    assert alone[2] == 0.0  # at rest
    slope, tangent = jax.jvp(lambda x: both(x, True), (q[0],), (q[0],))[1]
    assert slope != 0
    assert tangent == 0


def test_a_small_fast_motion_is_not_hidden_by_a_large_slow_one() -> None:
    system = System(
        lambda q, v, t, p: 0.5 * (v @ v - q[0] ** 2 - p["k"] * q[1] ** 2), coordinates=("a", "b")
    )
    w, ts = 97.3, np.linspace(0.0, 2 * np.pi, 3)
    sol = simulate(system, [1.0, 1e-6], [0.0, 0.0], ts, {"k": w**2}, steps=FixedSteps(6400))
    speed = -1e-6 * w * np.sin(w * ts)
    # Relative to 1 % of the highest speed, as the estimate.
    error = abs(np.asarray(sol.v[:, 1]) - speed).max() / 0.01
    assert error / 3 < sol.integration_error < 3 * error
