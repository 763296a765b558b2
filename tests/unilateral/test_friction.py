"""Dry friction that sticks and slides, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.integrate.events.friction import frictions_of
from tests.unilateral.systems import G

BY_TOLERANCE = jm.Adaptive(rtol=1e-11, atol=1e-13, max_steps=2000)


def _spring(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - 50.0 * q @ q


def _on_belt(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[0] - 0.1


BELT = jm.DryFriction(
    _on_belt, static=lambda p: p["static"], kinetic=lambda p: p["kinetic"], name="belt"
)
BLOCK = jm.System(_spring, [BELT], coordinates=("x",))
PERIOD = 0.671238898038


@pytest.mark.parametrize("varied", ["static", "kinetic"])
def test_members_of_a_batch_may_differ_in_one_limit_alone(varied: str) -> None:
    def count(limit: Any) -> jax.Array:
        params = {"static": 2.0, "kinetic": 1.0, varied: limit}
        return limit * len(frictions_of(BLOCK, {}, jnp.zeros(1), jnp.zeros(()), params))

    np.testing.assert_array_equal(jax.vmap(count)(jnp.array([1.5, 2.0])), [1.5, 2.0])
    with pytest.raises(ValueError, match="kinetic"):
        jax.vmap(count)(jnp.array([1.5, {"static": 0.5, "kinetic": 2.5}[varied]]))


def _tenth_slip(limits: Any) -> Any:
    ts = jnp.linspace(0.0, 20.0, 5)
    sol = jm.simulate(BLOCK, [0.0], [0.1], ts, limits, steps=BY_TOLERANCE)
    return sol.events["belt slips"].t[9], sol


def _tenth_slip_in_closed_form(limits: Any) -> Any:
    static, kinetic = limits["static"], limits["kinetic"]
    # It stops at the mirror image of the place where it slipped.
    slide, stick = 0.2 * (jnp.pi - jnp.arctan(static - kinetic)), (static - kinetic) / 5
    return static / 10 + 9 * (slide + stick)


def test_a_block_on_a_belt_sticks_and_slides() -> None:
    limits = {"static": 2.0, "kinetic": 1.0}
    (tenth, sol), slopes = jax.value_and_grad(_tenth_slip, has_aux=True)(limits)
    slips, stops = sol.events["belt slips"], sol.events["belt stops"]
    np.testing.assert_allclose(slips.t[:29], 0.2 + PERIOD * jnp.arange(29), rtol=1e-10)
    np.testing.assert_allclose(tenth, 6.241150082346, rtol=1e-11)
    np.testing.assert_allclose(stops.t[0], 0.2 + 0.471238898038, rtol=1e-11)
    np.testing.assert_allclose(sol.q[1], 0.02377652960905, rtol=1e-8)
    np.testing.assert_allclose(sol.q[-1], -0.00178053233445, rtol=1e-7)
    np.testing.assert_allclose(sol.v[-1], -0.07824260854360, rtol=1e-8)
    # The force by which it sticks is that of the spring, and the other one is the kinetic limit.
    seen, sticks = jm.observe(BLOCK, sol, limits), sol.events.active["belt"]
    expected = jnp.where(sticks, 100 * sol.q[:, 0], 1.0)
    np.testing.assert_allclose(seen.multipliers["belt"][:, 0], expected, rtol=1e-10)
    exact = jax.grad(_tenth_slip_in_closed_form)(limits)
    for name, slope in exact.items():
        np.testing.assert_allclose(slopes[name], slope, rtol=1e-8)


ANGLE = np.deg2rad(20.0)
NORMAL = np.array([-np.sin(ANGLE), np.cos(ANGLE)])
ALONG = np.array([np.cos(ANGLE), np.sin(ANGLE)])


def _falling(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - G * q[1]


def _over_incline(q: Any, t: Any, p: Any) -> Any:
    return NORMAL @ q


def _up_incline(q: Any, v: Any, t: Any, p: Any) -> Any:
    return ALONG @ v


def _coefficients(p: Any) -> Any:
    return p["static"], p["kinetic"]


INCLINE = jm.System(
    _falling,
    [jm.Unilateral(_over_incline, friction=_coefficients, slip=_up_incline, name="incline")],
    coordinates=("x", "y"),
)


def _pushed_up(static: Any, kinetic: Any, speed: Any, end: Any) -> jm.Solution:
    p, ts = {"static": static, "kinetic": kinetic}, end * jnp.linspace(0.0, 1.0, 5)
    return jm.simulate(INCLINE, jnp.zeros(2), speed * ALONG, ts, p, steps=jm.FixedSteps(10))


@pytest.mark.slow
def test_a_block_on_an_incline_does_not_creep_or_slides_up_and_stays_or_comes_back() -> None:
    static, kinetic = jnp.array([0.5, 0.5, 0.2]), jnp.array([0.5, 0.3, 0.2])
    speeds, ends = jnp.array([0.0, 2.0, 2.0]), jnp.array([3600.0, 2.0, 2.0])
    sols = jax.vmap(_pushed_up)(static, kinetic, speeds, ends)
    assert not sols.q[0].any()
    stops = 2 / (G * (np.sin(ANGLE) + kinetic[1:] * np.cos(ANGLE)))
    times = sols.events["incline friction stops"].t[1:, 0]
    np.testing.assert_allclose(times, stops, rtol=1e-12)
    down = 0.5 * G * (np.sin(ANGLE) - 0.2 * np.cos(ANGLE)) * (2 - stops[1]) ** 2
    way = stops - jnp.array([0.0, down])
    np.testing.assert_allclose(sols.q[1:, -1] @ ALONG, way, rtol=1e-12)
    assert not sols.v[1, -1].any()
    # As in a single run.
    lies = _pushed_up(0.5, 0.5, 0.0, 3600.0)
    np.testing.assert_array_equal(_pushed_up(0.5, 0.3, 2.0, 2.0).q, sols.q[1])
    force = jm.observe(INCLINE, lies, {"static": 0.5, "kinetic": 0.5}).multipliers
    np.testing.assert_allclose(force["incline friction"], G * np.sin(ANGLE), rtol=1e-12)
    np.testing.assert_allclose(force["incline"], G * np.cos(ANGLE), rtol=1e-12)
