"""Slips of two components, whose friction is bounded by a disc, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmech as jm
from jaxmech.integrate.events.contact_events import ContactEvents
from jaxmech.integrate.events.coulomb import Coulomb, contact, coulomb_forces
from jaxmech.integrate.events.gaps import Gaps
from jaxmech.integrate.events.impacts import MotionState
from jaxmech.integrate.run_params import with_run
from jaxmech.integrate.scheme import Scheme
from tests.unilateral.systems import G

RADIUS, INERTIA = 0.03, 0.4 * 0.03**2  # of a solid ball of 1 kg


def _ball_energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * (v[:3] @ v[:3] + INERTIA * v[3:] @ v[3:]) - G * q[2]


def _ball_slip(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([v[0] - RADIUS * v[4], v[1] + RADIUS * v[3]])


BALL = jm.System(
    _ball_energy,
    [
        jm.Unilateral(
            lambda q, t, p: q[2] - RADIUS, restitution=0.5, friction=lambda p: p["mu"],
            slip=_ball_slip, name="cloth",
        )
    ],
    coordinates=("x", "y", "z", "a", "b", "c"),
)  # fmt: skip
ON_CLOTH = jnp.array([0.0, 0.0, RADIUS, 0.0, 0.0, 0.0])
SPIN = jnp.array([1.0, 0.0, 0.0, -30.0, -10.0, 5.0])
SLIP = np.array([1.3, -0.9])  # of that start
TIMES = jnp.linspace(0.0, 1.0, 11)
STEPS = jm.FixedSteps(3)


def _roll(mu: Any, v: Any = SPIN, steps: Any = STEPS) -> jm.Solution:
    return jm.simulate(BALL, ON_CLOTH, v, TIMES, {"mu": mu}, steps=steps)


def _rolled(mu: float) -> tuple[float, np.ndarray]:
    """The time at which the ball rolls, and its x, y and velocities at the times."""
    stop = 2 * np.hypot(*SLIP) / (7 * mu * G)
    t = np.asarray(TIMES)[:, None]
    a, s = -mu * G * SLIP / np.hypot(*SLIP), np.minimum(t, stop)
    v = np.array([1.0, 0.0]) + a * s
    return stop, np.hstack([np.array([1.0, 0.0]) * s + a * s**2 / 2 + v * (t - s), v])


@pytest.mark.parametrize(
    "steps", [STEPS, pytest.param(jm.Adaptive(rtol=1e-9, atol=1e-9), marks=pytest.mark.slow)]
)
def test_a_ball_with_side_spin_slides_on_a_parabola_until_it_rolls(steps: Any) -> None:
    sol = _roll(0.2, steps=steps)
    stop, exact = _rolled(0.2)
    np.testing.assert_allclose(jnp.hstack([sol.q[:, :2], sol.v[:, :2]]), exact, atol=1e-11)
    stops = sol.events["cloth friction stops"]
    np.testing.assert_allclose(stops.t[0], stop, rtol=1e-12)
    assert stops.count == 1
    assert sol.events["cloth friction slips"].count == 0
    seen = jm.observe(BALL, sol, {"mu": 0.2}).multipliers["cloth friction"]
    np.testing.assert_allclose(seen[1], -0.2 * G * SLIP / np.hypot(*SLIP), rtol=1e-9)
    np.testing.assert_allclose(seen[-1], 0.0, atol=1e-12)


@pytest.mark.slow
def test_a_batch_and_derivatives_of_the_ball() -> None:
    mu = jnp.array([0.1, 0.2, 0.4])

    def last(mu: Any) -> Any:
        sol = _roll(mu)
        return sol.q[-1, 0] + 2 * sol.q[-1, 1] + sol.events["cloth friction stops"].t[0]

    def exact(mu: float) -> float:
        stop, states = _rolled(mu)
        return float(states[-1, 0] + 2 * states[-1, 1] + stop)

    values, slopes = jax.vmap(jax.value_and_grad(last))(mu)
    np.testing.assert_allclose(values, [exact(float(x)) for x in mu], atol=1e-12)
    differences = [(exact(float(x) + 1e-5) - exact(float(x) - 1e-5)) / 2e-5 for x in mu]
    np.testing.assert_allclose(slopes, differences, rtol=1e-7)


def _across(q: Any, v: Any, t: Any, p: Any) -> Any:
    """The energy of a block on an incline: x across, y downhill."""
    return 0.5 * v @ v + G * jnp.sin(p["angle"]) * q[1]


INCLINE = jm.System(
    _across,
    [
        jm.DryFriction(
            lambda q, v, t, p: v[None], lambda p: p["mu"] * G * jnp.cos(p["angle"]), name="rub"
        )
    ],
    coordinates=("x", "y"),
)


def _slid(angle: float, mu: float, end: float) -> np.ndarray:
    """The state by scipy, until the block is nearly at rest."""

    def rates(t: float, s: np.ndarray) -> np.ndarray:
        down, v = np.array([0.0, G * np.sin(angle)]), s[2:]
        return np.r_[v, down - mu * G * np.cos(angle) * v / np.hypot(*v)]

    def slow(t: float, s: np.ndarray) -> float:
        return float(np.hypot(*s[2:]) - 1e-6)

    slow.terminal = True  # type: ignore[attr-defined]
    start = [0.0, 0.0, 1.0, 0.5]
    sol = solve_ivp(rates, (0, end), start, rtol=1e-11, atol=1e-12, events=slow)
    return np.asarray(sol.y[:, -1])


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "tolerance"), [(0.3, 1e-6), (0.8, 1e-5)])
def test_a_block_across_an_incline_turns_downhill_or_rests(mu: float, tolerance: float) -> None:
    p = {"angle": 0.5, "mu": mu}
    ts, start = jnp.linspace(0.0, 2.0, 21), (jnp.zeros(2), jnp.array([1.0, 0.5]))
    sol = jm.simulate(INCLINE, *start, ts, p, steps=jm.FixedSteps(16))
    assert sol.status == jm.Status.OK
    exact = _slid(0.5, mu, 2.0)
    np.testing.assert_allclose(sol.q[-1], exact[:2], atol=tolerance)
    energy = 0.5 * (sol.v**2).sum(1) - G * np.sin(0.5) * sol.q[:, 1]
    assert (jnp.diff(energy) <= 1e-14).all()
    reflected = jm.simulate(
        INCLINE, start[0], start[1] * jnp.array([-1.0, 1.0]), ts, p, steps=jm.FixedSteps(16)
    )
    np.testing.assert_allclose(reflected.q, sol.q * jnp.array([[-1.0, 1.0]]), atol=1e-13)
    if mu > np.tan(0.5):
        assert (sol.v[-5:] == 0).all()
        assert (sol.q[-5:] == sol.q[-1:]).all()
    else:
        np.testing.assert_allclose(sol.v[-1], exact[2:], atol=tolerance)


def _turning_push(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 2.0 * t * jnp.stack([jnp.cos(0.7 * t), jnp.sin(0.7 * t)])


SLED = jm.System(
    lambda q, v, t, p: 0.5 * v @ v,
    [jm.DryFriction(lambda q, v, t, p: v[None], lambda p: p, name="rub")],
    force=_turning_push, coordinates=("x", "y"),
)  # fmt: skip


@pytest.mark.slow
def test_a_push_that_grows_and_turns_lets_a_sled_slip_once() -> None:
    still, ts = jnp.zeros(2), jnp.linspace(0.0, 5.0, 11)

    def slip(limit: Any) -> Any:
        sol = jm.simulate(SLED, still, still, ts, limit, steps=jm.FixedSteps(40))
        return sol.events["rub slips"].t[0], sol

    slope, sol = jax.grad(slip, has_aux=True)(3.0)
    np.testing.assert_allclose(slope, 0.5, rtol=1e-9)
    np.testing.assert_allclose(sol.events["rub slips"].t[0], 1.5, rtol=1e-12)
    assert sol.events["rub slips"].count == 1
    assert sol.events["rub stops"].count == 0
    # Radau's method of scipy at a relative tolerance of 1e-11, from 1e-4 s after the slip.
    np.testing.assert_allclose(sol.q[-1], [-9.86599807, 7.77825777], atol=1e-5)


@pytest.mark.slow
def test_random_loads_of_a_contact_are_held_or_slide_against_their_slip() -> None:
    rng, on = np.random.default_rng(2), jnp.ones(2, bool)

    @jax.jit
    def act(W: Any, r: Any, mu: Any) -> Any:
        limits = mu * jnp.ones((2, 2))
        return contact(
            W, r, jnp.abs(r), on[:1], jnp.ones((2, 1)), limits, jnp.zeros(2), on, jnp.zeros(2),
            jnp.asarray(False), (0,),
        )  # fmt: skip

    held = 0
    for _ in range(200):
        X, r, mu = rng.normal(size=(3, 5)), rng.normal(size=3), rng.uniform(0.05, 0.6)
        W, r[0] = X @ X.T, -3 * abs(r[0])
        found = act(W, r, mu)
        push, *friction = np.asarray(found.forces)
        slip, direction = (r + W @ np.asarray(found.forces))[1:], np.asarray(found.direction)
        assert found.solved
        if found.sticks.all():
            held += 1
            assert np.hypot(*slip) < 1e-9
            assert np.hypot(*friction) <= mu * push * (1 + 1e-9)
        else:
            np.testing.assert_allclose(direction, slip / np.hypot(*slip), atol=1e-6)
            np.testing.assert_allclose(friction, -mu * push * direction, atol=1e-8)
    assert 10 < held < 100


def test_random_impacts_obey_newton_and_coulomb() -> None:
    floor = jm.Unilateral(
        lambda q, t, p: q[2], restitution=lambda p: p["e"], friction=lambda p: p["mu"],
        slip=lambda q, v, t, p: v[:2], name="floor",
    )  # fmt: skip
    body = jm.System(lambda q, v, t, p: 0.5 * v @ p["M"] @ v, [floor], coordinates=tuple("xyzab"))
    rng, q, t = np.random.default_rng(3), jnp.zeros(5), jnp.zeros(())

    def draw() -> Any:
        X, v = rng.normal(size=(5, 7)), rng.normal(size=5)
        v[2] = -1 - abs(v[2])
        return v, {"M": X @ X.T, "mu": rng.uniform(0.02, 0.8), "e": rng.uniform(0.0, 0.8)}

    v, p = jax.tree.map(jnp.asarray, draw())
    gaps = Gaps.of(body, q, t, p)
    off = jnp.zeros(len(gaps.switches), bool)
    system = gaps.switched(body, gaps.switches)
    scheme, events = Scheme.of(system).at(q, v, t, with_run(p, active=off)), ContactEvents(gaps)

    @jax.jit
    def hit(v: Any, p: Any) -> Any:
        state = MotionState(q, v, t, jnp.abs(v), jnp.asarray(1e-2), jnp.asarray(1e-14))
        first, ok, changes = jnp.asarray(0), jnp.asarray(0, jnp.int32), jnp.asarray(True)
        after = events.apply(scheme, first, state, ok, p, off, changes, None, None)
        return after.v, after.status

    stuck = 0
    for _ in range(100):
        v, p = draw()
        w, status = map(np.asarray, hit(*jax.tree.map(jnp.asarray, (v, p))))
        impulse, slip = p["M"] @ (w - v), w[:2]
        assert status == jm.Status.OK
        assert impulse[2] > 0
        np.testing.assert_allclose(impulse[3:], 0.0, atol=1e-9)
        assert min(abs(w[2] + p["e"] * v[2]), abs(w[2])) < 1e-9
        assert w @ p["M"] @ w <= v @ p["M"] @ v + 1e-9
        if np.hypot(*slip) < 1e-8:
            stuck += 1
            assert np.hypot(*impulse[:2]) <= p["mu"] * impulse[2] * (1 + 1e-9)
        else:
            against = -p["mu"] * impulse[2] * slip / np.hypot(*slip)
            np.testing.assert_allclose(impulse[:2], against, atol=1e-7)
    assert 5 < stuck < 80


def _cone_error(W: Any, r: Any, mu: Any, x: Any) -> float:
    """By how much forces x of contacts, gaps first, miss Signorini's and Coulomb's laws."""
    a, count = r + W @ x, len(mu)
    push, force, slip = x[:count], x[count:].reshape(-1, 2), a[count:].reshape(-1, 2)
    speed, limit = np.hypot(*slip.T), mu * push
    along = np.where(speed > 1e-7, 1.0, 0.0)[:, None] * (
        force + (limit / np.maximum(speed, 1e-7))[:, None] * slip
    )
    outside = np.maximum(np.hypot(*force.T) - limit, 0.0)
    parts = -push, -a[:count], np.minimum(np.abs(push), np.abs(a[:count])), outside
    return float(max(np.max(np.stack(parts)), np.abs(along).max()))


@pytest.mark.parametrize("count", [2, 4])
def test_random_contacts_with_redundant_rows_obey_signorini_and_coulomb(count: int) -> None:
    rng, discs = np.random.default_rng(count), tuple(range(0, 2 * count, 2))

    @jax.jit
    def solve(W: Any, r: Any, mu: Any) -> Any:
        slope = jnp.repeat(jnp.diag(mu), 2, axis=0)
        law = Coulomb(jnp.ones(2 * count, bool), slope, jnp.zeros(2 * count), discs)
        return coulomb_forces(W, r, jnp.ones(count, bool), law)

    for _ in range(100):  # rows of one body: of rank six
        J, mu = rng.normal(size=(3 * count, 6)), rng.uniform(0.05, 0.6, count)
        W, r = J @ J.T, J @ rng.normal(size=6) * 3
        found = solve(W, r, mu)
        assert found.solved
        assert _cone_error(W, r, mu, np.asarray(found.forces)) < 1e-8


ARM, TURN = 0.3, 0.03  # half the distance of two feet, moment of inertia


def _bar_slips(q: Any, v: Any, t: Any, p: Any) -> Any:
    across = ARM * v[2] * jnp.stack([-jnp.sin(q[2]), jnp.cos(q[2])])
    return jnp.stack([v[:2] + across, v[:2] - across])


BAR = jm.System(
    lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + TURN * v[2] ** 2),
    [jm.DryFriction(_bar_slips, 1.5, name="feet")],
    force=lambda q, v, t, p: t * p["push"], coordinates=("x", "y", "c"),
)  # fmt: skip


@pytest.mark.slow
def test_a_bar_on_two_feet_moves_like_its_centre_or_slides_turns_and_stops() -> None:
    ts, still = jnp.linspace(0.0, 2.0, 11), jnp.zeros(3)
    sol = jm.simulate(
        BAR, still, still, ts, {"push": jnp.array([1.5, 2.0, 0.0])}, steps=jm.FixedSteps(20)
    )
    since = np.maximum(np.asarray(ts) - 1.2, 0.0)  # 2.5 t exceeds 2 x 1.5 N
    np.testing.assert_allclose(sol.q, np.outer(2.5 * since**3 / 6, [0.6, 0.8, 0]), atol=2e-8)
    for foot in ("feet[0] slips", "feet[1] slips"):
        np.testing.assert_allclose(sol.events[foot].t[0], 1.2, rtol=1e-9)
        assert sol.events[foot].count == 1
    start = jnp.array([1.0, 0.5, 3.0])
    sol = jm.simulate(BAR, still, start, ts, {"push": still}, steps=jm.FixedSteps(20))

    def rates(t: float, s: np.ndarray) -> np.ndarray:
        w = np.asarray(_bar_slips(s[:3], s[3:], t, None))
        f = -1.5 * w / np.hypot(*w.T)[:, None]
        moment = ARM * (np.cos(s[2]) * (f[0, 1] - f[1, 1]) - np.sin(s[2]) * (f[0, 0] - f[1, 0]))
        return np.r_[s[3:], f.sum(0), moment / TURN]

    exact = solve_ivp(rates, (0, 0.39595), np.r_[still, start], rtol=1e-8, atol=1e-10).y[:3, -1]
    np.testing.assert_allclose(sol.q[-1], exact, atol=1e-5)
    assert (sol.v[2:] == 0).all()
    assert (jnp.diff(sol.v**2 @ jnp.array([1.0, 1.0, TURN])) <= 0).all()
    np.testing.assert_allclose(sol.events["feet[1] stops"].t[0], 0.39599, atol=1e-5)
