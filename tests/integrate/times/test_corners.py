"""Corners and jumps of functions of time, found in the functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Adaptive, DormandPrince5, FixedSteps, Holonomic, System, simulate
from jaxmech.integrate.times import step_times
from jaxmech.integrate.times.run_times import TimesWarning

TS = np.linspace(0.0, 10.0, 11)
ZERO = np.zeros(1)
X, Y = np.array([-2.0, 1.0, 2.5, 4.0, 30.0]), np.array([0.0, 1.0, -1.0, 2.0, 0.0])


def pushed(force: Callable[[Any, Any], Any]) -> System:
    """A mass on a spring, pushed by a function of time and parameters."""
    return System(
        lambda q, v, t, p: 0.5 * v @ v - 0.5 * q @ q,
        force=lambda q, v, t, p: jnp.reshape(force(t, p), (1,)) - 0.1 * jnp.abs(v),
        coordinates=("x",),
    )


def found(system: System, p: Any, ts: Any = TS) -> list[float]:
    times = step_times(system, None, ZERO, ZERO, jnp.asarray(ts), p)
    return [] if times is None else np.sort(np.asarray(times)).tolist()


@pytest.mark.parametrize(
    ("force", "times"),
    [
        (lambda t, p: jnp.maximum(0.0, 2.0 * t - p["a"]), [1.5]),
        (lambda t, p: jnp.where(jnp.abs(t - p["a"]) < p["b"] / 2, 1.0, 0.0), [2.75, 3.0, 3.25]),
        (lambda t, p: jnp.clip((t - p["a"]) / p["b"], 0.0, 1.0), [3.0, 3.5]),
        (lambda t, p: jnp.interp(t + p["b"], X, Y), [0.5, 2.0, 3.5]),
        (lambda t, p: jnp.sign(jnp.sin(p["a"] * t)), [k * np.pi / 3 for k in range(10)]),
        (lambda t, p: jnp.where(t % p["a"] < p["b"], 1.0, 0.0),
         [0.0, 0.0, 0.5, 3.0, 3.0, 3.5, 6.0, 6.0, 6.5, 9.0, 9.0, 9.5]),
        (lambda t, p: jnp.floor(t / 4), [0.0, 4.0, 8.0]),
        (lambda t, p: jnp.select([t < 1.0, t < p["a"]], [0.0, 1.0], 2.0), [1.0, 3.0]),
        (lambda t, p: jax.lax.cond(t > 7.0, lambda: 1.0, lambda: 0.0), [7.0]),
        (lambda t, p: jnp.exp(-t) * jnp.abs(p["a"]), []),
        (lambda t, p: jnp.maximum(t, 50.0), []),  # not in the run
    ],
)  # fmt: skip
def test_corners_are_found_in_the_operations(force: Any, times: list[float]) -> None:
    params = {"a": jnp.asarray(3.0), "b": jnp.asarray(0.5)}
    np.testing.assert_allclose(found(pushed(force), params), times, atol=1e-12)


def test_times_of_corners_are_functions_of_the_parameters() -> None:
    def force(t: Any, p: Any) -> Any:
        return jnp.maximum(0.0, p["rate"] * t - p["lag"]) + jnp.sign(jnp.cos(p["rate"] * t))

    system, ts = pushed(force), jnp.linspace(0.0, 2.0, 3)

    def sums(p: Any) -> Any:
        times = step_times(system, None, ZERO, ZERO, ts, p)
        return jnp.where(jnp.isfinite(times), times, 0.0).sum()

    rate, lag = np.array([1.5, 2.0, 2.2]), np.array([1.0, 1.5, 0.7])
    batch = {"rate": jnp.asarray(rate), "lag": jnp.asarray(lag)}
    values, slopes = jax.vmap(jax.value_and_grad(sums))(batch)
    # The cosine passes zero at a quarter of its period, and for the last at three quarters too.
    quarters = np.pi / 2 * np.array([1, 1, 1 + 3 * (1.5 * np.pi < 2.2 * 2)])
    np.testing.assert_allclose(values, (lag + quarters) / rate, atol=1e-12)
    np.testing.assert_allclose(slopes["rate"], -(lag + quarters) / rate**2, atol=1e-9)
    np.testing.assert_allclose(slopes["lag"], 1 / rate, atol=1e-12)


def test_corners_that_cannot_be_found_are_named() -> None:
    params = {"a": jnp.asarray(3.0)}
    wave = pushed(lambda t, p: jnp.sign(jnp.sin(p["a"] * t)))
    with pytest.warns(TimesWarning, match="`force` has corners at times that have to be searched"):
        jax.jit(lambda p: found_none(wave, p))(params)

    pulse = pushed(lambda t, p: jnp.exp(-(((t - 3.0) / p["a"]) ** 2)))
    with pytest.warns(TimesWarning, match="`force` may have short pulses or steep changes"):
        jax.jit(lambda p: found_none(pulse, p))(params)
    hum = pushed(lambda t, p: jnp.sin(p["a"] * t) * p["a"] ** 2)
    jax.jit(lambda p: found_none(hum, p))(params)

    def summed(t: Any, p: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda k, x: x + jnp.maximum(0.0, t - k), 0.0)

    with pytest.warns(TimesWarning, match="inside of a loop"):
        assert found(pushed(summed), params) == []
    fast = pushed(lambda t, p: jnp.sign(jnp.sin(100 * p["a"] * t)))
    with pytest.warns(TimesWarning, match="the run has 955 corners in time, of `force`"):
        assert found(fast, params) == []


def found_none(system: System, p: Any) -> Any:
    assert step_times(system, None, ZERO, ZERO, jnp.asarray(TS), p) is None
    return p["a"]


BLOWN = pushed(lambda t, p: jnp.where(jnp.abs(t - p["at"]) < p["width"] / 2, 1 / p["width"], 0.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "policies", [{}, {"method": DormandPrince5(), "steps": Adaptive()}], ids=str
)
def test_a_short_blow_is_not_stepped_over(policies: Any) -> None:
    params = {"at": jnp.asarray(5.4321), "width": jnp.asarray(1e-3)}
    sol = simulate(BLOWN, ZERO, ZERO, [0.0, 5.0, 5.5, 5.6], params, **policies)
    assert abs(sol.v[2, 0] - 1.0) < 0.03  # the impulse of the blow, less friction and spring
    assert abs(sol.q[1, 0]) < 1e-12


@pytest.mark.slow
def test_a_reeled_rope_moves_its_mass_at_once() -> None:
    reel = System(
        lambda q, v, t, p: 0.5 * v @ v - 9.81 * q[1],
        [Holonomic(lambda q, t, p: q @ q - (1.0 - 0.3 * jnp.maximum(0.0, t - p["start"])) ** 2)],
        coordinates=("x", "y"),
    )
    start, ts = {"start": 1.0}, np.linspace(0.0, 2.0, 5)
    at = np.array([0.0, -1.0]), np.zeros(2)
    for steps in (FixedSteps(4), Adaptive()):
        sol = simulate(reel, *at, ts, start, steps=steps)
        np.testing.assert_allclose(sol.q[:, 1], -1 + 0.3 * np.maximum(ts - 1, 0), atol=1e-12)
        np.testing.assert_allclose(sol.v[:, 1], 0.3 * (ts >= 1), atol=1e-12)


def test_times_lie_around_short_pulses() -> None:
    def pulse(t: Any, p: Any) -> Any:
        return p["size"] * jnp.exp(-(((t - 5.4321) / p["width"]) ** 2)) + 1e-3 * jnp.sin(3 * t)

    for width in (1e-3, 0.02, 0.1):
        times = np.array(found(pushed(pulse), {"size": 1.0, "width": width}))
        for way in (-1, 1):  # one at most two widths from the peak, or two samples
            beside = way * (times - 5.4321)
            assert 0 < beside[beside > 0].min() < max(2 * width, 0.003)
    # Of a stiffness as well, whose force is zero at rest.
    system = System(lambda q, v, t, p: 0.5 * v @ v - 0.5 * pulse(t, p) * q @ q, coordinates=("x",))
    assert np.abs(np.array(found(system, {"size": 1.0, "width": 0.02})) - 5.4321).min() < 0.02
    for width in (0.5, 5.0, 100.0):  # a smooth force has none
        params = {"size": 0.0, "width": width}
        assert found(pushed(lambda t, p: pulse(p["width"] * t, p)), params) == []


def test_times_lie_where_a_drive_starts_smoothly() -> None:
    def drive(q: Any, t: Any, p: Any) -> Any:
        return q - 0.5 * (t - 2.0 + jnp.sqrt((t - 2.0) ** 2 + p["width"] ** 2))

    system = System(lambda q, v, t, p: 0.5 * v @ v, [Holonomic(drive)], coordinates=("x",))
    times = np.array(found(system, {"width": 1e-3}))
    assert abs(times[times < 2].max() - 2.0) < 0.01
    assert abs(times[times > 2].min() - 2.0) < 0.01
    turning = System(
        lambda q, v, t, p: 0.5 * v @ v,
        [Holonomic(lambda q, t, p: jnp.sin(q - p["width"] * t))],
        coordinates=("x",),
    )
    assert found(turning, {"width": 30.0}) == []


SMOOTH = System(
    lambda q, v, t, p: 0.5 * v @ v - 0.5 * q @ q,
    force=lambda q, v, t, p: (jnp.exp(-(((t - 3.0) / p["width"]) ** 2)) / p["width"])[None],
    coordinates=("x",),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policies", [{}, {"method": DormandPrince5(), "steps": Adaptive()}], ids=str
)
def test_a_short_smooth_pulse_is_not_stepped_over(policies: Any) -> None:
    params = {"width": jnp.asarray(1e-3)}
    sol = simulate(SMOOTH, ZERO, ZERO, np.linspace(0.0, 10.0, 5), params, **policies)
    # The impulse is sqrt(pi), and a spring and a mass of one follow it.
    assert abs(sol.q[-1, 0] - np.sqrt(np.pi) * np.exp(-(1e-3**2) / 4) * np.sin(7.0)) < 1e-6
