"""JAX's default precision, float32: steps, estimates and tolerances that it can resolve."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

ABOUT_STEPS = "error:the integration error is about"  # which other tests ignore
CHOSEN = jm.FixedSteps()
MODEL = jm.models.pendulum()
END = (-0.18151, -0.98339)  # after 100 s, by steps of 4 ms in float64


@pytest.fixture
def float32() -> Iterator[None]:
    """A process in which `jax_enable_x64` is not set."""
    with jax.enable_x64(False):
        yield


def swing(steps: Any = CHOSEN, seconds: float = 100.0) -> jm.Solution:
    ts = jnp.linspace(0.0, seconds, 101)
    return jm.simulate(MODEL.system, *MODEL.initial(), ts, MODEL.params, steps=steps)


@pytest.mark.slow
@pytest.mark.filterwarnings(ABOUT_STEPS)
def test_the_default_step_does_what_it_does_in_float64(float32: None) -> None:
    sol = swing()
    assert sol.q.dtype == jnp.float32
    np.testing.assert_allclose(sol.q[-1], END, atol=2e-3)
    # A target of 1.2e-4 in place of 1e-6 takes a third of the steps.
    assert 1 / 6 < int(sol.accepted) / 25_600 < 1 / 2
    assert 1e-5 < sol.integration_error < 1e-3


@pytest.mark.filterwarnings(ABOUT_STEPS)
def test_few_saves_of_a_slow_motion_have_short_enough_steps(float32: None) -> None:
    """Round-off hides the error of the first trial, from which one step a save seemed enough."""
    ts = jnp.linspace(0.0, 0.3, 4)
    chosen = jm.simulate(MODEL.system, *MODEL.initial(), ts, MODEL.params)
    assert int(chosen.accepted) >= 12
    assert chosen.integration_error < 1e-3


@pytest.mark.parametrize(("per_save", "error"), [(40, 1.6e-3), (200, 2.5e-6)])
def test_an_error_within_round_off_of_a_step_is_estimated(
    float32: None, per_save: int, error: float
) -> None:
    """The error is that of the estimate in float64, and at least the resolution."""
    sol = swing(jm.FixedSteps(per_save))
    resolution = 100 * per_save * float(jnp.finfo(jnp.float32).eps) / 128
    assert max(error, resolution) / 5 < sol.integration_error < 5 * max(error, resolution)


def test_round_off_of_a_small_motion_is_told_from_coarse_steps(float32: None) -> None:
    with pytest.warns(jm.errors.StepWarning, match="so small a motion; .*jax_enable_x64"):
        small = swing(jm.FixedSteps(1), seconds=0.02)
    assert small.integration_error == small.resolution > 1e-3
    assert "too coarse" not in repr(small)
    with pytest.warns(jm.errors.StepWarning, match="the step is too coarse; give a larger"):
        coarse = swing(jm.FixedSteps(1), seconds=20.0)
    assert coarse.integration_error > 10 * coarse.resolution > 0


@pytest.mark.slow
def test_saves_at_every_step_and_batches_give_the_same_estimate(float32: None) -> None:
    q, v = MODEL.initial()

    def error(ts: Any, per_save: int) -> Any:
        steps = jm.FixedSteps(per_save)
        sol = jm.simulate(MODEL.system, q, v, ts, MODEL.params, steps=steps)
        return sol.integration_error

    whole = error(jnp.linspace(0.0, 4.0, 5), 50)
    saved = jax.vmap(lambda end: error(jnp.linspace(0.0, end, 201), 1))(jnp.array([4.0, 2.0]))
    assert 0.9 < float(whole / saved[0]) < 1.1
    assert 0 < saved[1] < saved[0]


def test_a_tolerance_below_round_off_is_named_with_its_remedy(float32: None) -> None:
    with pytest.warns(
        jm.errors.PrecisionWarning, match=r"`rtol` = 1e-08 is below .*jax_enable_x64"
    ):
        sol = swing(jm.Adaptive(), seconds=5.0)
    assert int(sol.accepted) < 100
    np.testing.assert_allclose(sol.q[-1], swing(jm.FixedSteps(200), seconds=5.0).q[-1], atol=1e-4)


def test_float64_after_float32_in_a_process() -> None:
    """As in a notebook that switches it on after its first run, of a mechanism here."""
    bar = jm.parts.planar_body("bar", mass="m", inertia=0.3)
    pin = jm.parts.revolute("pin", jm.parts.ground, (0, 0), bar, (0, 0.5))
    hanging = jm.parts.Mechanism([bar], [pin], [jm.parts.gravity(9.81)], {"m": 1.2})

    def end() -> Any:
        q, v = hanging.guess({"pin": jm.parts.Start(0.5)})
        ts = jnp.linspace(0.0, 0.3, 3)
        return jm.simulate(hanging.system, q, v, ts, hanging.params, steps=jm.FixedSteps(4)).q[-1]

    with jax.enable_x64(False):
        single = end()
    double = end()
    assert (single.dtype, double.dtype) == (jnp.float32, jnp.float64)
    np.testing.assert_allclose(single, double, rtol=1e-5)


@pytest.mark.slow
def test_events_at_times_far_from_zero_are_reported() -> None:
    """In float32 neighbouring times at a million seconds are 0.06 s apart."""
    free = jm.System(lambda q, v, t, p: 0.5 * v @ v, coordinates=("x",))
    half = jm.Event(lambda q, v, t, p: q[0] - 0.5, name="half")

    def run(t0: float, dtype: Any = np.float32) -> jm.Solution:
        ts = np.asarray([t0, t0 + 1], dtype)
        start = np.zeros(1, dtype), np.ones(1, dtype)
        return jm.simulate(free, *start, ts, steps=jm.FixedSteps(4), events=half)

    with pytest.warns(jm.errors.PrecisionWarning, match=r"near 1e\+06 s .* located to 0\.5 s only"):
        run(1e6)
    assert run(0.0).events["half"].q[0, 0] == pytest.approx(0.5, abs=1e-5)
    assert run(1e6, np.float64).events["half"].q[0, 0] == pytest.approx(0.5, abs=1e-5)
