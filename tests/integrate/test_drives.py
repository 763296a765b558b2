"""Motion that constraints drive: drives that start, motions without freedom, given velocities."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import Adaptive, FixedSteps, simulate
from jaxmech.analysis import choose_steps

# Where no times are named, the drives start within steps on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::jaxmech.errors.TimesWarning")


def shaft_drive(q: Any, t: Any, p: Any) -> Any:
    return q[0] - p["speed"] * jnp.maximum(0.0, t - p["start"])


def wheels(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.25 * v[0] ** 2 + 0.1 * v[1] ** 2 - 1.5 * (q[0] - q[1]) ** 2


# Two wheels on a torsion bar: the first starts to turn, the second follows.
SHAFT = jm.System(wheels, constraints=[jm.Holonomic(shaft_drive)], coordinates=("one", "two"))
CART = jm.System(
    wheels,
    constraints=[jm.Nonholonomic(lambda q, v, t, p: v[0] - p["speed"] * (t > p["start"]))],
    coordinates=("one", "two"),
)
RATE = np.sqrt(15.0)
TS = np.linspace(0.0, 3.0, 13)
STARTS = np.array([0.3, 1.0, 1.7])
CASES = [(SHAFT, jm.DormandPrince5()), (SHAFT, jm.Rodas5P()), (CART, jm.DormandPrince8())]


def second(t: Any, start: Any, speed: float = 2.0) -> Any:
    """The angle of the second wheel."""
    s = np.maximum(0.0, t - start)
    return speed * (s - np.sin(RATE * s) / RATE)


def run(
    system: jm.System, start: Any, speed: Any = 2.0, ts: Any = TS, **policies: Any
) -> jm.Solution:
    zero = jnp.zeros(2, jnp.result_type(float))
    return simulate(system, zero, zero, ts, {"speed": speed, "start": start}, **policies)


@pytest.mark.slow
@pytest.mark.parametrize(("system", "pair"), CASES)
def test_adaptive_steps_do_not_pass_over_the_start_of_a_drive(system: Any, pair: Any) -> None:
    sols = jax.vmap(lambda start: run(system, start, method=pair, steps=Adaptive()))(STARTS)
    assert sols.ok.all()
    assert abs(sols.q[:, :, 1] - second(TS, STARTS[:, None])).max() < 1e-7
    assert (sols.accepted + sols.rejected < 250).all()
    assert sols.integration_error.max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("system", [SHAFT, CART], ids=["angle", "speed"])
def test_the_error_of_fixed_steps_is_not_underestimated(system: jm.System) -> None:
    starts = STARTS + 0.013
    for steps in (FixedSteps(5), FixedSteps(50)):
        sols = jax.vmap(lambda start, steps=steps: run(system, start, steps=steps))(starts)
        exact = second(TS, starts[:, None])
        error = abs(sols.q[:, :, 1] - exact)[:, -1] / np.ptp(exact, axis=1)
        assert (sols.integration_error > 0.5 * error).all()
        assert (sols.integration_error < 0.1).all()


@pytest.mark.filterwarnings("ignore::jaxmech.errors.StepWarning")
def test_a_drive_that_starts_with_the_default_step() -> None:
    sol = run(SHAFT, 1.0)
    assert sol.ok
    error = abs(sol.q[:, 1] - second(TS, 1.0)).max()
    assert error < 2e-3
    assert error / np.ptp(sol.q[:, 1]) < sol.integration_error < 2e-3


@pytest.mark.slow
def test_derivatives_by_speed_and_start_of_a_drive() -> None:
    def end(x: Any) -> Any:
        method, steps = jm.DormandPrince5(), Adaptive(times=x[1:])
        return run(SHAFT, x[1], x[0], TS[[0, -1]], method=method, steps=steps).q[-1, 1]

    x, s = jnp.array([2.0, 1.0]), 2.0
    wanted = [second(3.0, 1.0) / 2.0, -2.0 * (1 - np.cos(RATE * s))]
    assert np.allclose(jax.grad(end)(x), wanted, rtol=1e-6)
    assert np.allclose(jax.jacfwd(end)(x), wanted, rtol=1e-6)


def crank(q: Any, t: Any, p: Any) -> Any:
    angle = p["speed"] * t
    return jnp.stack([q @ q - 1.0, q[0] * jnp.sin(angle) - q[1] * jnp.cos(angle)])


@pytest.mark.slow
def test_the_default_step_of_a_motion_without_freedom() -> None:
    """A crank driven once a second: longer steps cannot be brought back onto the constraints."""
    system = jm.System(
        lambda q, v, t, p: 0.5 * v @ v, constraints=[jm.Holonomic(crank)], coordinates=("x", "y")
    )
    p = {"speed": 2 * np.pi}
    q, v = np.array([1.0, 0.0]), np.array([0.0, 2 * np.pi])
    ts = np.linspace(0.0, 10.25, 3)
    sol = simulate(system, q, v, ts, p)
    assert abs(sol.q[-1] - np.array([0.0, 1.0])).max() < 1e-9
    assert sol.integration_error < 1e-3
    for saves in (3, 11, 101):
        steps = choose_steps(system, q, v, np.linspace(0.0, 10.25, saves), p)
        assert 100 < steps.per_save * (saves - 1) < 1000


@pytest.mark.slow
def test_a_rope_that_is_reeled_in_while_nothing_else_moves() -> None:
    """All of the motion is that of the projection, and all accelerations are zero."""
    rope = jm.Holonomic(
        lambda q, t, p: jnp.sqrt(q @ q) - 1.0 + p["speed"] * jnp.maximum(0.0, t - p["start"])
    )
    system = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - 9.81 * q[1], constraints=[rope], coordinates=("x", "y")
    )
    start, p = (np.array([0.0, -1.0]), np.zeros(2)), {"speed": 0.3, "start": 1.05}
    for steps in (FixedSteps(times=(1.05,)), Adaptive(times=(1.05,))):
        sol = simulate(system, *start, TS, p, steps=steps)
        assert abs(sol.q[:, 1] + 1.0 - 0.3 * np.maximum(0.0, TS - 1.05)).max() < 1e-9
        assert 0 < sol.integration_error < 1e-3
