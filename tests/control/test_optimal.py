"""Best motions with known costs, and the same ones in other coordinates."""

import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmech as jm
from experiments.optimal_platform import search
from jaxmech import parts as jp
from jaxmech.control import OptimumStatus, optimize

pytest.importorskip("cyipopt")

G = 9.81
ZERO = jm.Signal([0.0, 1.0], [0.0, 0.0])


def effort(q: Any, v: Any, t: Any, p: Any) -> Any:
    return p["u"](t) ** 2


def cart(k: float = 0.0) -> jm.System:
    """A mass of 1 kg on a spring, pushed by u."""
    return jm.System(
        lambda q, v, t, p: (v @ v - k * q @ q) / 2,
        force=lambda q, v, t, p: p["u"](t)[None],
        coordinates=("x",),
    )


def at_rest(x: float) -> Any:
    return lambda q, v, t, p: jnp.array([q[0] - x, v[0]])


CART = cart()


def test_from_rest_to_rest_with_least_effort() -> None:
    """The force falls linearly, and its effort is 12 d^2 / T^3."""
    ts = np.linspace(0.0, 2.0, 11)
    best = optimize(
        CART, [0.0], [0.0], ts, {"u": ZERO}, controls=["u"], cost=effort, end=at_rest(1.0)
    )
    assert best.status is OptimumStatus.OPTIMAL
    assert best.cost == pytest.approx(1.5, abs=1e-12)
    np.testing.assert_allclose(best.params["u"].values, 1.5 * (1.0 - ts), atol=1e-10)
    # d cost / d (x, v) at the end: 24 d / T^3 and -12 d / T^2.
    np.testing.assert_allclose(best.multipliers["end"], [3.0, -3.0], rtol=1e-9)
    again = jm.simulate(CART, best.q[0], best.v[0], best.ts, best.params)
    np.testing.assert_allclose(again.q, best.q, atol=1e-12)
    assert best.deviation < 1e-12
    assert best.violations.keys() == {"motion", "end[0]", "end[1]"}
    assert max(best.violations.values()) < 1e-10


@pytest.mark.slow
def test_in_the_shortest_time_the_force_switches_at_half_the_way() -> None:
    params = {"u": jm.Signal([0.0, 3.0], [0.1, 0.1], "hold"), "T": 3.0}
    best = optimize(
        CART, [0.0], [0.0], np.linspace(0.0, 1.0, 11), params, controls=["u"], duration="T",
        end_cost=lambda q, v, t, p: p["T"], end=at_rest(1.0),
        bounds={"u": (-1.0, 1.0), "T": (0.1, 10.0)},
    )  # fmt: skip
    assert best.cost == pytest.approx(2.0, rel=1e-6)  # 2 sqrt(d)
    np.testing.assert_allclose(best.params["u"].values[:10], [1.0] * 5 + [-1.0] * 5, atol=1e-4)
    np.testing.assert_allclose(best.ts[-1], best.params["T"], rtol=1e-15)


def test_what_cannot_be_reached_is_named() -> None:
    best = optimize(
        CART, [0.0], [0.0], np.linspace(0.0, 2.0, 5), {"u": ZERO}, controls=["u"], cost=effort,
        end=at_rest(1.0), bounds={"u": (-0.5, 0.5)},
    )  # fmt: skip
    assert best.status is OptimumStatus.INFEASIBLE
    assert not best.succeeded
    assert max(best.violations.values()) > 0.05
    assert "end[0]" in str(best)


@pytest.mark.slow
def test_a_quadratic_cost_is_that_of_riccati() -> None:
    A, B = np.array([[0.0, 1.0], [-4.0, 0.0]]), np.array([[0.0], [1.0]])
    Q, R, P = np.diag([2.0, 0.0]), 1.0, np.diag([0.0, 6.0])  # twice the weights

    def rates(s: float, flat: np.ndarray) -> np.ndarray:
        P = flat.reshape(2, 2)
        return (A.T @ P + P @ A - P @ B @ B.T @ P / R + Q).ravel()

    solved = solve_ivp(rates, (0.0, 2.0), P.ravel(), rtol=1e-11, atol=1e-12).y[:, -1]
    best = optimize(
        cart(4.0), [1.0], [0.0], np.linspace(0.0, 2.0, 41), {"u": ZERO}, controls=["u"],
        cost=lambda q, v, t, p: q @ q + p["u"](t) ** 2 / 2, end_cost=lambda q, v, t, p: 3 * v @ v,
    )  # fmt: skip
    assert best.cost == pytest.approx(solved[0] / 2, rel=1e-6)


@pytest.mark.slow
def test_the_fastest_way_down_is_a_cycloid() -> None:
    """A particle, whose path is bent by a force across it that does no work."""
    system = jm.System(
        lambda q, v, t, p: v @ v / 2 - G * q[1],
        force=lambda q, v, t, p: p["turn"](t) * jnp.array([-v[1], v[0]]),
        coordinates=("x", "y"),
    )
    aim = np.array([2.0 - np.sin(2.0), np.cos(2.0) - 1.0])  # of a wheel of 1 m that turns by 2 rad
    best = optimize(
        system, [0.0, 0.0], [0.0, 0.0], np.linspace(0.0, 1.0, 11),
        {"turn": jm.Signal([0.0, 1.0], [0.5, 0.5]), "T": 0.8}, controls=["turn"], duration="T",
        end_cost=lambda q, v, t, p: p["T"], end=lambda q, v, t, p: q - aim,
    )  # fmt: skip
    assert best.cost == pytest.approx(2.0 / np.sqrt(G), rel=1e-7)
    angle = np.linspace(0.0, 2.0, 11)
    way = np.stack([angle - np.sin(angle), np.cos(angle) - 1.0], axis=1)
    np.testing.assert_allclose(best.q, way, atol=1e-5)


@pytest.mark.slow
def test_a_swing_up_costs_the_same_with_a_rod() -> None:
    """In x and y the end is two conditions on one degree of freedom, and nodes move far."""
    ts, angle = np.linspace(0.0, 2.0, 41), np.linspace(0.0, np.pi, 41)
    arguments: dict[str, Any] = {"controls": ["u"], "cost": effort, "per_save": 8}
    in_angle = jm.System(
        lambda q, v, t, p: v @ v / 2 + G * jnp.cos(q[0]),
        force=lambda q, v, t, p: p["u"](t)[None],
        coordinates=("angle",),
    )
    guess = angle[:, None], np.zeros((41, 1))
    first = optimize(
        in_angle, [0.0], [0.0], ts, {"u": ZERO}, end=at_rest(np.pi), guess=guess, **arguments
    )
    with_rod = jm.System(
        lambda q, v, t, p: v @ v / 2 - G * q[1],
        [jm.Holonomic(lambda q, t, p: q @ q - 1.0, "rod")],
        force=lambda q, v, t, p: p["u"](t) * jnp.array([-q[1], q[0]]),
        coordinates=("x", "y"),
    )
    guess = np.stack([np.sin(angle), -np.cos(angle)], axis=1), np.zeros((41, 2))
    end = lambda q, v, t, p: jnp.concatenate([q - jnp.array([0.0, 1.0]), v])  # noqa: E731
    second = optimize(
        with_rod, [0.0, -1.0], [0.0, 0.0], ts, {"u": ZERO}, end=end, guess=guess, **arguments
    )
    assert first.status is second.status is OptimumStatus.OPTIMAL
    assert first.iterations < 15  # 12 with exact second derivatives
    assert second.cost == pytest.approx(first.cost, rel=1e-6)
    turned = np.unwrap(np.arctan2(second.q[:, 0], -second.q[:, 1]))
    np.testing.assert_allclose(turned, first.q[:, 0], atol=1e-5)
    # From there again it takes no search.
    same = optimize(
        with_rod, [0.0, -1.0], [0.0, 0.0], ts, second.params, end=end, guess=second, **arguments
    )
    assert same.iterations < 8
    assert same.cost == pytest.approx(second.cost, rel=1e-9)


@pytest.mark.slow
def test_a_four_bar_takes_the_same_torque_in_both_coordinates() -> None:
    """Two equations on the angles of three joints, and eight on three bodies."""
    crank, coupler, rocker = bodies = [
        jp.planar_body(name, mass=1.0, inertia=0.02, center=(length / 2, 0.0))
        for name, length in (("crank", 0.3), ("coupler", 0.8), ("rocker", 0.6))
    ]
    joints = [
        jp.revolute("O", jp.ground, (0, 0), crank, (0, 0)),
        jp.revolute("A", crank, (0.3, 0), coupler, (0, 0)),
        jp.revolute("B", coupler, (0.8, 0), rocker, (0.6, 0)),
        jp.revolute("C", jp.ground, (0.7, 0), rocker, (0, 0)),
    ]
    forces = [jp.gravity(), jp.torque("drive", jp.ground, crank, "u")]
    costs = []
    for coordinates, starts in (
        ("joints", {"O": jp.Start(0.5), "A": jp.Start(0.03), "C": jp.Start(1.13)}),
        ("bodies", {"crank": jp.Start((0.0, 0.0), 0.5), "coupler": jp.Start((0.26, 0.14), 0.53),
                    "rocker": jp.Start((0.7, 0.0), 1.13)}),
    ):  # fmt: skip
        mechanism = jp.Mechanism(bodies, joints, forces, {"u": ZERO}, coordinates)
        driver = "O.angle" if coordinates == "joints" else "crank.angle"
        k = mechanism.system.coordinates.index(driver)
        start, _ = mechanism.guess(starts)
        way = jm.control.kinematics(mechanism, driver, np.linspace(0.5, 2.5, 11), start)
        best = optimize(
            mechanism, way.q[0], 0 * way.q[0], np.linspace(0.0, 0.5, 11), controls=["u"],
            cost=effort, end=lambda q, v, t, p, k=k: jnp.stack([q[k] - 2.5, v[k]]),
            guess=(way.q, 4 * way.v), per_save=8,
        )  # fmt: skip
        assert best.status is OptimumStatus.OPTIMAL
        costs.append(best.cost)
    assert costs[1] == pytest.approx(costs[0], rel=1e-6)


@pytest.mark.slow
def test_a_crane_moves_its_load_without_sway() -> None:
    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        load = v[0] ** 2 + 2 * jnp.cos(q[1]) * v[0] * v[1] + v[1] ** 2
        return v[0] ** 2 + load / 2 + G * jnp.cos(q[1])

    crane = jm.System(
        lagrangian, force=lambda q, v, t, p: jnp.stack([p["u"](t), 0.0]), coordinates=("x", "sway")
    )
    arguments: dict[str, Any] = {
        "controls": ["u"],
        "cost": effort,
        "end": lambda q, v, t, p: jnp.concatenate([q - jnp.array([2.0, 0.0]), v]),
    }
    ts, start = np.linspace(0.0, 3.0, 31), ([0.0, 0.0], [0.0, 0.0])
    best = optimize(crane, *start, ts, {"u": ZERO}, **arguments)
    params = best.params | {"u": ZERO}
    after = jm.simulate(crane, best.solution.q[-1], best.solution.v[-1], [0.0, 5.0], params)
    np.testing.assert_allclose(after.q[-1], [2.0, 0.0], atol=1e-5)
    sway = np.abs(best.q[:, 1]).max()
    calm = optimize(crane, *start, ts, {"u": ZERO}, bounds={"sway": (-0.12, 0.12)}, **arguments)
    assert sway > 0.15
    assert np.abs(calm.q[:, 1]).max() < 0.12 + 1e-6
    assert calm.cost > best.cost


@pytest.mark.slow
def test_the_least_jerk_is_the_rate_of_a_state() -> None:
    """The force is a state of first order, and the cost 720 d^2 / T^5."""
    system = jm.System(
        lambda q, v, t, p: v[0] ** 2 / 2, force=lambda q, v, t, p: v[1][None], coordinates=("x",),
        states=("force",), rates=lambda q, v, t, p: p["u"](t)[None],
    )  # fmt: skip
    best = optimize(
        system, [0.0, 0.0], [0.0, 0.0], np.linspace(0.0, 1.0, 41), {"u": ZERO}, controls=["u"],
        cost=effort, end=lambda q, v, t, p: jnp.stack([q[0] - 1.0, v[0], v[1]]),
    )  # fmt: skip
    assert best.cost == pytest.approx(720.0, rel=1e-6)


def test_an_optimum_at_the_edge_of_a_chart_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bead on a ring is to come as far as it can, in charts of 0.4 m about where it begins."""
    ring = jm.System(
        lambda q, v, t, p: v @ v / 2,
        [jm.Holonomic(lambda q, t, p: q @ q - 1.0, "ring")],
        force=lambda q, v, t, p: p["u"](t) * jnp.array([-q[1], q[0]]),
        coordinates=("x", "y"),
    )
    problem = ring, [0.0, -1.0], [0.0, 0.0], np.linspace(0.0, 1.0, 4), {"u": ZERO}
    arguments: dict[str, Any] = {
        "controls": ["u"], "cost": effort, "end_cost": lambda q, v, t, p: 100.0 * q[0]
    }  # fmt: skip
    assert optimize(*problem, **arguments).status is OptimumStatus.OPTIMAL
    monkeypatch.setattr("jaxmech.control.shooting.ROUNDS", 1)
    assert optimize(*problem, **arguments).status is OptimumStatus.TOO_MANY_ITERATIONS


@pytest.mark.slow
def test_a_skate_is_moved_sideways() -> None:
    """It turns by more than a right angle: so do its velocities, and with them the charts."""
    skate = jm.System(
        lambda q, v, t, p: (v[0] ** 2 + v[1] ** 2 + 0.3 * v[2] ** 2) / 2,
        [jm.Nonholonomic(lambda q, v, t, p: v[1] * jnp.cos(q[2]) - v[0] * jnp.sin(q[2]), "edge")],
        force=lambda q, v, t, p: jnp.stack(
            [p["push"](t) * jnp.cos(q[2]), p["push"](t) * jnp.sin(q[2]), p["turn"](t)]
        ),
        coordinates=("x", "y", "heading"),
    )
    ts = np.linspace(0.0, 2.0, 13)
    guess = {"push": jm.Signal(ts, np.cos(3 * ts)), "turn": jm.Signal(ts, np.sin(3 * ts))}
    best = optimize(
        skate, np.zeros(3), np.zeros(3), ts, guess, controls=["push", "turn"], per_save=8,
        cost=lambda q, v, t, p: p["push"](t) ** 2 + p["turn"](t) ** 2,
        end=lambda q, v, t, p: jnp.concatenate([q - jnp.array([0.0, 0.5, 0.0]), v]),
    )  # fmt: skip
    assert best.status is OptimumStatus.OPTIMAL
    assert best.deviation < 1e-6
    assert best.q[:, 2].max() > np.pi / 2
    # The way there is the way back.
    np.testing.assert_allclose(best.q[:, 1] + best.q[::-1, 1], 0.5, atol=1e-6)


@pytest.mark.slow
def test_a_body_turns_about_a_principal_axis() -> None:
    """By three torques, with a quaternion and spins: the cost is 12 (I angle)^2 / T^3."""
    body = jp.spatial_body("body", mass=1.0, inertia=(1.0, 2.0, 3.0))
    turn = jp.applied_force("turn", body, (0, 0, 0), None, torque="tau", follows=True)
    ts = np.linspace(0.0, 1.0, 9)
    params = {"tau": jm.Signal(ts, np.zeros((9, 3)))}
    mechanism = jp.Mechanism([body], [], [turn], params, "bodies", velocities="spins")
    q, v = mechanism.guess({"body": jp.Start((0.0, 0.0, 0.0))})
    aim = np.array([0.0, 0.0, 0.0, 0.0, 0.0, np.sin(0.5)])  # x, y, z, e1, e2, e3
    best = optimize(
        mechanism, q, v, ts, controls=["tau"], cost=lambda q, v, t, p: p["tau"](t) @ p["tau"](t),
        end=lambda q, v, t, p: jnp.concatenate([q[:3], q[4:], v]) - jnp.append(aim, 0 * v),
        per_save=8,
    )  # fmt: skip
    assert best.cost == pytest.approx(108.0, rel=1e-7)


@pytest.mark.slow
def test_a_platform_on_six_legs_takes_a_minute() -> None:
    began = time.process_time()
    best, moved = search()
    assert time.process_time() - began < 120
    assert best.status is OptimumStatus.OPTIMAL
    assert best.deviation < 1e-5
    assert np.abs(best.solution.position_residual).max() < 1e-12
    # All legs begin and end at rest, and none of them goes much farther than its end.
    assert (np.abs(moved).max(axis=0) < 1.3 * np.abs(moved[-1])).all()


@pytest.mark.slow
def test_a_limit_of_the_way_is_kept() -> None:
    """With a speed of at most 0.6, between nodes too, as a condition and as a bound."""
    arguments: dict[str, Any] = {"controls": ["u"], "cost": effort, "end": at_rest(1.0)}
    problem = CART, [0.0], [0.0], np.linspace(0.0, 2.0, 11), {"u": ZERO}
    first = optimize(*problem, path=lambda q, v, t, p: 0.6 - v[0], **arguments)
    second = optimize(*problem, bounds={"x.rate": (None, 0.6)}, **arguments)
    assert second.cost == pytest.approx(first.cost, rel=1e-7)
    assert first.cost > 1.6
    fine = jm.simulate(CART, first.q[0], first.v[0], np.linspace(0.0, 2.0, 41), first.params)
    assert fine.v.max() == pytest.approx(0.6, abs=1e-7)
    assert first.multipliers["path"].shape == (11, 1)
    never = optimize(*problem, path=lambda q, v, t, p: 0.4 - v[0], **arguments)
    assert never.status is OptimumStatus.INFEASIBLE


def test_bad_arguments_are_named() -> None:
    run = lambda **ways: optimize(CART, [0.0], [0.0], [0.0, 1.0], {"u": ZERO, "m": 1.0}, **ways)  # noqa: E731
    with pytest.raises(ValueError, match="`controls` holds 'v'"):
        run(controls=["v"])
    with pytest.raises(ValueError, match="'m' is float"):
        run(controls=["m"])
    with pytest.raises(ValueError, match="`bounds` holds 'y'"):
        run(controls=["u"], bounds={"y": (0.0, 1.0)})
    with pytest.raises(ValueError, match="`per_save` must be a multiple of four"):
        run(controls=["u"], per_save=6)
    with pytest.raises(ValueError, match="`guess`"):
        run(controls=["u"], guess=(np.zeros((3, 1)), np.zeros((3, 1))))
    with pytest.raises(ValueError, match="'u' first, but is from 1 to 0"):
        run(controls=["u"], bounds={"u": (1, 0)})
    with pytest.raises(ValueError, match="`cost` must return a number"):
        run(controls=["u"], cost=lambda q, v, t, p: q)
    with pytest.raises(ValueError, match=r"`q0\[0\]` must be finite"):
        optimize(CART, [np.nan], [0.0], [0.0, 1.0], {"u": ZERO}, controls=["u"])


@pytest.mark.skipif(os.environ.get("CHECK_TYPES") == "1", reason="beartype raises first")
def test_a_bound_that_is_no_pair_is_named() -> None:
    bounds: Any = {"u": 5.0}
    with pytest.raises(ValueError, match=r"\(low, high\) for 'u', .* but holds 5.0"):
        optimize(CART, [0.0], [0.0], [0.0, 1.0], {"u": ZERO}, controls=["u"], bounds=bounds)


def test_float32_is_refused() -> None:
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        optimize(CART, [0.0], [0.0], [0.0, 1.0], {"u": ZERO}, controls=["u"], cost=effort)


@pytest.mark.slow
def test_many_starts_compile_once_and_an_optimum_begins_the_next_search() -> None:
    calls = []

    def cost(q: Any, v: Any, t: Any, p: Any) -> Any:
        calls.append(t)
        return p["u"](t) ** 2 + q[0] ** 4

    ts, end = np.linspace(0.0, 1.0, 5), at_rest(1.0)
    arguments: dict[str, Any] = {"controls": ["u"], "cost": cost, "end": end}
    first = optimize(CART, [0.0], [0.0], ts, {"u": ZERO}, **arguments)
    traced = len(calls)
    starts = np.linspace(-1.0, 0.5, 64)
    best = [optimize(CART, [x], [0.0], ts, {"u": ZERO}, **arguments) for x in starts]
    assert len(calls) == traced
    assert all(x.succeeded for x in best)
    assert (np.diff([x.cost for x in best]) < 0).all()
    # With other nodes the states of an optimum are interpolated.
    finer = np.linspace(0.0, 1.0, 9)
    again = optimize(CART, [0.0], [0.0], finer, {"u": ZERO}, guess=first, **arguments)
    assert again.iterations < first.iterations + 2
    assert 0 < first.cost - again.cost < 0.01 * first.cost
