"""Whole mechanisms made of parts alone, against ready models and published numbers.

And those that cannot be put together or cannot move, with one message that names the part.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmech as jm
from experiments.linkages import slider_crank
from jaxmech import parts as jp
from jaxmech.compiler import explain
from jaxmech.parts import Mechanism, gravity, ground, planar_body, revolute, spatial_body
from jaxmech.parts.joints import Joint
from tests.parts.mechanisms import built, parallel_four_bar
from tests.published import published

equations_at = jax.jit(jm.System.equations, static_argnums=0)


def test_four_bar_of_parts_has_the_equations_of_the_model() -> None:
    mechanism, q, v, params = built(parallel_four_bar)
    model = jm.models.four_bars(1)
    theirs = model.initial()
    np.testing.assert_allclose(q, theirs[0], atol=1e-15)
    np.testing.assert_allclose(v, theirs[1], atol=1e-15)
    draw = np.random.default_rng(0)
    at = jnp.asarray(draw.normal(size=9)), jnp.asarray(draw.normal(size=9))
    mine = equations_at(mechanism.system, *at, 0.0, params)
    other = equations_at(model.system, *at, 0.0, model.params)
    np.testing.assert_allclose(mine.M, other.M, atol=1e-14)
    np.testing.assert_allclose(mine.Q, other.Q, atol=1e-14)
    sign = np.repeat([1, 1, -1, -1], 2)  # the model takes the coupler from the crank
    np.testing.assert_allclose(mine.A, sign[:, None] * other.A, atol=1e-14)
    np.testing.assert_allclose(mine.b, sign * other.b, atol=1e-13)


@pytest.mark.slow
def test_redundant_four_bars_run_in_batches_and_as_lanes() -> None:
    """Problem A02 with one loop more than it needs: a plain pendulum, published for spin -1."""
    tied, _ = parallel_four_bar(tied=True)
    system, ts = tied.system, jnp.array([0.0, 1.0, 2.0])

    def swing(spin: Any, m: Any) -> jm.Solution:
        _, starts = parallel_four_bar(spin=spin)
        params = {**tied.params, "m": m}
        steps = jm.FixedSteps(per_save=500)
        return jm.simulate(system, *tied.guess(starts), ts, params, steps=steps)

    spins, masses = jnp.array([-1.0, -0.5, -2.0]), jnp.array([1.0, 2.0, 0.5])
    sols = jax.jit(jax.vmap(swing))(spins, masses)
    np.testing.assert_array_equal(sols.status, jm.Status.OK)
    assert np.max(sols.position_residual) < 1e-12
    exact = published("four_bars")["one"]
    for t in (1, 2):
        heads = np.asarray(sols.q)[:, t, 6:8] - [0.5, 0.0]  # B0, half a length before its middle
        np.testing.assert_allclose(heads[0], exact[str(t)][:2], atol=1e-9)
    for spin, q in zip(spins, sols.q, strict=True):
        run = solve_ivp(
            lambda t, y: [y[1], -1.2 * 9.81 * np.sin(y[0])], (0, 2), [np.pi, spin],
            method="DOP853", rtol=1e-12, atol=1e-12,
        )  # fmt: skip
        np.testing.assert_allclose(q[-1, 2] + np.pi / 2, run.y[0, -1], atol=1e-8)
    said = repr(explain(lambda spin, m: swing(spin, m).q, spins, masses))
    assert "as lanes" in said
    assert "plain vmap" not in said


@pytest.mark.slow
def test_slider_crank_in_space_keeps_its_loop_and_its_energy() -> None:
    """The slider is where the crank pin lets it be: |rod| is constant, closed form in the angle."""
    mechanism, q, v, params = built(slider_crank)
    system = mechanism.system
    A = np.asarray(equations_at(system, q, v, 0.0, params).A)
    v = v - np.linalg.pinv(A) @ (A @ v)
    ts = jnp.linspace(0.0, 1.0, 11)
    sol = jm.simulate(system, q, v, ts, params, steps=jm.FixedSteps(per_save=200))
    assert sol.energy_drift < 1e-8
    assert np.all(sol.rank == 20)
    angle = 2 * np.arctan2(sol.q[:, 4], sol.q[:, 3])
    y, z = 0.1 - 0.08 * np.sin(angle), 0.12 + 0.08 * np.cos(angle)
    np.testing.assert_allclose(sol.q[:, 14], np.sqrt(0.3**2 - y**2 - z**2), atol=1e-13)


def test_points_on_bodies_are_given_by_names_and_functions() -> None:
    rod = jp.planar_body("rod", mass=1.0, inertia=0.1, center=("l", 0))
    hinge = jp.revolute("hinge", jp.ground, (0, 0), rod, (0, 0))
    pendulum = jp.Mechanism([rod], [hinge], params={"l": 0.5})
    q, v = pendulum.guess({"hinge": jp.Start(0.3, velocity=2.0)})
    along, across = np.array([np.cos(0.3), np.sin(0.3)]), np.array([-np.sin(0.3), np.cos(0.3)])
    np.testing.assert_allclose(pendulum.point("rod", ("l", 0), q), 0.5 * along)
    np.testing.assert_allclose(pendulum.velocity("rod", ("l", 0), q, v), 1.0 * across)
    slope = jax.grad(lambda length: pendulum.point("rod", ("l", 0), q, 0.0, {"l": length})[0])(0.7)
    np.testing.assert_allclose(slope, np.cos(0.3))

    def sliding(t: Any, p: Any) -> Any:  # a point that moves along the rod
        return p["l"] + 0.4 * t**2

    state = q, v, jnp.zeros(1), 1.0
    np.testing.assert_allclose(
        pendulum.velocity("rod", (sliding, 0), q, v, 1.0), 0.8 * along + 1.8 * across
    )
    np.testing.assert_allclose(
        pendulum.acceleration("rod", (sliding, 0), *state),
        (0.8 - 0.9 * 2.0**2) * along + 2 * 0.8 * 2.0 * across,
    )
    with pytest.raises(ValueError, match="must hold 'k', which the point reads"):
        pendulum.point("rod", ("k", 0), q)


TS = np.linspace(0.0, 0.1, 3)


@pytest.mark.slow
def test_a_loop_without_a_consistent_pose_is_named() -> None:
    crank, coupler = (planar_body(name, mass=1.0, inertia=0.1) for name in ("crank", "coupler"))
    joints = [
        revolute("drive", ground, (0, 0), crank, (0, 0)),
        revolute("knee", crank, (0.1, 0), coupler, (-0.1, 0)),
        revolute("end", coupler, (0.1, 0), ground, (1, 0)),  # 0.3 m of links for a way of 1 m
    ]
    loop = Mechanism([crank, coupler], joints, cut=["end"]).system
    q = jnp.array([0.3, 0.4])
    with pytest.raises(ValueError, match=r"Constraint 'end' cannot be met .* position residual"):
        jm.assemble(loop, q, jnp.zeros(2), 0.0, {})
    with pytest.raises(
        jm.errors.SimulationError, match=r"INCONSISTENT at t = 0 s.*'end' has a position"
    ):
        jm.simulate(loop, q, jnp.zeros(2), TS, {}, steps=jm.FixedSteps(per_save=1))


def hinge(dimension: int) -> Joint:
    if dimension == 2:
        bar = planar_body("bar", mass="m", inertia="J")
        return revolute("hinge", ground, (0, 0), bar, (0.5, 0))
    bar = spatial_body("bar", mass="m", inertia="J")
    return revolute("hinge", ground, (0, 0, 0), bar, (0.5, 0, 0), axis=(0, 1, 0))


def test_a_negative_inertia_in_the_parameters_is_named() -> None:
    joint = hinge(2)
    arm = Mechanism(joint.bodies[1:], [joint], [gravity(9.81)], {"m": 1.0, "J": 2.0})
    params = {"m": 1.0, "J": -2.0}
    with pytest.raises(
        jm.errors.SimulationError, match=r"or a negative one, moves with hinge\.angle"
    ):
        jm.simulate(arm.system, [0.0], [0.0], TS, params, steps=jm.FixedSteps(per_save=1))


PARAMS = {"k": 3.0, "c": 0.2}


def pair(*forces: Any, **options: Any) -> jp.Mechanism:
    """Two wheels on one axle, in the coordinates `a.angle` and `b.angle` in this order."""
    wheels = [jp.planar_body(name, mass=1.0, inertia=0.1) for name in ("left", "right")]
    joints = [
        jp.revolute(name, jp.ground, (0, 0), wheel, (0, 0))
        for name, wheel in zip("ab", wheels, strict=True)
    ]
    return jp.Mechanism(wheels, joints, forces, PARAMS, **options)


def by_index(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([jnp.zeros(()), -p["k"] * (q[1] - q[0]) ** 3 - p["c"] * v[1]])


def test_functions_that_are_given_later_read_by_name() -> None:
    system = pair(by_index).system

    def apart(q: Any, v: Any, t: Any, p: Any) -> Any:
        x = system.named(q, v)
        return x["b.angle"] - x["a.angle"] - 0.5

    event = jm.Event(apart, direction=1, terminal=True)
    start = jnp.zeros(2), jnp.array([0.0, 2.0])
    sol = jm.simulate(system, *start, [0.0, 2.0], PARAMS, steps=jm.FixedSteps(50), events=event)
    assert sol.status == jm.Status.STOPPED
    x = system.named(sol.q, sol.v)
    assert [*x] == [*sol.names]
    np.testing.assert_allclose((x["b.angle"] - x["a.angle"])[-1], 0.5, atol=1e-9)
    np.testing.assert_array_equal(x["b.angle.rate"], sol["b.angle.rate"])
    assert [*system.named(sol.q)] == ["a.angle", "b.angle"]


BAR = jp.planar_body("bar", mass=1.0, inertia=0.1)


def test_only_mechanisms_that_may_read_parameters_are_traced(monkeypatch) -> None:
    traced = []
    shapes = jax.eval_shape
    monkeypatch.setattr(jax, "eval_shape", lambda *args: traced.append(args) or shapes(*args))
    hinge = jp.revolute("A", jp.ground, (0, 0), BAR, (-0.5, 0.0))
    numbers = {"coordinates": "bodies"}
    jp.Mechanism([BAR], [hinge], [jp.gravity()], **numbers)
    assert not traced
    jp.Mechanism([BAR], [hinge], [jp.gravity("g")], {"g": 9.81}, **numbers)
    assert traced
    traced.clear()
    jp.Mechanism([BAR], [hinge], [lambda q, v, t, p: -0.1 * v], **numbers)
    assert traced
