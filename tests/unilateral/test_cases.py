"""Motions with contact that are known in closed form, or in exact pieces, with their derivatives.

Q1 to Q6 and S0 are numbers of cases that were computed elsewhere: by hand, with mpmath, or by an
integration without contact at 1e-11 and below.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

G = 9.81
PRECISE = jm.Adaptive(rtol=1e-11, atol=1e-13)


# Q1: a mass lands on a mass on a spring.
SPRING = jm.System(
    lambda q, v, t, p: 0.5 * (v[0] ** 2 + p["m"] * v[1] ** 2) - 200.0 * q[0] ** 2,
    [jm.Unilateral(lambda q, t, p: q[1] - q[0], lambda p: p["e"], name="gap")],
    force=lambda q, v, t, p: jnp.stack([0.0 * t, p["F"]]), coordinates=("x1", "x2"),
)  # fmt: skip
LANDINGS = [  # e, m2, F, x and v at 1 s and at 2.9 s
    (1.0, 2.0, 0.0, None, (0.045639738433, 1.530433043817, 0.690687487672, 0.587263358584)),
    (1.0, 2.0, -3.0, None, (0.019577216019, 0.355011024970, -0.501715241736, -0.180150925010)),
    (0.0, 0.5, 0.0, None, (0.015841063247, 0.869205841825, -0.103611761875, 1 / 3)),
    (0.5, 0.5, -3.0, (-0.0241380154, -0.0241380154, 0.2996018538, 0.2996018538),
     (-0.0295496882, -0.0295496882, 0.1551726164, 0.1551726164)),
]  # fmt: skip


@pytest.mark.slow
def test_a_contact_that_begins_and_ends_without_force() -> None:
    """Q1, and that energy is kept by elastic impacts and never grows."""
    e, m, F = (np.array(column) for column in list(zip(*LANDINGS, strict=True))[:3])

    def land(e: Any, m: Any, F: Any) -> jm.Solution:
        params, ts = {"e": e, "m": m, "F": F}, jnp.array([0.0, 1.0, 2.9])
        return jm.simulate(SPRING, [0.0, 0.1], [0.0, -1.0], ts, params, steps=PRECISE)

    sols = jax.vmap(land)(e, m, F)
    q, v = np.asarray(sols.q), np.asarray(sols.v)
    for k, (*_, first, last) in enumerate(LANDINGS):
        for number, expected in ((1, first), (2, last)):
            if expected:
                state = np.concatenate([q[k, number], v[k, number]])
                np.testing.assert_allclose(state, expected, atol=1e-9)
    hits, opens = sols.events["gap closes"], sols.events["gap opens"]
    assert hits.count.tolist()[:3] == [2, 6, 1]
    six = [0.093450283399, 0.210374689293, 0.324818644188, 1.846297674244, 1.955967856125]
    ever_shorter = [0.080539949570, 0.184467488445, 0.237154926950]
    np.testing.assert_allclose(hits.t[0, :2], [0.1, 0.223728839368], atol=1e-10)
    np.testing.assert_allclose(hits.t[1, :6], [*six, 2.053226086609], atol=1e-10)
    np.testing.assert_allclose(hits.t[3, :3], ever_shorter, atol=1e-10)
    np.testing.assert_allclose(hits.t[2, 0], 0.1, atol=1e-9)  # where the force is zero at first
    np.testing.assert_allclose(opens.t[:, 0][2:], [0.292382474524, 0.727521111], atol=1e-9)
    energy = v[..., 0] ** 2 / 2 + m[:, None] * v[..., 1] ** 2 / 2
    energy += 200 * q[..., 0] ** 2 - F[:, None] * q[..., 1]
    np.testing.assert_allclose(energy[:2], energy[:2, :1] + np.zeros(3), rtol=1e-9)
    assert (np.diff(energy, axis=1) < 1e-9).all()


# Q2: two smooth discs.
DISCS = jm.System(
    lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + 2.0 * v[2:] @ v[2:]),
    [jm.Unilateral(lambda q, t, p: jnp.linalg.norm(q[2:] - q[:2]) - 0.2, lambda p: p, name="gap")],
    coordinates=("x1", "y1", "x2", "y2"),
)


@pytest.mark.slow
def test_derivatives_through_an_oblique_impact() -> None:
    """Q2: by the place of one disc, its speed, the restitution and the place of the other."""

    def end(z: Any) -> Any:
        y0, v1x, e, x2 = z
        q0 = jnp.stack([0.0, y0, x2, 0.05])
        v0 = jnp.stack([v1x, 0.1, -0.2, 0.0])
        sol = jm.simulate(DISCS, q0, v0, jnp.array([0.0, 1.0]), e, steps=jm.FixedSteps(3))
        ends = jnp.append(sol.q[-1], sol.events["gap closes"].t[0])
        return ends, ends

    z = jnp.array([0.0, 1.0, 0.8, 0.6])
    expected = [0.0408290180212289, 0.0200690848351024, 0.879585490989386, 0.0899654575824488]
    J, value = jax.jacrev(end, has_aux=True)(z)
    np.testing.assert_allclose(value, [*expected, 0.33390904029252], atol=1e-12)
    slopes = [
        [
            -0.49758441712864,
            5.7710130055436,
            0.24879220856432,
            -2.3855065027718,
            -0.068965517241379,
        ],
        [-0.18064186182641, -0.23229765808302, 0.59032093091321, 0.11614882904151],
        [-0.53287276776598, -0.044406063980499, 0.26643638388299, 0.022203031990249, 0.0],
        [1.1585346319059, 0.49758441712864, 0.42073268404703, -0.24879220856432],
    ]
    H = jax.hessian(lambda z: end(z)[0][3])(z)
    for k, column in enumerate(slopes):
        np.testing.assert_allclose(J[: len(column), k], column, atol=1e-11)
    np.testing.assert_allclose(H[0, 0], -2.7267464585109, rtol=1e-10)
    np.testing.assert_allclose(H[0, 2], -1.3252813904288, rtol=1e-10)


# Q3: a pendulum as a point on a circle, and a fall with drag.
PENDULUM = jm.System(
    lambda q, v, t, p: 0.5 * v @ v - G * q[1],
    [jm.Holonomic(lambda q, t, p: q @ q - p["l"] ** 2, "rod")], coordinates=("x", "y"),
)  # fmt: skip
FALL = jm.System(
    lambda q, v, t, p: 0.5 * v @ v - G * q[0], force=lambda q, v, t, p: -p * v * jnp.abs(v),
    coordinates=("y",),
)  # fmt: skip


@pytest.mark.slow
def test_first_and_second_derivatives_of_event_times() -> None:
    """Q3, by elliptic integrals; the drag is a closed form."""
    passes = jm.Event(
        lambda q, v, t, p: jnp.arctan2(q[0], -q[1]) - p["to"], -1, terminal=True, name="passes"
    )

    def time(z: Any) -> Any:
        start, length, to = z
        q0 = length * jnp.stack([jnp.sin(start), -jnp.cos(start)])
        ts, params = jnp.array([0.0, 1.0]), {"l": length, "to": to}
        sol = jm.simulate(PENDULUM, q0, [0.0, 0.0], ts, params, events=passes, steps=PRECISE)
        return sol.events["passes"].t[0]

    z = jnp.array([[2.0, 0.7, to] for to in (0.0, 0.5, 1.5, -1.0)])
    times, slopes = jax.vmap(jax.value_and_grad(time))(z)
    H = jax.vmap(jax.hessian(time))(z)
    exact = [0.5576069134421725, 0.4770439083429747, 0.2761381047370132, 0.7268654082971259]
    np.testing.assert_allclose(times, exact, atol=1e-10)
    np.testing.assert_allclose(slopes[0, :2], [0.184330429073881, 0.398290652458695], atol=1e-9)
    np.testing.assert_allclose(H[0, 0, :2], [0.223761941724678, 0.131664592195629], atol=1e-8)
    by_angle = [-0.166064879597731, -0.270699061410245, -0.193138376938195]
    np.testing.assert_allclose(slopes[1:, 2], by_angle, atol=1e-9)
    twice = [-0.0307698597715021, -0.277294936208189, 0.0849602624118497]
    np.testing.assert_allclose(H[1:, 2, 2], twice, atol=1e-8)

    lands = jm.Event(lambda q, v, t, p: q[0], -1, terminal=True, name="lands")

    def fall(z: Any) -> Any:
        c, h = z
        ts = jnp.array([0.0, 6.0])
        sol = jm.simulate(FALL, h[None], [0.0], ts, c, events=lands, steps=PRECISE)
        return sol.events["lands"].t[0]

    z = jnp.array([0.003, 100.0])
    landed, slopes = jax.value_and_grad(fall)(z)
    np.testing.assert_allclose(landed, 4.744017133008583, rtol=1e-10)
    np.testing.assert_allclose(slopes, [77.143022115083, 0.0260343763284954], rtol=1e-9)
    np.testing.assert_allclose(jax.hessian(fall)(z)[0, 0], 505.866650006145, rtol=1e-8)


# Q4: a block in a pinch, and a cube that slides.
def squeeze(q: Any, v: Any, t: Any, p: Any) -> Any:
    force = jnp.where(t < 10.0, 20.0, 20.0 - 2.0 * (t - 10.0))
    return jnp.stack([0.0 * t, 0.0 * t, -jnp.where(t < 17.095, force, 30.0)])


def sinking(q: Any, t: Any, p: Any) -> Any:
    return q[1:2]


PINCH = jm.System(
    lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + 0.5 * v[2] ** 2) - G * q[1],
    [
        jm.Unilateral(lambda q, t, p: q[0], friction=0.5, slip=sinking, name="wall"),
        jm.Unilateral(lambda q, t, p: q[2] - q[0], friction=0.5, slip=sinking, name="jaw"),
    ],
    force=squeeze, coordinates=("x", "y", "jaw"),
)  # fmt: skip


@pytest.mark.slow
def test_a_pinch_holds_without_creep() -> None:
    """Q4a."""
    ts = jnp.array([0.0, 10.0, 15.0, 17.095, 18.0, 3618.0])
    start = [0.0] * 3
    sol = jm.simulate(PINCH, start, start, ts, steps=PRECISE)
    assert not sol.q[:3].any()
    assert (sol.q[4] == sol.q[5]).all()
    np.testing.assert_allclose(sol.q[3:, 1], [-8 / 3, -3.062902426944, -3.062902426944], rtol=1e-9)
    for name in ("wall friction", "jaw friction"):
        np.testing.assert_allclose(sol.events[f"{name} slips"].t[0], 15.095, rtol=1e-12)
        np.testing.assert_allclose(sol.events[f"{name} stops"].t[0], 17.293117880139, rtol=1e-12)


def corners(q: Any) -> Any:
    side, (x, y, a) = jnp.array([-0.05, 0.05]), q
    return (
        x + side * jnp.cos(a) + 0.05 * jnp.sin(a), y + side * jnp.sin(a) - 0.05 * jnp.cos(a)
    )  # fmt: skip


CUBE = jm.System(
    lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + 0.01 / 6 * v[2] ** 2) - G * q[1],
    [jm.Unilateral(lambda q, t, p: corners(q)[1], friction=lambda p: p,
                   slip=lambda q, t, p: corners(q)[0], name="corner")],
    coordinates=("x", "y", "tilt"),
)  # fmt: skip


@pytest.mark.slow
def test_a_cube_that_slides_and_one_that_tips() -> None:
    """Q4b; the tilt is clockwise, about the corner in front."""

    def slide(mu: Any, speed: Any, ts: Any) -> Any:
        return jm.simulate(CUBE, [0.0, 0.05, 0.0], [speed, 0.0, 0.0], ts, mu, steps=PRECISE)

    ts = np.array([0.0, 1.0, 2.0])
    sol = slide(0.5, 6.0, ts)
    np.testing.assert_allclose(sol.q[-1], [3.6697247706422016, 0.05, 0.0], atol=1e-10)
    stops = [sol.events[f"corner friction[{k}] stops"].t[0] for k in range(2)]
    np.testing.assert_allclose(stops, 1.2232415902140672, rtol=1e-10)
    forces = jm.observe(CUBE, sol, 0.5).multipliers["corner"]
    np.testing.assert_allclose(forces[0], [2.4525, 7.3575], rtol=1e-9)

    sol = slide(1.2, 1.0, np.array([0.0, 0.02, 0.05]))
    place = jax.vmap(lambda q: corners(q)[0][1])
    rate = jax.jvp(place, (sol.q,), (sol.v,))[1]
    np.testing.assert_allclose(place(sol.q)[1] - 0.05, 0.01571985811179, rtol=1e-9)
    np.testing.assert_allclose(rate[1], 0.5641479520046, rtol=1e-9)
    np.testing.assert_allclose(-sol.q[1, 2], 0.01752159543967, rtol=1e-9)
    np.testing.assert_allclose(-sol.v[1, 2], 1.8251148889949, rtol=1e-9)
    force = jm.observe(CUBE, sol, 1.2).multipliers["corner"][0, 1]
    np.testing.assert_allclose(force, 14.014285714286, rtol=1e-9)
    np.testing.assert_allclose(sol.events["corner friction[1] stops"].t[0], 0.04047837, atol=1e-8)
    np.testing.assert_allclose(
        sol.events["corner friction[1] stops"].q[0, 2], -0.0821262268, atol=1e-8
    )


# Q5: a disc that bounces, slides and rolls.
DISC = jm.System(
    lambda q, v, t, p: 0.1 * (v[:2] @ v[:2] + 0.03**2 / 2 * v[2] ** 2) - 0.2 * G * q[1],
    [jm.Unilateral(lambda q, t, p: q[1], lambda p: p["e"], friction=lambda p: p["mu"],
                   slip=lambda q, t, p: q[:1] + 0.03 * q[2], name="floor")],
    coordinates=("x", "y", "turn"),
)  # fmt: skip


@pytest.mark.slow
def test_a_disc_that_bounces_and_rolls() -> None:
    """Q5."""

    def throw(mu: Any, e: Any, spin: Any) -> jm.Solution:
        v0, ts = jnp.stack([1.5, 0.0, spin]), np.linspace(0.0, 2.0, 11)
        params, steps = {"mu": mu, "e": e}, jm.FixedSteps(4)
        return jm.simulate(DISC, [0.0, 0.4, 0.0], v0, ts, params, steps=steps)

    cases = jnp.array([[0.1, 0.6, 60.0], [0.3, 0.6, 60.0], [0.15, 0.5, 200.0]]).T
    sols = jax.vmap(throw)(*cases)
    near = {"rtol": 1e-6}  # bounces below the rest speed do not take place
    ends = [1.4567131834827, 1.114125487044, 0.18368331634387]
    np.testing.assert_allclose(sols.q[:, -1, 0], ends, **near)
    np.testing.assert_allclose(sols.v[:, -1, 0], [0.4, 0.4, -1.0], rtol=1e-9)
    np.testing.assert_allclose(
        sols.v[:, -1, 2], [-13.3333333333, -13.3333333333, 33.3333333333], rtol=1e-9
    )
    hits = sols.events["floor closes"]
    np.testing.assert_allclose(hits.t[0, :2], [0.2855686245854, 0.6282509740879], rtol=1e-10)
    np.testing.assert_allclose(hits.v_after[0, :2, 0], [1.051771486851, 0.7828343789612], rtol=1e-9)
    np.testing.assert_allclose(hits.v_after[0, :2, 2], [30.11809912338, 12.18895859741], rtol=1e-9)
    np.testing.assert_allclose(hits.v_after[1, 0, 0], 0.4, rtol=1e-9)
    stops = sols.events["floor friction stops"]
    np.testing.assert_allclose(stops.t[2, stops.count[2] - 1], 1.6989466530751, **near)


# Q6: a motor reels in a load that swings, through a ring.
WINCH = jm.System(
    lambda q, v, t, p: v[:2] @ v[:2] + 0.001 * v[2] ** 2 - 2.0 * G * q[1],
    [jm.Unilateral(lambda q, t, p: 1.5 - 0.05 * q[2] - jnp.linalg.norm(q[:2]), name="rope")],
    force=lambda q, v, t, p: jnp.stack([0.0 * t, 0.0 * t, 0.1 * v[3]]),
    coordinates=("x", "y", "drum"), states=("i",),
    rates=lambda q, v, t, p: (p["V"] - 0.5 * v[3] - 0.1 * v[2]) / p["L"],
)  # fmt: skip


@pytest.mark.slow
def test_a_motor_reels_in_a_load_that_swings() -> None:
    """Q6."""
    ts = jnp.array([0.0, 0.25, 0.5, 1.0, 2.0])

    def polar(q: Any) -> Any:
        return jnp.stack([jnp.linalg.norm(q[:2]), jnp.arctan2(q[0], -q[1])])

    def reel(z: Any) -> tuple[Any, jm.Solution]:
        params, q0 = {"V": z[0], "L": z[1]}, 1.5 * jnp.stack([jnp.sin(z[2]), -jnp.cos(z[2])])
        sol = jm.simulate(WINCH, [*q0, 0.0, 0.0], [0.0] * 4, ts, params, steps=PRECISE)
        return polar(sol.q[3]), sol

    J, sol = jax.jacrev(reel, has_aux=True)(jnp.array([6.0, 0.01, 0.6]))
    r = [1.463783308912, 1.389694219843, 1.399631764783, 1.101373066383]
    angle = [0.485799845979, 0.160697082344, -0.549305448882, 0.522008488795]
    np.testing.assert_allclose(jax.vmap(polar)(sol.q[1:]), np.stack([r, angle], 1), atol=1e-8)
    current = [10.745056905677, 11.199929208976, 11.698049456623, 12.472563124604]
    np.testing.assert_allclose(sol.v[1:, 3], current, rtol=1e-8)
    tension = jm.observe(WINCH, sol, {"V": 6.0, "L": 0.01}).multipliers["rope"][1:, 0]
    expected = [20.9986538308, 23.5867495014, 22.0060965088, 23.9061431744]
    np.testing.assert_allclose(tension, expected, rtol=1e-7)
    slopes = [[-0.28415111, 4.75245651, 0.62213869], [-0.14527969, 2.47193429, -0.59754683]]
    np.testing.assert_allclose(J, slopes, atol=2e-7)


# S0: blocks on springs with dry friction.
BLOCK = jm.System(
    lambda q, v, t, p: 0.5 * p["m"] * v[0] ** 2 - 0.5 * p["k"] * q[0] ** 2,
    [jm.DryFriction(lambda q, v, t, p: v[0], lambda p: p["f"], name="rub")], coordinates=("x",),
)  # fmt: skip
MASSES = np.array([1.0, 2.0, 1.5])


def _energy_of_three(q: Any, v: Any, t: Any, p: Any) -> Any:
    stretch = jnp.stack([q[0], q[1] - q[0], q[2] - q[1]])
    return 0.5 * jnp.asarray(MASSES) @ v**2 - 0.5 * jnp.array([60.0, 40.0, 30.0]) @ stretch**2


THREE_BLOCKS = jm.System(
    _energy_of_three,
    [
        jm.DryFriction(lambda q, v, t, p, k=k: v[k], lambda p, k=k: p[k], name=f"rub{k}")
        for k in range(3)
    ],
    coordinates=("a", "b", "c"),
)


@pytest.mark.slow
def test_blocks_come_to_rest_by_dry_friction() -> None:
    """S0: one block in half swings, and three with 27 events."""
    ts = jnp.linspace(0.0, 6.0, 7)

    def rest(z: Any) -> Any:
        params = dict(zip(("f", "k", "m"), z, strict=True))
        sol = jm.simulate(BLOCK, [1.0], [0.0], ts, params, steps=PRECISE)
        record = sol.events["rub stops"]
        ends = jnp.stack([sol.q[-1, 0], record.t[7]])
        return ends, (ends, record.count)

    slopes, (ends, count) = jax.jacrev(rest, has_aux=True)(jnp.array([3.0, 50.0, 2.0]))
    assert count == 8
    np.testing.assert_allclose(ends, [0.04, 8 * np.pi / 5], rtol=1e-9)
    np.testing.assert_allclose(slopes[0], [-0.32, 0.0192, 0.0], atol=1e-8)
    np.testing.assert_allclose(slopes[1, 2], 1.25663706143592, rtol=1e-8)

    def swing(limits: Any) -> tuple[Any, jm.Solution]:
        q0, ts = [0.3, -0.2, 0.5], jnp.linspace(0.0, 4.5, 10)
        sol = jm.simulate(THREE_BLOCKS, q0, [0.0] * 3, ts, limits, steps=PRECISE)
        return sol.q[-1], sol

    J, sol = jax.jacrev(swing, has_aux=True)(jnp.array([2.0, 1.0, 1.5]))
    last = [0.017792536020, 0.002722679911, -0.030366567984]
    np.testing.assert_allclose(sol.q[-1], last, atol=1e-9)
    assert not sol.v[-1].any()
    times = [sol.events[name].t for name in sol.events]
    np.testing.assert_allclose(np.nanmax(times), 3.915895412127, rtol=1e-10)
    assert sum(sol.events.counts) == 27
    np.testing.assert_allclose(J[:, 0], [-0.168964938, -0.170822936, 0.035657571], atol=1e-8)
