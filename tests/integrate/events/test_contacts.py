"""Bodies that touch: what an impact makes close at once, and what stays at rest."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.status import Status

G = 9.81
COUNT, SIZE = 5, 0.1
by_steps = pytest.mark.parametrize(
    "steps",
    [
        pytest.param(jm.FixedSteps(2), id="fixed"),
        pytest.param(jm.Adaptive(max_steps=512), id="tolerance", marks=pytest.mark.slow),
    ],
)


def _restitution(p: Any) -> Array:
    return p["e"]


def contact(fn: Any, name: str, **transition: Any) -> jm.Event:
    how = transition or {"restitution": _restitution}
    return jm.Event(fn, direction=-1, transition=jm.Transition(**how), name=name)


def in_row(q: Array, v: Array, t: Array, p: Any) -> Array:
    return 0.5 * p["m"] @ (v * v)


BALLS = jm.System(in_row, coordinates=tuple("abcde"))
HITS = tuple(
    contact(lambda q, v, t, p, k=k: q[k + 1] - q[k] - SIZE, f"{k}") for k in range(COUNT - 1)
)
ROW = SIZE * np.arange(COUNT)


def moved(**by: float) -> np.ndarray:
    """Balls that touch, but for some of them."""
    return ROW + np.array([by.get(name, 0.0) for name in "abcde"])


# start, velocities, restitution, velocities at the end, number of impacts
CRADLES = {
    "one": (moved(a=-1), [1, 0, 0, 0, 0], 1.0, [0, 0, 0, 0, 1], 4),
    "two": (moved(a=-1, b=-1), [1, 1, 0, 0, 0], 1.0, [0, 0, 0, 1, 1], 6),
    "three": (moved(a=-1, b=-1, c=-1), [1, 1, 1, 0, 0], 1.0, [0, 0, 1, 1, 1], 6),
    "from both sides": (moved(a=-1, e=1), [1, 0, 0, 0, -1], 1.0, [-1, 0, 0, 0, 1], 7),
    "at the start": (ROW, [1, 0, 0, 0, 0], 1.0, [0, 0, 0, 0, 1], 4),
    "apart by 1e-12": (moved(a=-1, d=1e-12, e=2e-12), [1, 0, 0, 0, 0], 1.0, [0, 0, 0, 0, 1], 4),
    "overlap of round-off": (moved(a=-1, c=-1e-16), [1, 0, 0, 0, 0], 1.0, [0, 0, 0, 0, 1], 4),
    "plastic": (moved(a=-1), [1, 0, 0, 0, 0], 0.0, [0.2] * 5, None),
}


@pytest.mark.slow
@by_steps
def test_newton_s_cradle(steps: Any) -> None:
    """Balls of equal masses exchange their velocities, one impact after another at one time."""

    def run(q0: Array, v0: Array, e: Array) -> tuple[Any, ...]:
        p, ts = {"m": jnp.ones(COUNT), "e": e}, jnp.array([0.0, 1.5, 3.0])
        sol = jm.simulate(BALLS, q0, v0, ts, p, steps=steps, events=HITS)
        return sol.q[-1], sol.v[-1], sol.status, sum(sol.events[hit.name].count for hit in HITS)

    q0, v0, e, expected, impacts = map(list, zip(*CRADLES.values(), strict=True))
    batch = (jnp.array(np.array(x, float)) for x in (q0, v0, e))
    q, v, status, count = jax.jit(jax.vmap(run))(*batch)
    assert (status == Status.OK).all()
    np.testing.assert_allclose(v, np.array(expected), atol=1e-13)
    np.testing.assert_array_less(SIZE - 1e-12, np.diff(q, axis=1))
    for name, found, number in zip(CRADLES, count, impacts, strict=True):
        assert number in (None, int(found)), name


@pytest.mark.parametrize(
    "steps",
    [
        jm.FixedSteps(),
        pytest.param(jm.FixedSteps(10), marks=pytest.mark.slow),
        pytest.param(jm.Adaptive(), marks=pytest.mark.slow),
    ],
)
def test_three_balls_that_meet_at_the_same_time(steps: Any) -> None:
    system = jm.System(lambda q, v, t, p: 0.5 * v @ v, coordinates=("a", "b", "c"))
    sol = jm.simulate(
        system, [-1.1, 0.0, 1.1], [1.0, 0.0, -1.0], [0.0, 1.5, 3.0], {"e": 1.0},
        steps=steps, events=HITS[:2],
    )  # fmt: skip
    np.testing.assert_allclose(sol.q[-1], [-2.1, 0.0, 2.1], atol=1e-12)
    np.testing.assert_allclose(sol.v[-1], [-1.0, 0.0, 1.0], atol=1e-14)


def bar(q: Array, v: Array, t: Array, p: Any) -> Array:
    """A uniform bar of mass 1 and length 2."""
    return 0.5 * v[0] ** 2 + v[1] ** 2 / 6 - G * q[0]


def left(q: Array, t: Array, p: Any) -> Array:
    return q[0] - jnp.sin(q[1])


def right(q: Array, t: Array, p: Any) -> Array:
    return q[0] + jnp.sin(q[1])


@pytest.mark.slow
def test_contacts_that_become_constraints() -> None:
    """A bar that drops on both ends, that lies there at first, and that falls on one end."""
    how = {fn: contact(lambda q, v, t, p, fn=fn: fn(q, t, p), fn.__name__, on=fn.__name__)
           for fn in (left, right)}  # fmt: skip
    system = jm.System(
        bar, [jm.Holonomic(fn, fn.__name__) for fn in how], coordinates=("z", "angle")
    )

    def run(q0: Array) -> jm.Solution:
        return jm.simulate(
            system, q0, jnp.zeros(2), jnp.array([0.0, 0.5, 1.0]), steps=jm.FixedSteps(2),
            events=tuple(how.values()), inactive=("left", "right"),
        )  # fmt: skip

    sol = jax.vmap(run)(jnp.array([[1.0, 0.0], [0.0, 0.0], [0.3, np.arcsin(0.3)]]))
    assert (sol.status == Status.OK).all()
    np.testing.assert_allclose(sol.q[:, -1], 0.0, atol=1e-14)
    np.testing.assert_array_equal(sol.events["left"].count, 1)
    np.testing.assert_array_equal(sol.events["right"].count, 1)


BALL = jm.System(lambda q, v, t, p: 0.5 * v @ v - p["g"] * q[1], coordinates=("x", "y"))
HALF = jm.Transition(lambda q, v, t, p: (q, v / 2))
BOX = (
    contact(lambda q, v, t, p: q[1], "floor"),
    contact(lambda q, v, t, p: 1 - q[0], "wall"),
    jm.Event(lambda q, v, t, p: q[1], -1, name="low"),
    *(jm.Event(lambda q, v, t, p: t - 2, 1, transition=HALF, name=f"{k}") for k in range(2)),
)


@pytest.mark.slow
@by_steps
def test_starts_in_contact_and_save_times(steps: Any) -> None:
    """Right, or a status: corners, rest, and save times that are wrong under `jit` or repeated."""
    good, corner = [0.0, 1.0, 3.0], ([1.0, 0.0], [1.0, -2.0], 1.0, 0.0)
    cases = {
        "a corner met at once": (good, [0.0, 1.0], [1.0, -1.0], 1.0, 0.0),
        "a corner at the start": (good, *corner),
        "at rest without a force": (good, [0.5, 0.0], [0.1, 0.0], 1.0, 0.0),
        "at rest": (good, [0.5, 0.0], [0.1, 0.0], 1.0, G),
        "thrown from the floor": ([0.0, 1.0, 1.9], [0.5, 0.0], [0.0, 0.75 * G], 0.5, G),
        "without bounce": (good, [0.5, 1.0], [0.0, 0.0], 0.0, G),
        "repeated": ([0.0, 0.0, 2.0], *corner),
        "repeated at the end": ([0.0, 2.0, 2.0], *corner),
        "no order": ([0.0, 2.0, 1.0], *corner),
        "NaN": ([0.0, np.nan, 1.0], *corner),
    }

    def run(ts: Array, q0: Array, v0: Array, e: Array, g: Array) -> jm.Solution:
        return jm.simulate(BALL, q0, v0, ts, {"e": e, "g": g}, steps=steps, events=BOX)

    batch = (jnp.array(x) for x in zip(*cases.values(), strict=True))
    sol = jax.jit(jax.vmap(run))(*batch)
    at = {name: jax.tree.map(lambda x, k=k: x[k], sol) for k, name in enumerate(cases)}

    def ends(name: str, q: Any, v: Any, **counts: int) -> None:
        assert at[name].status == Status.OK
        np.testing.assert_allclose(at[name].q[-1], q, atol=1e-12)
        np.testing.assert_allclose(at[name].v[-1], v, atol=1e-12)
        for event, count in counts.items():
            assert at[name].events[event].count == count

    # Both functions of t change the motion at t = 2.
    ends("a corner met at once", [-0.25, 1.25], [-0.25, 0.25], floor=1, wall=1, low=1)
    ends("a corner at the start", [-1.25, 4.5], [-0.25, 0.5], floor=1, wall=1)
    ends("at rest without a force", [0.725, 0.0], [0.025, 0.0], floor=0)
    ends("thrown from the floor", [0.5, 0.07 * G], [0.0, -0.025 * G], floor=1, low=1)
    ends("repeated", [-1.0, 4.0], [-0.25, 0.5], floor=1, wall=1)
    ends("repeated at the end", [-1.0, 4.0], [-0.25, 0.5], floor=1, wall=1)
    for name, status in {
        "at rest": Status.CONTACT_AT_REST,
        "without bounce": Status.CONTACT_AT_REST,
        "no order": Status.NONFINITE,
        "NaN": Status.NONFINITE,
    }.items():
        assert at[name].status == status, name
        assert np.isfinite(at[name].t_failed)


def sequence(q: Array, v: Array, m: Array) -> Array:
    """Positions and velocities of three balls at t = 3, after an impact of each pair."""
    left = 3.0
    for k in range(2):
        closing = v[k] - v[k + 1]
        t = (q[k + 1] - q[k] - SIZE) / closing
        q, left = q + t * v, left - t
        impulse = 2 * closing / (1 / m[k] + 1 / m[k + 1])
        v = v.at[k].add(-impulse / m[k]).at[k + 1].add(impulse / m[k + 1])
    return jnp.concatenate([q + left * v, v])


@pytest.mark.slow
def test_derivatives_of_impacts_at_the_same_time() -> None:
    """Those of a sequence of impacts, also with respect to gaps that are zero."""
    system = jm.System(in_row, coordinates=("a", "b", "c"))

    def simulated(q0: Array, v0: Array, m: Array) -> Array:
        p, ts = {"m": m, "e": jnp.ones(())}, jnp.array([0.0, 1.5, 3.0])
        sol = jm.simulate(system, q0, v0, ts, p, steps=jm.FixedSteps(2), events=HITS[:2])
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    at = jnp.array([-0.9, 0.1, 0.2]), jnp.array([1.0, 0.0, 0.0]), jnp.array([1.0, 2.0, 4.0])
    found = jax.jacrev(simulated, (0, 1, 2))(*at)
    for slopes, expected in zip(found, jax.jacrev(sequence, (0, 1, 2))(*at), strict=True):
        np.testing.assert_allclose(slopes, expected, atol=1e-11)
