"""Impacts and several contacts with friction, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jaxmech as jm
from tests.unilateral.systems import G


def _coefficients(p: Any) -> Any:
    return p["static"], p["kinetic"]


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


@pytest.mark.slow
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


@pytest.mark.slow
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


RADIUS, INERTIA = 0.1, 0.004  # of a ball of 1 kg

THROWN = jm.System(
    lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + INERTIA * v[2] ** 2) - G * q[1],
    [
        jm.Unilateral(
            lambda q, t, p: q[1] - p["floor"], restitution=lambda p: p["e"],
            friction=lambda p: p["mu"], slip=lambda q, t, p: q[0] + RADIUS * q[2], name="floor",
        )
    ],
    coordinates=("x", "y", "turn"),
)  # fmt: skip
THROW = {"e": 0.6, "mu": 0.1, "floor": 0.1}


def _third_landing(p: Any) -> Any:
    start, ts = ([0.0, 1.0, 0.0], [3.0, 0.0, 0.0]), jnp.linspace(0.0, 1.4, 8)
    sol = jm.simulate(THROWN, *start, ts, p, steps=jm.FixedSteps(2))
    return sol.events["floor closes"].q[2, 0], sol


def _landings(e: Any, mu: Any, floor: Any) -> tuple[Any, list[Any]]:
    """The place of the third landing, and x' and the turn's rate after the first two, exactly."""
    g, radius, inertia = map(mpmath.mpf, (G, RADIUS, INERTIA))
    fall = mpmath.sqrt(2 * (1 - floor) / g)
    speed, spin, hit, x, after = mpmath.mpf(3), mpmath.mpf(0), g * fall, 3 * fall, []
    for _ in range(2):
        sticking = (speed + radius * spin) / (1 + radius**2 / inertia)
        rub = min(mu * (1 + e) * hit, sticking)
        speed, spin, hit = speed - rub, spin - radius * rub / inertia, e * hit
        x += speed * 2 * hit / g
        after.append([speed, spin])
    return x, after


def test_oblique_impacts_rub() -> None:
    """The ball slides at its first impact, and sticks at its second one."""
    x, sol = _third_landing(THROW)
    exact, after = _landings(*map(mpmath.mpf, THROW.values()))
    np.testing.assert_allclose(x, float(exact), rtol=1e-13)
    hits = sol.events["floor closes"].v_after[:2]
    np.testing.assert_allclose(hits[:, [0, 2]], np.array(after, float), rtol=1e-12)
    assert (jnp.diff(sol.energy) < 1e-12).all()


@pytest.mark.slow
def test_derivatives_of_a_landing_are_differences_in_extended_precision() -> None:
    found, _ = jax.grad(_third_landing, has_aux=True)(THROW)
    with mpmath.workdps(50):
        at, h = [*map(mpmath.mpf, THROW.values())], mpmath.mpf(10) ** -20
        for k, name in enumerate(THROW):
            two = [[x + (j == k) * d for j, x in enumerate(at)] for d in (h, -h)]
            above, below = (_landings(*values)[0] for values in two)
            np.testing.assert_allclose(found[name], float((above - below) / (2 * h)), rtol=1e-11)


def _rod_end(q: Any, t: Any, p: Any) -> Any:
    return q[1] - jnp.sin(q[2])


def _rod_slip(q: Any, t: Any, p: Any) -> Any:
    return q[0] - jnp.cos(q[2])


@pytest.mark.slow
def test_a_rod_that_jams_or_has_two_motions_ends_a_run() -> None:
    """Painlevé: N (1 + 3 c^2 - 3 mu s c) + s w^2 - g is the acceleration of the end in contact."""
    rod = jm.System(
        lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + v[2] ** 2 / 3) - G * q[1],
        [jm.Unilateral(_rod_end, friction=lambda p: p["mu"], slip=_rod_slip, name="floor")],
        coordinates=("x", "y", "turn"),
    )
    s, c = 2 / np.sqrt(5), 1 / np.sqrt(5)

    def slides(mu: Any, spin: Any) -> jm.Solution:
        start = np.array([0.0, s, np.arctan2(s, c)]), jnp.stack([-1 - spin * s, spin * c, spin])
        ts, steps = jnp.linspace(0.0, 0.01, 3), jm.FixedSteps(4)
        return jm.simulate(rod, *start, ts, {"mu": mu}, steps=steps)

    sols = jax.vmap(slides)(jnp.array([1.3, 1.4, 1.4, 1.3]), jnp.array([0.0, 0.0, 5.0, 5.0]))
    jammed, ok = jm.Status.CONTACT_UNSOLVED, jm.Status.OK
    assert [*sols.status] == [ok, jammed, jammed, ok]
    np.testing.assert_array_equal(sols.t_failed[1:3], 0.0)
    assert "Painlevé" in jammed.message


@pytest.mark.slow
def test_a_rope_round_a_drum_slips_at_the_limit_of_its_links() -> None:
    """Three points on a drum, joined by stiff links, each with N = (T- + T+) sin(phi / 2)."""
    count, half, mu = 3, 0.2, 0.4
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
