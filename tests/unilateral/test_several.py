"""Several gaps that close, open or push at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import jaxmech as jm
from jaxmech.integrate.events.gaps import Gaps
from tests.unilateral.systems import ROW_OF_BALLS, G, falling, free

STEPS = jm.FixedSteps(10)


@pytest.mark.parametrize(
    ("speeds", "e", "expected"),
    [
        ([1, 0, 0, 0, 0], 1.0, [0, 0, 0, 0, 1]),
        ([1, 1, 0, 0, 0], 1.0, [0, 0, 0, 1, 1]),
        ([1, 0, 0, 0, 0], 0.0, [0.2] * 5),
    ],
    ids=["one", "two", "plastic"],
)
def test_a_blow_runs_through_a_row_of_balls(speeds: Any, e: float, expected: Any) -> None:
    start = np.array([-1.0, -0.9 if speeds[1] else 0.1, 0.2, 0.3, 0.4])
    ts = jnp.linspace(0.0, 2.5, 4)
    speeds, p = jnp.array(speeds, float), {"e": jnp.array(e)}
    sol = jm.simulate(ROW_OF_BALLS, start, speeds, ts, p, steps=STEPS)
    np.testing.assert_allclose(sol.v[-1], expected, atol=1e-12)


def _bar_energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v[0] ** 2 + v[1] ** 2 / 6 - G * q[0]


def _ends(q: Any, t: Any, p: Any) -> Any:
    return q[0] + jnp.array([-1.0, 1.0]) * jnp.sin(q[1])


BAR = jm.System(
    _bar_energy, [jm.Unilateral(_ends, restitution=0.5, name="ends")], coordinates=("y", "turn")
)


def test_a_bar_falls_flat_and_stays_flat() -> None:
    ts = jnp.linspace(0.0, 1.6, 17)
    sol = jm.simulate(BAR, jnp.array([1.0, 0.0]), jnp.zeros(2), ts, steps=STEPS)
    assert jnp.abs(sol.q[:, 1]).max() < 1e-14
    # Both ends bounce as one ball.
    first, hit = np.sqrt(2 / G), sol.events["ends[0] closes"]
    np.testing.assert_allclose(hit.t[0], first)
    np.testing.assert_allclose(hit.v_after[0], [0.5 * G * first, 0.0], atol=1e-12)
    np.testing.assert_allclose(sol.q[-1], 0.0, atol=1e-12)
    push = jm.observe(BAR, sol).multipliers["ends"]
    np.testing.assert_allclose(push[-1], [G / 2, G / 2])


@pytest.mark.slow
def test_a_tilted_bar_loses_energy_until_it_lies() -> None:
    ts = jnp.linspace(0.0, 3.0, 61)

    def fall(turn: Any) -> jm.Solution:
        return jm.simulate(BAR, jnp.stack([1.0 + turn, turn]), jnp.zeros(2), ts, steps=STEPS)

    sols = jax.vmap(fall)(jnp.array([0.01, 0.1, 0.3, 0.7]))
    assert (sols.status == jm.Status.OK).all()
    assert (jnp.diff(sols.energy, axis=1) < 1e-9).all()
    assert jnp.abs(sols.q[:, -1]).max() < 1e-9


LEGS = jnp.array([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])


@pytest.mark.slow
def test_a_table_with_four_legs_is_lifted_on_one_side() -> None:
    def energy(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v[0] ** 2 + 0.2 * (v[1] ** 2 + v[2] ** 2) - G * q[0] + 3 * t * q[1]

    def legs(q: Any, t: Any, p: Any) -> Any:
        return q[0] + LEGS.T @ q[1:]

    table = jm.System(energy, [jm.Unilateral(legs, name="legs")], coordinates=("y", "a", "b"))
    ts = jnp.linspace(0.0, 4.0, 5)
    sol = jm.simulate(table, jnp.zeros(3), jnp.zeros(3), ts, steps=STEPS)
    push = jm.observe(table, sol).multipliers["legs"]
    # Pushes of minimum norm, of three independent equations.
    side = 3 * ts[:-1, None] * jnp.array([[-1.0, -1.0, 1.0, 1.0]])
    np.testing.assert_allclose(push[:-1], (G + side) / 4, atol=1e-12)
    # Two legs leave at once, where the torque 3 t is that of the weight.
    counts = [int(sol.events[f"legs[{k}] opens"].count) for k in range(4)]
    assert counts == [0, 0, 1, 1] or counts == [1, 1, 0, 0]
    k = counts.index(1)
    times = [sol.events[f"legs[{j}] opens"].t[0] for j in (k, k + 1)]
    np.testing.assert_allclose(times, G / 3, rtol=1e-12)
    np.testing.assert_array_equal(push[-1] > 0, [False, False, True, True])


@pytest.mark.slow
def test_a_squeezed_body_ends_a_run() -> None:
    def walls(q: Any, t: Any, p: Any) -> Any:
        return jnp.stack([q[0] - t**2, 1e-3 - t**2 - q[0]])

    squeezed = jm.System(free, [jm.Unilateral(walls, name="walls")], coordinates=("x",))
    ts = jnp.linspace(0.0, 0.1, 3)
    start = jnp.zeros(1), jnp.zeros(1)
    sol = jm.simulate(squeezed, *start, ts, steps=STEPS, throw=False)
    assert sol.status in (jm.Status.CONTACT_UNSOLVED, jm.Status.TOO_MANY_EVENTS)
    np.testing.assert_allclose(sol.t_failed, np.sqrt(0.5e-3), atol=0.01)


@pytest.mark.slow
def test_too_many_contacts_end_a_run() -> None:
    def weights(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v @ v - q.sum()

    floor = jm.Unilateral(lambda q, t, p: q, name="floor")
    many = jm.System(weights, [floor], coordinates=tuple("abcdefghi"))
    ts = jnp.linspace(0.0, 0.1, 3)
    sol = jm.simulate(many, jnp.zeros(9), jnp.zeros(9), ts, steps=STEPS, throw=False)
    assert sol.status == jm.Status.TOO_MANY_CONTACTS


def _two_pendulums(q: Any, v: Any, t: Any, p: Any) -> Any:
    a, b = q[0], q[0] + q[1]
    x1, y1 = jnp.sin(a), -jnp.cos(a)
    da, db = v[0], v[0] + v[1]
    v1 = da * jnp.stack([jnp.cos(a), jnp.sin(a)])
    v2 = v1 + db * jnp.stack([jnp.cos(b), jnp.sin(b)])
    return 0.5 * (v1 @ v1 + v2 @ v2) - G * (2 * y1 - jnp.cos(b)) + 0 * x1


@pytest.mark.slow
def test_a_double_pendulum_with_a_stop_is_a_hybrid_automaton() -> None:
    """Against scipy, with the mass matrix of two unit masses on unit rods by hand."""
    e, limit = 0.6, 0.3
    stop = jm.Unilateral(lambda q, t, p: limit - q[1], restitution=e, name="stop")
    system = jm.System(_two_pendulums, [stop], coordinates=("hip", "knee"))
    start = np.array([1.2, -0.5])
    ts = jnp.linspace(0.0, 2.5, 7)
    steps = jm.Adaptive(rtol=1e-11, atol=1e-13, max_steps=512)
    sol = jm.simulate(system, start, np.zeros(2), ts, steps=steps)

    def mass(knee: float) -> np.ndarray:
        c = np.cos(knee)
        return np.array([[3 + 2 * c, 1 + c], [1 + c, 1.0]])

    def rates(t: float, x: np.ndarray) -> np.ndarray:
        (a, k), (da, dk) = x[:2], x[2:]
        s = np.sin(k)
        Q = np.array([s * (2 * da * dk + dk**2) - G * (2 * np.sin(a) + np.sin(a + k)),
                      -s * da**2 - G * np.sin(a + k)])  # fmt: skip
        return np.concatenate([x[2:], np.linalg.solve(mass(k), Q)])

    def hit(t: float, x: np.ndarray) -> float:
        return limit - x[1]

    hit.terminal, hit.direction = True, -1  # type: ignore[attr-defined]
    t, x, times = 0.0, np.concatenate([start, np.zeros(2)]), []
    while t < 2.5:
        piece = scipy.integrate.solve_ivp(
            rates, (t, 2.5), x, method="DOP853", rtol=1e-12, atol=1e-13, events=hit
        )
        t, x = piece.t[-1], piece.y[:, -1]
        if piece.status == 1:
            times.append(t)
            along = np.linalg.solve(mass(x[1]), [0.0, 1.0])
            x[2:] -= along / along[1] * (1 + e) * x[3]
    found = sol.events["stop closes"]
    assert int(found.count) == len(times) >= 2
    np.testing.assert_allclose(found.t[: len(times)], times, rtol=1e-9)
    np.testing.assert_allclose(sol.q[-1], x[:2], rtol=1e-8)
    np.testing.assert_allclose(sol.v[-1], x[2:], rtol=1e-8)


@pytest.mark.slow
def test_two_stops_of_a_joint_share_a_row() -> None:
    def gaps(q: Any, t: Any, p: Any) -> Any:
        return jnp.array([q[0] + p["lower"], p["upper"] - q[0], q[1], q[1] + q[0]])

    stops = jm.Unilateral(gaps, name="stops")
    pull = jnp.array([1.0, 0.0])
    system = jm.System(free, [stops], lambda q, v, t, p: p["pull"] * pull, coordinates=("x", "y"))
    p = {"lower": jnp.array(1.0), "upper": jnp.array(2.0), "pull": jnp.array(3.0)}
    q0, ts = jnp.array([1.5, 4.0]), jnp.linspace(0.0, 2.0, 3)
    assert Gaps.of(system, q0, ts[0], p).slots == (0, 0, 1, 2)

    def pulled(pull: Any) -> Any:
        params = {**p, "pull": pull}
        sol = jm.simulate(system, q0, jnp.zeros(2), ts, params, steps=STEPS)
        return sol, jm.observe(system, sol, params).multipliers["stops"]

    sol, pushes = jax.jit(jax.vmap(pulled))(jnp.array([3.0, -4.0]))
    np.testing.assert_allclose(sol.q[:, -1, 0], [2.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(pushes[:, -1], [[0, 3, 0, 0], [4, 0, 0, 0]], atol=1e-9)
    counts = [sol.events[f"stops[{k}] closes"].count for k in (0, 1)]
    np.testing.assert_array_equal(counts, [[0, 1], [1, 0]])


@pytest.mark.slow
def test_gaps_in_quasi_velocities() -> None:
    def turned(q: Any, t: Any, p: Any) -> Any:
        c, s = jnp.cos(0.3), jnp.sin(0.3)
        return jnp.array([[c, -s], [s, c]])

    floor = jm.Unilateral(lambda q, t, p: q[1], restitution=0.5, name="floor")
    ball = jm.System(
        falling, [floor], coordinates=("x", "y"), velocities=("u", "w"), kinematics=turned
    )
    ts = jnp.linspace(0.0, 0.8, 3)
    sol = jm.simulate(ball, jnp.array([0.0, 1.0]), jnp.zeros(2), ts, steps=STEPS)
    hit = np.sqrt(2 / G)
    rest_of_time = 0.8 - hit
    expected = 0.5 * G * hit * rest_of_time - G * rest_of_time**2 / 2
    np.testing.assert_allclose(sol.q[-1], [0.0, expected], atol=1e-12)
