"""Dry friction that sticks and slides, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.unilateral.systems import G

FIXED, BY_TOLERANCE = jm.FixedSteps(20), jm.Adaptive(rtol=1e-11, atol=1e-13, max_steps=2000)


def _spring(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - 50.0 * q @ q


def _on_belt(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[0] - 0.1


BELT = jm.DryFriction(
    _on_belt, static=lambda p: p["static"], kinetic=lambda p: p["kinetic"], name="belt"
)
BLOCK = jm.System(_spring, [BELT], coordinates=("x",))
LIMITS = {"static": 2.0, "kinetic": 1.0}
PERIOD = 0.671238898038


def _dragged(limits: Any, ts: Any, steps: Any = BY_TOLERANCE) -> jm.Solution:
    return jm.simulate(BLOCK, jnp.zeros(1), 0.1 * jnp.ones(1), ts, limits, steps=steps)


def test_a_block_on_a_belt_sticks_and_slides() -> None:
    sol = _dragged(LIMITS, jnp.linspace(0.0, 20.0, 5))
    slips, stops = sol.events["belt slips"], sol.events["belt stops"]
    np.testing.assert_allclose(slips.t[:29], 0.2 + PERIOD * jnp.arange(29), rtol=1e-10)
    np.testing.assert_allclose(slips.t[9], 6.241150082346, rtol=1e-11)
    np.testing.assert_allclose(stops.t[0], 0.2 + 0.471238898038, rtol=1e-11)
    np.testing.assert_allclose(sol.q[1], 0.02377652960905, rtol=1e-8)
    np.testing.assert_allclose(sol.q[-1], -0.00178053233445, rtol=1e-7)
    np.testing.assert_allclose(sol.v[-1], -0.07824260854360, rtol=1e-8)
    # The force by which it sticks is that of the spring, and the other one is the kinetic limit.
    seen, sticks = jm.observe(BLOCK, sol, LIMITS), sol.events.active["belt"]
    expected = jnp.where(sticks, 100 * sol.q[:, 0], 1.0)
    np.testing.assert_allclose(seen.multipliers["belt"][:, 0], expected, rtol=1e-10)


def test_derivatives_of_the_times_of_slips_are_those_of_the_closed_form() -> None:
    def second_slip(static: Any, kinetic: Any) -> Any:
        ts = jnp.linspace(0.0, 1.0, 11)
        sol = _dragged({"static": static, "kinetic": kinetic}, ts, FIXED)
        return sol.events["belt slips"].t[1]

    def exactly(static: Any, kinetic: Any) -> Any:
        angle = jnp.arctan((static - kinetic) * 10 / 10.0)
        # It stops at the mirror image of the place where it slipped.
        stick = (static - (2 * kinetic - static)) / 100 / 0.1
        return static / 10 + 0.2 * (jnp.pi - angle) + stick

    for fn in (second_slip, exactly):
        np.testing.assert_allclose(fn(2.0, 1.0), 0.2 + PERIOD, rtol=1e-7)
    slopes = jax.grad(second_slip, argnums=(0, 1))(2.0, 1.0)
    np.testing.assert_allclose(slopes, jax.grad(exactly, argnums=(0, 1))(2.0, 1.0), rtol=1e-6)


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


def _pushed_up(static: Any, kinetic: Any, speed: Any, ts: Any) -> jm.Solution:
    p = {"static": static, "kinetic": kinetic}
    return jm.simulate(INCLINE, jnp.zeros(2), speed * ALONG, ts, p, steps=jm.FixedSteps(10))


def test_a_block_on_an_incline_does_not_creep() -> None:
    sol = _pushed_up(0.5, 0.5, 0.0, jnp.linspace(0.0, 3600.0, 5))
    assert not sol.q.any()
    force = jm.observe(INCLINE, sol, {"static": 0.5, "kinetic": 0.5}).multipliers
    np.testing.assert_allclose(force["incline friction"], G * np.sin(ANGLE), rtol=1e-12)
    np.testing.assert_allclose(force["incline"], G * np.cos(ANGLE), rtol=1e-12)


def test_a_block_slides_up_an_incline_and_stays_or_comes_back() -> None:
    static, kinetic = jnp.array([0.5, 0.2]), jnp.array([0.3, 0.2])
    ts = jnp.linspace(0.0, 2.0, 5)
    sols = jax.vmap(lambda s, k: _pushed_up(s, k, 2.0, ts))(static, kinetic)
    stops = 2 / (G * (np.sin(ANGLE) + kinetic * np.cos(ANGLE)))
    np.testing.assert_allclose(sols.events["incline friction stops"].t[:, 0], stops, rtol=1e-12)
    down = 0.5 * G * (np.sin(ANGLE) - 0.2 * np.cos(ANGLE)) * (2 - stops[1]) ** 2
    np.testing.assert_allclose(sols.q[:, -1] @ ALONG, stops - jnp.array([0.0, down]), rtol=1e-12)
    assert not sols.v[0, -1].any()
    # As in a single run.
    np.testing.assert_array_equal(_pushed_up(0.5, 0.3, 2.0, ts).q, sols.q[0])


def test_the_stopping_distance_has_the_derivative_of_its_formula() -> None:
    def distance(kinetic: Any) -> Any:
        return ALONG @ _pushed_up(0.5, kinetic, 2.0, jnp.linspace(0.0, 1.0, 3)).q[-1]

    def exactly(kinetic: Any) -> Any:
        return 2 / (G * (np.sin(ANGLE) + kinetic * np.cos(ANGLE)))

    np.testing.assert_allclose(jax.grad(distance)(0.3), jax.grad(exactly)(0.3), rtol=1e-12)


HALF_WIDTH, HALF_HEIGHT = 0.2, 0.3


def _corners(q: Any) -> Any:
    x, y, a = q
    side = jnp.array([-HALF_WIDTH, HALF_WIDTH])
    return (
        x + side * jnp.cos(a) + HALF_HEIGHT * jnp.sin(a),
        y + side * jnp.sin(a) - HALF_HEIGHT * jnp.cos(a),
    )


def _feet(q: Any, t: Any, p: Any) -> Any:
    return _corners(q)[1]


def _along_floor(q: Any, t: Any, p: Any) -> Any:
    return _corners(q)[0]


def _box_energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * (v[0] ** 2 + v[1] ** 2 + 0.05 * v[2] ** 2) - G * q[1]


def _growing_push(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([t, 0 * t, 0 * t])  # at the center


BOX = jm.System(
    _box_energy,
    [jm.Unilateral(_feet, friction=_coefficients, slip=_along_floor, name="feet")],
    force=_growing_push,
    coordinates=("x", "y", "turn"),
)


def test_a_block_that_is_pushed_tips_or_slides() -> None:
    start, ts = jnp.array([0.0, HALF_HEIGHT, 0.0]), jnp.linspace(0.0, 7.0, 15)

    def push(static: Any, kinetic: Any) -> jm.Solution:
        p = {"static": static, "kinetic": kinetic}
        return jm.simulate(BOX, start, jnp.zeros(3), ts, p, steps=jm.FixedSteps(10))

    static, kinetic = jnp.array([0.4, 0.9]), jnp.array([0.2, 0.9])
    sols = jax.vmap(push)(static, kinetic)
    assert (sols.status == jm.Status.OK).all()
    slides, tips = 0.4 * G, G * HALF_WIDTH / HALF_HEIGHT
    # The foot that the push relieves reaches its limit first, and is held by the other one.
    np.testing.assert_allclose(sols.events["feet friction[1] slips"].t[0, 0], slides, rtol=1e-12)
    np.testing.assert_allclose(sols.events["feet[0] opens"].t[1, 0], tips, rtol=1e-12)
    assert sols.events["feet[0] opens"].count[0] == 0
    assert jnp.abs(sols.q[1, ts < tips, 2]).max() < 1e-30
    t = ts[ts > slides] - slides
    moved = 0.2 * G * t**2 / 2 + t**3 / 6
    np.testing.assert_allclose(sols.q[0, ts > slides, 0], moved, rtol=1e-10)


LADDER = 2.0  # length


def _ends(q: Any) -> Any:
    x, y, a = q
    c, s = jnp.cos(a) * LADDER / 2, jnp.sin(a) * LADDER / 2
    return (x - c, y + s), (x + c, y - s)


def _ladder_gaps(q: Any, t: Any, p: Any) -> Any:
    top, foot = _ends(q)
    return jnp.stack([top[0], foot[1]])


def _ladder_slips(q: Any, t: Any, p: Any) -> Any:
    top, foot = _ends(q)
    return jnp.stack([top[1], foot[0]])


def _ladder_energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * (v[:2] @ v[:2] + v[2] ** 2 * LADDER**2 / 12) - G * q[1]


def test_a_ladder_stands_down_to_the_angle_of_both_limits() -> None:
    mu = 0.4
    support = jm.Unilateral(_ladder_gaps, friction=mu, slip=_ladder_slips, name="ladder")
    ladder = jm.System(_ladder_energy, [support], coordinates=("x", "y", "angle"))
    ts = jnp.linspace(0.0, 0.3, 4)

    def stand(a: Any) -> jm.Solution:
        start = jnp.stack([jnp.cos(a) * LADDER / 2, jnp.sin(a) * LADDER / 2, a])
        return jm.simulate(ladder, start, jnp.zeros(3), ts, steps=jm.FixedSteps(10))

    angles = np.arctan((1 - mu**2) / (2 * mu)) + jnp.array([1e-3, -1e-3])
    sols = jax.vmap(stand)(angles)
    np.testing.assert_allclose(sols.q[0, :, 2], angles[0], rtol=1e-14)
    assert (jnp.diff(sols.q[1, :, 2]) < -1e-5).all()


@pytest.mark.parametrize("speed", [3.0, 0.5], ids=["slides", "sticks"])
def test_an_oblique_impact_rubs(speed: float) -> None:
    mu, e = 0.3, 0.5
    floor = jm.Unilateral(
        lambda q, t, p: q[1], e, friction=mu, slip=lambda q, t, p: q[0], name="floor"
    )
    ball = jm.System(_falling, [floor], coordinates=("x", "y"))
    start, ts = (jnp.array([0.0, 1.0]), jnp.array([speed, 0.0])), jnp.linspace(0.0, 2.0, 21)
    sol = jm.simulate(ball, *start, ts, steps=jm.FixedSteps(10))
    hit = np.sqrt(2 * G)
    along = max(speed - mu * (1 + e) * hit, 0.0)
    after = sol.events["floor closes"].v_after[0]
    np.testing.assert_allclose(after, [along, e * hit], atol=1e-12)
    assert (jnp.diff(sol.energy) < 1e-12).all()
    assert not sol.v[-1].any()


@pytest.mark.slow
def test_a_rope_round_a_drum_slips_at_the_limit_of_its_links() -> None:
    """Four points on a drum, joined by stiff links, each with N = (T- + T+) sin(phi / 2)."""
    count, half, mu = 4, 0.2, 0.3
    at = np.exp(2j * half * np.arange(count))
    pulls = np.array([-1j * at[0] * np.exp(-1j * half), 1j * at[-1] * np.exp(1j * half)])

    def points(x: Any) -> Any:
        return x.reshape(count, 2)

    def ends(q: Any, v: Any, t: Any, p: Any) -> Any:
        force = jnp.zeros((count, 2)).at[0].set(np.array([pulls[0].real, pulls[0].imag]))
        pull = (1 + t) * np.array([pulls[1].real, pulls[1].imag])
        return force.at[-1].set(pull).reshape(-1)

    def links(q: Any, t: Any, p: Any) -> Any:
        return ((points(q)[1:] - points(q)[:-1]) ** 2).sum(1) - (2 * np.sin(half)) ** 2

    def gaps(q: Any, t: Any, p: Any) -> Any:
        return jnp.sqrt((points(q) ** 2).sum(1)) - 1

    def slips(q: Any, v: Any, t: Any, p: Any) -> Any:
        return points(q)[:, 0] * points(v)[:, 1] - points(q)[:, 1] * points(v)[:, 0]

    drum = jm.Unilateral(gaps, friction=mu, slip=slips, name="drum")
    rope = jm.System(
        lambda q, v, t, p: 0.5 * v @ v, [jm.Holonomic(links), drum], force=ends,
        coordinates=tuple(f"c{k}" for k in range(2 * count)),
    )  # fmt: skip
    start = np.stack([at.real, at.imag], axis=1).reshape(-1)
    ts = jnp.linspace(0.0, 1.0, 3)
    sol = jm.simulate(rope, start, np.zeros(2 * count), ts, steps=jm.FixedSteps(8))
    each = (np.cos(half) + mu * np.sin(half)) / (np.cos(half) - mu * np.sin(half))
    last = max(float(jnp.nanmax(sol.events[k].t)) for k in sol.events if int(sol.events[k].count))
    np.testing.assert_allclose(1 + last, each**count, rtol=1e-12)
    assert jnp.abs(sol.q[1] - sol.q[0]).max() < 1e-14
    assert jnp.abs(sol.q[2] - sol.q[0]).max() > 1e-4


@pytest.mark.slow
def test_impacts_that_rub_never_gain_energy() -> None:
    """A rod that falls on a rough floor, whose normal and tangential directions are coupled."""

    def ends(q: Any) -> Any:
        side = jnp.array([-0.5, 0.5])
        return q[0] + side * jnp.cos(q[2]), q[1] + side * jnp.sin(q[2])

    floor = jm.Unilateral(
        lambda q, t, p: ends(q)[1], 0.8, friction=0.9, slip=lambda q, t, p: ends(q)[0], name="ends"
    )
    rod = jm.System(
        lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + v[2] ** 2 / 12) - G * q[1], [floor],
        coordinates=("x", "y", "angle"),
    )  # fmt: skip
    ts = jnp.linspace(0.0, 2.0, 41)

    def fall(angle: Any, speed: Any) -> jm.Solution:
        zero = jnp.zeros_like(angle)
        state = jnp.stack([zero, 1 + zero, angle]), jnp.stack([speed, zero, zero])
        return jm.simulate(rod, *state, ts, steps=jm.FixedSteps(20))

    sols = jax.vmap(fall)(jnp.linspace(0.3, 1.4, 12), jnp.linspace(-3.0, 3.0, 12))
    assert (sols.status == jm.Status.OK).all()
    assert (jnp.diff(sols.energy, axis=1) < 1e-12).all()
    assert (sols.energy[:, -1] < 0.9 * sols.energy[:, 0]).all()


@pytest.mark.slow
def test_a_friction_coefficient_is_fitted() -> None:
    def limit(p: Any) -> Any:
        return p["mu"] * G

    rub = jm.DryFriction(lambda q, v, t, p: v[0], static=limit, name="rub")
    sled = jm.System(lambda q, v, t, p: 0.5 * v @ v, [rub], coordinates=("x",))
    assert jm.analysis.structure(sled, [0.0], [0.0], params={"mu": 0.3}, run=None).idle == ()
    ts, steps = jnp.linspace(0.0, 1.0, 11), jm.FixedSteps(5)
    sol = jm.simulate(sled, [0.0], [2.0], ts, {"mu": 0.3}, steps=steps)
    recording = jm.Recording(ts=ts, observed=sol.q, q0=[0.0], v0=[2.0])
    fit = jm.fit(sled, recording, {"mu": 0.25}, initial_states="fixed", steps=steps)
    np.testing.assert_allclose(fit.params["mu"], 0.3, rtol=1e-6)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="`friction` must be given with `slip`"):
        jm.Unilateral(_over_incline, slip=_up_incline)
    with pytest.raises(ValueError, match="`kinetic` of 'belt' must not be above `static`"):
        jm.DryFriction(_on_belt, static=1.0, kinetic=2.0, name="belt")
    with pytest.raises(ValueError, match="`static` of 'belt' must be finite and not negative"):
        jm.DryFriction(_on_belt, static=-1.0, name="belt")
    wrong = jm.DryFriction(_on_belt, static=1.0, normal="flor", name="belt")
    system = jm.System(_spring, [wrong], coordinates=("x",))
    with pytest.raises(ValueError, match="'flor' is not a constraint of the system"):
        jm.simulate(system, [0.0], [0.0], [0.0, 1.0])
