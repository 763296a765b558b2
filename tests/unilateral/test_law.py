"""The law of contact for redundant rows, against linear programs, least squares, closed forms."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxmech as jm
import jaxmech.parts as jp
from jaxmech.integrate.events.coulomb import Coulomb, contact, margin
from jaxmech.integrate.events.impacts import MotionState
from tests.unilateral.systems import G

GAPS, SLIPS = 3, 4


def _largest_margin(Y: Any, x: Any, members: Any, law: Any, units: Any) -> float:
    """The linear program of `margin`, by scipy."""
    rows = GAPS + SLIPS
    equal, goal = [*np.c_[Y.T, np.zeros(Y.shape[1])]], [*(Y.T @ x)]
    below, most = [], []
    for k in range(rows):
        row = np.eye(rows + 1)[k]
        if k < GAPS and members[k]:
            below.append(-row + units[k] * np.eye(rows + 1)[-1])
            most.append(0.0)
        elif k >= GAPS and law.box[k - GAPS]:
            for sign in (1, -1):
                limit = np.r_[law.slope[k - GAPS], np.zeros(SLIPS), -units[k]]
                below.append(sign * row - limit)
                most.append(law.offset[k - GAPS])
        else:
            push = np.zeros(GAPS) if k < GAPS else law.slope[k - GAPS]
            equal.append(row + np.r_[push, np.zeros(SLIPS + 1)])
            goal.append(0.0 if k < GAPS else -law.offset[k - GAPS])
    bounds = [(None, None)] * rows + [(None, 1)]
    found = scipy.optimize.linprog(
        -np.eye(rows + 1)[-1], np.array(below), most, np.array(equal), goal, bounds
    )
    return float(-found.fun)


def test_margins_of_random_contacts_are_those_of_a_linear_program() -> None:
    rng = np.random.default_rng(1)
    cases: list[Any] = []
    for _ in range(60):
        Y = rng.normal(size=(GAPS + SLIPS, 6)) * (np.arange(6) < rng.integers(1, 6))
        members = rng.random(GAPS) < 0.7
        at = rng.integers(-1, GAPS, SLIPS)  # the gap that presses, if any does
        on = (at < 0) | members[at]
        box = on & (rng.random(SLIPS) < 0.7)
        limits = np.where(box, 1, rng.choice([-1, 1], SLIPS)) * on * rng.uniform(0.1, 1.0, SLIPS)
        parts: Any = box, limits[:, None] * (at[:, None] == np.arange(GAPS)), limits * (at < 0)
        law = Coulomb(*parts)
        pushes = members * rng.uniform(0.0, 2.0, GAPS)
        limit = law.slope @ pushes + law.offset
        x = np.r_[pushes, np.where(box, rng.uniform(-1.2, 1.2, SLIPS), -1) * limit]
        if box.any():
            cases.append((Y, x, members, law))
    rows = jax.tree.map(lambda *x: np.stack(x), *cases)
    found = jax.jit(jax.vmap(margin))(rows[0] @ rows[0].transpose(0, 2, 1), *rows[1:])
    for case, value, units, y in zip(cases, found.value, found.units, found.forces, strict=True):
        Y, x, members, law = case
        expected = _largest_margin(Y, x, members, law, np.asarray(units))
        np.testing.assert_allclose(value, expected, atol=1e-9)
        np.testing.assert_allclose(Y.T @ y, Y.T @ x, atol=1e-9)
        if expected >= 0:
            limit = law.slope @ y[:GAPS] + law.offset
            assert (np.abs(y[GAPS:]) <= limit + 1e-12)[law.box].all()
            assert (y[:GAPS] >= -1e-12).all()


def test_accelerations_of_random_contacts_are_those_of_bounded_least_squares() -> None:
    rng, cases = np.random.default_rng(2), []
    for _ in range(80):
        Y = rng.normal(size=(GAPS + SLIPS, 6)) * (np.arange(6) < rng.integers(1, 7))
        cases.append((Y, rng.normal(size=6), rng.uniform(0.1, 2.0, SLIPS)))
    Y, a, limits = (np.stack(x) for x in zip(*cases, strict=True))

    def forces(Y: Any, a: Any, limits: Any) -> Any:
        members, on, r = jnp.ones(GAPS, bool), jnp.ones(SLIPS, bool), Y @ a
        both, size = jnp.stack([limits, limits]), jnp.abs(Y) @ jnp.abs(a)
        none = jnp.zeros((SLIPS, GAPS))
        found = contact(
            Y @ Y.T, r, size, members, none, both, jnp.ones(SLIPS), on,
            jnp.zeros(SLIPS), jnp.asarray(False),
        )  # fmt: skip
        return found.forces, found.solved, found.sticks

    x, solved, sticks = map(np.asarray, jax.jit(jax.vmap(forces))(Y, a, limits))
    assert solved.all()
    assert 0.1 < sticks.mean() < 0.9
    for (Y, a, limit), force, stuck in zip(cases, x, sticks, strict=True):
        least = np.r_[np.zeros(GAPS), -limit], np.r_[np.full(GAPS, np.inf), limit]
        exact = scipy.optimize.lsq_linear(Y.T, -a, least, method="bvls", tol=1e-14).x
        np.testing.assert_allclose(a + Y.T @ force, a + Y.T @ exact, atol=1e-9)
        slips = np.abs(Y @ (a + Y.T @ exact))[GAPS:] > 1e-9
        np.testing.assert_array_equal(slips, ~stuck)


def _cart(count: int) -> jm.System:
    def limit(kind: str, k: int) -> Any:
        return lambda p: p[kind][k]

    frictions = [
        jm.DryFriction(
            lambda q, v, t, p: v[0], static=limit("static", k), kinetic=limit("kinetic", k),
            name=f"rub{k}",
        )
        for k in range(count)
    ]  # fmt: skip
    return jm.System(
        lambda q, v, t, p: 0.5 * v @ v, frictions, coordinates=("x",),
        force=lambda q, v, t, p: jnp.stack([4.5 * jnp.sin(t)]),
    )  # fmt: skip


THREE, ONE = _cart(3), _cart(1)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [jm.FixedSteps(8), jm.Adaptive(rtol=1e-10, atol=1e-12)])
def test_frictions_on_one_coordinate_are_their_sum(steps: Any) -> None:
    rng, ts = np.random.default_rng(3), jnp.linspace(0.0, 8.0, 17)
    static = rng.dirichlet(np.ones(3), 5) * 3.0
    static[0] = 1.0
    static[1] = [2.0, 1.0, 0.0]
    params = {"static": static, "kinetic": static * np.linspace(1.0, 0.7, 5)[:, None]}

    def run(system: Any) -> Any:
        def one(p: Any) -> Any:
            sol = jm.simulate(system, jnp.zeros(1), jnp.zeros(1), ts, p, steps=steps)
            return sol, jm.observe(system, sol, p).multipliers

        return jax.vmap(one)

    sols, forces = run(THREE)(params)
    sums = jax.tree.map(lambda x: x.sum(1, keepdims=True), params)
    exact, _ = run(ONE)(sums)
    assert (sols.status == jm.Status.OK).all()
    np.testing.assert_allclose(sols.q, exact.q, atol=1e-9)
    for k in range(3):
        assert (jnp.abs(forces[f"rub{k}"][..., 0]) <= static[:, k, None] + 1e-12).all()
        for kind in ("slips", "stops"):
            has = static[:, k] > 0
            found, single = sols.events[f"rub{k} {kind}"], exact.events[f"rub0 {kind}"]
            np.testing.assert_array_equal(found.count[has], single.count[has])
            np.testing.assert_allclose(found.t[has], single.t[has], rtol=1e-9)


def test_frictions_of_one_motion_stop_together() -> None:
    """What is left of the speed at a stop, by an error of its time, stops all of them."""
    slips = {"a": lambda q, v, t, p: v[0], "b": lambda q, v, t, p: -1.7 * v[0]}
    rubs = [jm.DryFriction(slip, 0.5, name=name) for name, slip in slips.items()]
    cart = jm.System(lambda q, v, t, p: 0.5 * v @ v, rubs, coordinates=("x",))
    run = jm.simulate(cart, [0.0], [1.0], [0.0, 0.5], steps=jm.FixedSteps(2)).run.program
    event_set, number = run.event_set, [e.name for e in run.event_set.events].index("a stops")
    scheme = replace(run.scheme, system=event_set.system(cart))
    slides = jnp.array([name in ("a forward", "b backward") for name in event_set.names])
    t, one = jnp.zeros(()), jnp.ones(1)
    state = MotionState(one, 1e-10 * one, t, one, t + 0.1, t + 1e-13)
    decided = event_set.contact.decide(scheme, jnp.int32(number), state, None, slides)
    held = dict(zip(event_set.names, decided.decisions.slides.tolist(), strict=True))
    assert [name for name in held if held[name]] == ["a", "b"]


# Speeds of some units of round-off cross zero within steps.
@pytest.mark.filterwarnings("ignore:event 'rub stops' was missed")
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_load_at_the_limit_is_held_or_slips_along_it(dtype: Any) -> None:
    """Two links with friction in both joints, and a torque that all but lifts the first."""
    with jax.enable_x64(dtype == jnp.float64):
        upper = jp.planar_body("upper", mass=80.0, inertia=30.0, center=(1, 0))
        lower = jp.planar_body("lower", mass=40.0, inertia=5.0, center=(0.3, 0))
        shoulder = jp.revolute("shoulder", jp.ground, (0, 0), upper, (0, 0))
        elbow = jp.revolute("elbow", upper, (2, 0), lower, (0, 0))
        lift = jp.joint_force("lift", shoulder, lambda x, v, t, p: p["lift"])
        arm = jp.Mechanism(
            [upper, lower],
            joints=[
                shoulder, elbow, jp.dry_friction("rub", shoulder, static=150.0),
                jp.dry_friction("hold", elbow, static=500.0),
            ],
            forces=[jp.gravity(G), lift],
            params={"lift": 0.0},
        )  # fmt: skip
        q, v = arm.guess({"shoulder": jp.Start(0.3), "elbow": jp.Start(-0.2)})
        weight = G * (80 * np.cos(0.3) + 40 * (2 * np.cos(0.3) + 0.3 * np.cos(0.1)))
        eps = float(jnp.finfo(dtype).eps)
        scales = np.array([10 * eps, 1e3 * eps, 1e-3])
        excess = np.concatenate([scales[:, None] * np.linspace(-2, 2, 51)]).ravel()

        def motion(lift: Any) -> Any:
            p = arm.params | {"lift": lift}
            ts, steps = jnp.linspace(0.0, 0.1, 6), jm.FixedSteps(4)
            sol = jm.simulate(arm.system, q, v, ts, p, steps=steps, throw=False)
            return sol.status, sol.v[-1, 0]

        status, rate = jax.vmap(motion)(jnp.asarray(weight + 150 * (1 + excess)))
        assert (status == 0).all()
        assert (rate >= 0).all()  # never along the friction
        assert not rate[excess < -100 * eps].any()
        assert (rate[excess > 1e-3] > 0).all()


@pytest.mark.slow
def test_a_slip_of_several_frictions_has_derivatives_by_all_limits() -> None:
    def slip(static: Any) -> Any:
        p = {"static": static, "kinetic": static}
        ts = jnp.linspace(0.0, 1.2, 3)
        sol = jm.simulate(THREE, jnp.zeros(1), jnp.zeros(1), ts, p, steps=jm.FixedSteps(4))
        assert sol.events
        times = jnp.stack([sol.events[f"rub{k} slips"].t[0] for k in range(3)])
        return times, times

    slopes, times = jax.jacrev(slip, has_aux=True)(jnp.array([0.5, 1.5, 1.0]))
    np.testing.assert_allclose(times, np.arcsin(2 / 3), rtol=1e-12)
    np.testing.assert_allclose(slopes, np.full((3, 3), 1 / np.sqrt(4.5**2 - 9)), rtol=1e-9)


RADIUS, ROD, FORCE = 0.1, 0.25, 4.0


@pytest.mark.slow
def test_friction_of_a_slider_reverses_at_the_dead_centers() -> None:
    """There its row depends on the equation of the rod; the sign follows from the motion."""

    def place(a: Any) -> Any:
        return RADIUS * jnp.cos(a) + jnp.sqrt(ROD**2 - (RADIUS * jnp.sin(a)) ** 2)

    def rod(q: Any, t: Any, p: Any) -> Any:
        ends = (q[1] - RADIUS * jnp.cos(q[0])) ** 2 + (RADIUS * jnp.sin(q[0])) ** 2
        return (ends - ROD**2) / 2

    friction = jm.DryFriction(lambda q, v, t, p: v[1], static=FORCE, name="friction")
    crank = jm.System(
        lambda q, v, t, p: 0.025 * v[0] ** 2 + 0.2 * v[1] ** 2, [jm.Holonomic(rod), friction],
        coordinates=("angle", "slider"),
    )  # fmt: skip
    start = jnp.array([0.5, place(0.5)]), jnp.array([15.0, jax.grad(place)(0.5) * 15])
    sol = jm.simulate(crank, *start, jnp.linspace(0.0, 3.5, 36), steps=jm.FixedSteps(10))
    np.testing.assert_allclose(sol.q[-1, 0], 23.47693, atol=1e-3)
    assert (jnp.diff(sol.energy) < 1e-9).all()
    assert jnp.abs(sol.v[-1]).max() < 1e-12
    force = jm.observe(crank, sol).multipliers["friction"][:, 0]
    assert (force * sol.v[:, 1] <= 1e-12).all()


@pytest.mark.parametrize("e", [0.0, 1e-7, 0.5])
def test_a_start_with_a_velocity_into_a_stop_is_an_impact(e: float) -> None:
    stop = jm.Unilateral(lambda q, t, p: q[0], restitution=lambda p: p["e"], name="stop")
    mass = jm.System(lambda q, v, t, p: 0.5 * v @ v - q[0], [stop], coordinates=("x",))
    ts, p = jnp.linspace(0.0, 3.0, 4), {"e": jnp.array(e)}
    sol = jm.simulate(mass, [0.0], [-1.0], ts, p, steps=jm.FixedSteps(10))
    assert sol.events
    assert sol.status == jm.Status.OK
    np.testing.assert_allclose(sol.events["stop closes"].t[0], 0.0, atol=0)
    np.testing.assert_allclose(sol.q[2:], 0.0, atol=1e-12)


@pytest.mark.slow
def test_two_contacts_that_slide_have_one_motion_none_or_several() -> None:
    """Painlevé's paradox of both together: each alone would have one; by every choice of gaps."""
    draws, count = np.random.default_rng(0), 400
    C, r = draws.normal(size=(count, 4, 3)), draws.normal(size=(count, 4))
    direction, mu, both = np.sign(draws.normal(size=(count, 2))), np.full(2, 2.0), jnp.ones(2, bool)

    def solved(C: Any, r: Any, direction: Any) -> Any:
        return contact(
            C @ C.T, r, jnp.abs(r), both, jnp.eye(2), jnp.stack([mu, mu]), jnp.zeros(2), both,
            direction, jnp.asarray(False),
        ).solved  # fmt: skip

    kinds = []
    for rows, a, along, is_solved in zip(
        C, r, direction, jax.vmap(solved)(C, r, direction), strict=True
    ):
        W = rows @ rows.T
        B, motions = W[:2, :2] - W[:2, 2:] * (along * mu), 0
        if (np.diag(B) <= 0).any():
            continue
        for on in np.array([[0, 0], [0, 1], [1, 0], [1, 1]], bool):
            z = np.zeros(2)
            z[on] = np.linalg.solve(B[np.ix_(on, on)], -a[:2][on])
            motions += min(z.min(), (B @ z + a[:2]).min()) > -1e-9
        assert is_solved == (motions == 1)
        kinds.append(motions)
    assert min(np.bincount(kinds)) >= 10


LINK, CRANK, COUPLER = 0.5, 0.1, 0.8  # length [m], inertia of a crank, mass
JOINTS = (0.05, 0.1, 0.02, 0.08)  # limits of friction [N m]


@pytest.mark.slow
def test_frictions_in_the_joints_of_a_parallelogram_are_their_sum() -> None:
    """Its cranks turn alike and its coupler does not turn, so that all joints slip alike."""

    def direction(a: Any) -> Any:
        return jnp.stack([jnp.cos(a), jnp.sin(a)])

    def energy(q: Any, v: Any, t: Any, p: Any) -> Any:
        turns = CRANK * (v[0] ** 2 + v[2] ** 2) + 0.02 * v[1] ** 2
        return 0.5 * (turns + COUPLER * LINK**2 * v[0] ** 2)

    def loop(q: Any, t: Any, p: Any) -> Any:
        return LINK * (direction(q[0]) - direction(q[2])) + direction(q[1]) - jnp.array([1.0, 0.0])

    slips = [lambda v: v[0], lambda v: v[1] - v[0], lambda v: v[1] - v[2], lambda v: v[2]]
    rubs = [
        jm.DryFriction(lambda q, v, t, p, w=w: w(v), limit, name=f"joint{k}")
        for k, (w, limit) in enumerate(zip(slips, JOINTS, strict=True))
    ]
    torque = lambda q, v, t, p: jnp.zeros_like(q).at[0].set(jnp.sin(3 * t))  # noqa: E731
    linkage = jm.System(
        energy, [jm.Holonomic(loop, name="loop"), *rubs], torque, coordinates=("a", "b", "c")
    )
    crank = jm.System(
        lambda q, v, t, p: 0.5 * (2 * CRANK + COUPLER * LINK**2) * v[0] ** 2,
        [jm.DryFriction(lambda q, v, t, p: v[0], sum(JOINTS), name="joint")], torque,
        coordinates=("a",),
    )  # fmt: skip
    ts, steps, start = jnp.linspace(0.0, 3.0, 16), jm.FixedSteps(20), 1.3
    sol = jm.simulate(linkage, [start, 0.0, start], [0.0] * 3, ts, steps=steps)
    exact = jm.simulate(crank, [start], [0.0], ts, steps=steps)
    assert exact.events["joint stops"].count > 1
    np.testing.assert_allclose(sol.q, np.asarray(exact.q) * np.array([1, 0, 1]), atol=1e-8)
    forces = jm.observe(linkage, sol).multipliers
    for k, limit in enumerate(JOINTS):
        assert (jnp.abs(forces[f"joint{k}"]) <= limit * (1 + 1e-12)).all()
