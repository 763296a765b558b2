"""Unilateral constraints and dry friction in checks, fits, other precisions and transformations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.analysis.findings import Severity
from tests.unilateral.systems import SLED, G, stopping_time

P = {"g": 9.81, "h": 0.1, "e": 0.5}


def falling(q, v, t, p):  # type: ignore[no-untyped-def]
    return 0.5 * v @ v - p["g"] * q[0]


def over_table(q: Array, t: Array, p: dict[str, float]) -> Array:
    return q[0] - p["h"]


def restitution(p: dict[str, float]) -> float:
    return p["e"]


BALL = jm.System(
    falling,
    [jm.Unilateral(over_table, restitution=restitution, name="table")],
    coordinates=("y",),
)


def test_structure_takes_closed_gaps_as_equations() -> None:
    def found(height: float) -> jm.analysis.Structure:
        return jm.analysis.structure(BALL, jnp.array([height]), jnp.zeros(1), 0.0, P)

    # Parameters of gaps and of restitutions are used.
    assert found(1.0).unused == ()
    assert found(1.0).ranks.position_freedom == 1
    lies, sinks = found(0.1), found(0.05)
    assert [c.name for c in lies.constraints] == ["table"]
    assert lies.ranks.position_freedom == 0
    (worst, *_) = sinks.findings
    assert worst.severity == Severity.SERIOUS
    assert "'table' is -0.05" in worst.what


@pytest.mark.slow
def test_a_fit_finds_the_position_of_a_stop_and_its_restitution() -> None:
    ts, steps = jnp.linspace(0.0, 1.0, 11), jm.FixedSteps(10)
    sol = jm.simulate(BALL, jnp.ones(1), jnp.zeros(1), ts, P, steps=steps)
    recording = jm.Recording(ts, sol.q, jnp.ones(1), jnp.zeros(1))
    guess = P | {"h": 0.095, "e": 0.52}
    fit = jm.fit(BALL, recording, guess, free=("e", "h"), steps=steps)
    np.testing.assert_allclose([fit.params["h"], fit.params["e"]], [0.1, 0.5], rtol=1e-9)


SLIDE_TIMES = jnp.linspace(0.0, 1.0, 6)


def _slid(mu: Any, **policies: Any) -> jm.Solution:
    return jm.simulate(SLED, [0.0], [2.0], SLIDE_TIMES, {"mu": mu}, **policies)


def _way(mu: Any, t: Any) -> Any:
    t = jnp.minimum(t, stopping_time(mu))
    return 2 * t - mu * G * t**2 / 2


@pytest.mark.slow
def test_friction_in_single_precision_needs_no_arguments() -> None:
    f32 = jnp.float32
    start, ts = (jnp.zeros(1, f32), jnp.full(1, 2, f32)), SLIDE_TIMES.astype(f32)
    sol = jm.simulate(SLED, *start, ts, {"mu": f32(0.3)})
    assert sol.q.dtype == f32
    np.testing.assert_allclose(sol.q[:, 0], _way(0.3, ts), rtol=1e-5)
    assert not sol.v[-1].any()


def _last(mu: Any) -> Any:
    return _slid(mu, steps=jm.FixedSteps(2)).q[-1, 0]


@pytest.mark.slow
def test_transformations_of_a_slide_commute() -> None:
    mu = jnp.array([0.25, 0.3, 0.4])  # the distance is 2 / (mu g)
    slope = -2 / (mu**2 * G)
    batch = jax.vmap(_last)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(_last)))(mu), slope, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(lambda mu: batch(mu).sum())(mu), slope, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(jax.jacfwd(_last))(mu), slope, rtol=1e-12)
    np.testing.assert_allclose(jax.hessian(_last)(0.3), 4 / (0.3**3 * G), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps"),
    [(jm.Rodas5P(), jm.FixedSteps(2))],
    ids=["rodas"],
)
def test_implicit_methods_find_the_end_of_a_slide(method: Any, steps: Any) -> None:
    def stop(mu: Any) -> Any:
        return _slid(mu, method=method, steps=steps).events["rub stops"].t[0]

    expected = stopping_time(0.3), -stopping_time(0.3) / 0.3
    np.testing.assert_allclose(jax.value_and_grad(stop)(0.3), expected, rtol=1e-9)


CART = jm.controlled(
    jm.System(
        lambda q, v, t, p: 0.5 * v @ v,
        [jm.DryFriction(lambda q, v, t, p: v[0], static=lambda p: p["limit"], name="floor")],
        force=lambda q, v, t, p: jnp.stack([p["push"]]),
        coordinates=("x",),
    ),
    jm.Controller(
        lambda v, memory, t, p: (jnp.where(t > 0.35, 3.0, 0.0), memory),
        period=0.1,
        measure=lambda q, v, t, p: v[0],
        name="push",
    ),
)


def test_a_slip_that_a_controller_begins_has_exact_derivatives() -> None:
    def distance(limit: Array) -> Array:
        ts = jnp.array([0.0, 1.0])
        return jm.simulate(CART, [0.0], [0.0], ts, {"limit": limit}, steps=jm.FixedSteps(2))["x"][1]

    # The push jumps from nothing to beyond the limit at 0.4 s; that time is no root of the load.
    value, slope = jax.value_and_grad(distance)(jnp.array(1.5))
    np.testing.assert_allclose([value, slope], [1.5 * 0.6**2 / 2, -(0.6**2) / 2], rtol=1e-12)


@pytest.mark.parametrize("steps", [jm.FixedSteps(2), jm.Adaptive(rtol=1e-9)])
def test_what_moves_at_the_start_is_decided_with_the_first_output(steps: Any) -> None:
    rub = jm.DryFriction(lambda q, v, t, p: v[0], 0.1, name="rub")
    against = lambda measured, memory, t, p: (-3.0, memory)  # noqa: E731
    cart = jm.System(
        lambda q, v, t, p: v[0] ** 2 / 2, [rub], lambda q, v, t, p: 1.0 + p["push"] * jnp.ones(1),
        coordinates=("x",),
    )  # fmt: skip
    loop = jm.controlled(cart, jm.Controller(against, 1.0, name="push"))
    sol = jm.simulate(loop, [0.0], [0.0], np.linspace(0.0, 1.0, 3), steps=steps)
    np.testing.assert_allclose(sol["x"], -1.9 * sol.ts**2 / 2, atol=1e-14)
    assert {name: int(sol.events[name].count) for name in sol.events} == {
        "rub slips": 0, "rub stops": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_an_event_that_changes_nothing_leaves_the_motion_with_a_gap_to_the_bit() -> None:
    """Trials of a search with contacts have code of their own, rounded otherwise."""

    def energy(q, v, t, p):  # type: ignore[no-untyped-def]
        across = jnp.cos(q[0] - q[1]) * v[0] * v[1]
        return v[0] ** 2 + 0.5 * v[1] ** 2 + across + 2 * jnp.cos(q[0]) + jnp.cos(q[1])

    stop = jm.Unilateral(lambda q, t, p: 2.0 - q[0], name="stop")
    arms, ts = jm.System(energy, [stop], coordinates=("a", "b")), jnp.linspace(0.0, 4.0, 9)
    passes = jm.Event(lambda q, v, t, p: q[0], name="passes")

    def run(rate: Array, **events: Any) -> jm.Solution:
        start = jnp.array([0.9, 0.3]), jnp.stack([rate, -rate])
        return jm.simulate(arms, *start, ts, steps=jm.FixedSteps(3), **events)

    rates = jnp.linspace(0.0, 0.5, 16)
    found, bare = jax.vmap(lambda x: run(x, events=passes))(rates), jax.vmap(run)(rates)
    assert (found.events["passes"].count == 1).all()
    np.testing.assert_array_equal(found.q, bare.q)
