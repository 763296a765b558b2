"""The models against the equations printed in the sources, and the facts their docstrings state."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.laws import acceleration
from jaxmech.models import Model, make
from jaxmech.system import Holonomic, System

DRAWS = range(3)
motion_at = jax.jit(acceleration, static_argnums=0)
equations_at = jax.jit(System.equations, static_argnums=0)


def state_of(model: Model, start: dict[str, Any] | None = None, seed: int | None = None) -> Any:
    """A consistent q and v, and the parameters, which are scattered where a seed is given."""
    draw = np.random.default_rng(seed)
    width = 0.0 if seed is None else 0.2
    params = {
        name: np.asarray(value) * draw.uniform(1 - width, 1 + width, np.shape(value))
        for name, value in model.params.items()
    }
    return *model.initial(start, params), params


def motion_of(model: Model, start: dict[str, Any] | None = None, seed: int | None = None) -> Any:
    """q, v, the motion and the parameters."""
    q, v, params = state_of(model, start, seed)
    return q, v, motion_at(model.system, q, v, 0.0, params), params


@pytest.mark.parametrize("seed", DRAWS)
def test_pendulum_has_the_acceleration_and_multiplier_of_kalaba(seed: int) -> None:
    """Kalaba et al. 1995, equations (27) and (34), also off the circle."""
    model, draw = make("pendulum"), np.random.default_rng(seed)
    x, v = draw.normal(size=2), draw.normal(size=2)
    m, l, g = draw.uniform(0.5, 2.0, 3)  # noqa: E741
    motion = motion_at(model.system, x, v, 0.0, {"m": m, "l": l, "g": g})
    factor = (x[1] * g - v @ v) / (x @ x)
    np.testing.assert_allclose(motion.qdd, np.array([0.0, -g]) + factor * x, rtol=1e-13)
    np.testing.assert_allclose(motion.multipliers, [factor * m], rtol=1e-13)


@pytest.mark.parametrize("seed", DRAWS)
def test_bead_on_parabola_has_bravys_multiplier(seed: int) -> None:
    """Bravy 1987, section 10: lambda = -m x1'' / (2 x1)."""
    x1, v1 = np.random.default_rng(seed).uniform(0.3, 2.0, 2)
    _, _, motion, p = motion_of(make("bead_on_parabola"), {"x1": x1, "v1": v1}, seed)
    np.testing.assert_allclose(motion.multipliers, [-p["m"] * motion.qdd[0] / (2 * x1)], rtol=1e-12)
    everywhere = p["m"] * (p["g"] + 2 * v1**2) / (1 + 4 * x1**2)
    np.testing.assert_allclose(motion.multipliers, [everywhere], rtol=1e-12)
    equation = (1 + 4 * x1**2) * motion.qdd[0] + 4 * x1 * v1**2 + 2 * p["g"] * x1
    assert abs(equation) < 1e-11


@pytest.mark.parametrize("seed", DRAWS)
def test_rotating_rod_has_bravys_multipliers(seed: int) -> None:
    """Bravy 1987, section 11, where the printed lambda2 lacks a factor sin(omega t)."""
    model, draw = make("bead_on_rod"), np.random.default_rng(seed)
    m, omega, r, speed, t = draw.uniform(0.5, 1.0, 5)
    c, s = np.cos(omega * t), np.sin(omega * t)
    q = np.array([r * c, r * s, r])
    v = np.array([speed * c - omega * r * s, speed * s + omega * r * c, speed])
    motion = motion_at(model.system, q, v, t, {"m": m, "omega": omega})
    r2 = motion.qdd[2]
    np.testing.assert_allclose(r2, omega**2 * r, rtol=1e-12)
    lambda1 = m * r2 * c - 2 * m * omega * speed * s - m * omega**2 * r * c
    lambda2 = m * r2 * s + 2 * m * omega * speed * c - m * omega**2 * r * s
    printed = lambda2 + m * r2 * (1 - s)
    np.testing.assert_allclose(motion.multipliers, [lambda1, lambda2], rtol=1e-11)
    across = 2 * m * omega * speed * np.array([-s, c])
    np.testing.assert_allclose(motion.multipliers, across, rtol=1e-11)
    assert abs(printed - motion.multipliers[1]) > 1e-3


@pytest.mark.parametrize("seed", DRAWS)
def test_particle_on_curve_has_bravys_multipliers(seed: int) -> None:
    """Bravy 1987, section 12, in the neighbourhood x1 > x2."""
    start = {"x1": 1.6, "v1": np.random.default_rng(seed).normal()}
    x, _, motion, p = motion_of(make("particle_on_curve"), start, seed)
    pull = p["m"] * motion.qdd + p["k"] * x
    c1, c2 = p["c1"], p["c2"]
    root = (c2**2 - 4 * c1 / x[2]) ** -0.5
    lambda1 = (pull[1] - pull[0]) * root / x[2]
    lambda2 = pull[0] * (1 + c2 * root) / 2 + pull[1] * (1 - c2 * root) / 2
    np.testing.assert_allclose(motion.multipliers, [lambda1, lambda2], rtol=1e-10)
    assert abs((pull[0] - pull[1]) * c1 * root / x[2] ** 2 + pull[2]) < 1e-10


@pytest.mark.parametrize("seed", DRAWS)
def test_pendulum_of_the_lecture_and_its_reaction(seed: int) -> None:
    """Alijani, "Lagrange Equations": f = sqrt((uy - L)^2 + ux^2) - L, and R . du = 0."""
    theta, omega = np.random.default_rng(seed).normal(size=2)
    m, L, g = 1.3, 0.7, 9.81
    system = System(
        lambda u, v, t, p: 0.5 * m * v @ v - m * g * u[1],
        [Holonomic(lambda u, t, p: jnp.sqrt((u[1] - L) ** 2 + u[0] ** 2) - L, name="f")],
        coordinates=("ux", "uy"),
    )
    u = np.array([L * np.sin(theta), L - L * np.cos(theta)])
    along = np.array([L * np.cos(theta), L * np.sin(theta)])
    motion = acceleration(system, u, omega * along)
    R = motion.multipliers * np.array([u[0] / L, (u[1] - L) / L])
    np.testing.assert_allclose(m * motion.qdd, R + np.array([0.0, -m * g]), rtol=1e-12)
    np.testing.assert_allclose(motion.constraint_force, R, rtol=1e-12)
    np.testing.assert_allclose(R @ along, 0.0, atol=1e-12)
    turned = motion.qdd @ along / L**2  # the acceleration along the circle, over L
    np.testing.assert_allclose(m * L**2 * turned + m * g * L * np.sin(theta), 0.0, atol=1e-12)


@pytest.mark.parametrize("seed", DRAWS)
def test_rolling_wheel_satisfies_the_four_equations_of_the_lecture(seed: int) -> None:
    draw = np.random.default_rng(seed)
    start = dict(zip(("phi", "theta", "spin", "turn"), draw.normal(size=4), strict=True))
    q, v, motion, p = motion_of(make("rolling_wheel"), start, seed)
    (lambda1, lambda2), (x2, y2, phi2, theta2) = motion.multipliers, motion.qdd
    m, R, theta = p["m"], p["R"], q[3]
    np.testing.assert_allclose(m * x2, lambda1, rtol=1e-12)
    np.testing.assert_allclose(m * y2, lambda2, rtol=1e-12)
    torque = lambda1 * R * np.cos(theta) - lambda2 * R * np.sin(theta)
    np.testing.assert_allclose(m * R**2 / 2 * phi2, torque, atol=1e-13)
    np.testing.assert_allclose(m * R**2 / 4 * theta2, 0.0, atol=1e-13)
    np.testing.assert_allclose(phi2, 0.0, atol=1e-12)
    turning = R * v[2] * v[3]
    np.testing.assert_allclose(
        [x2, y2], [turning * np.sin(theta), turning * np.cos(theta)], atol=1e-12
    )


@pytest.mark.parametrize("seed", DRAWS)
def test_relative_double_pendulum_is_that_of_the_lecture_term_by_term(seed: int) -> None:
    """Alijani, "Lagrange Equations": d/dt(dT/dtheta') - dT/dtheta + dV/dtheta, equal masses."""
    model, draw = make("double_pendulum_angles"), np.random.default_rng(seed)
    (th1, th2), (d1, d2), (a1, a2) = draw.normal(size=(3, 2))
    m, l1, l2, g = draw.uniform(0.5, 2.0, 4)
    eom = equations_at(
        model.system, np.array([th1, th2]), np.array([d1, d2]), 0.0,
        {"m1": m, "m2": m, "l1": l1, "l2": l2, "g": g},
    )  # fmt: skip
    c2, s2 = np.cos(th2), np.sin(th2)
    dT1 = m * (
        2 * l1**2 * a1 + l2**2 * (a1 + a2) + l1 * l2 * (2 * a1 + a2) * c2
        - l1 * l2 * (2 * d1 + d2) * d2 * s2
    )  # fmt: skip
    dT2 = m * (l2**2 * (a1 + a2) + l1 * l2 * a1 * c2 - l1 * l2 * d1 * d2 * s2)
    T_theta2 = -m * l1 * l2 * d1 * (d1 + d2) * s2
    V_theta1 = m * g * l1 * np.sin(th1) + m * g * (l1 * np.sin(th1) + l2 * np.sin(th1 + th2))
    V_theta2 = m * g * l2 * np.sin(th1 + th2)
    np.testing.assert_allclose(
        eom.M @ np.array([a1, a2]) - eom.Q, [dT1 + V_theta1, dT2 - T_theta2 + V_theta2], rtol=1e-12
    )


@pytest.mark.parametrize("seed", DRAWS)
def test_both_double_pendulums_have_the_same_motion(seed: int) -> None:
    th1, th2, w1, w2 = np.random.default_rng(seed).normal(size=4)
    cartesian = {"theta1": th1, "theta2": th1 + th2, "omega1": w1, "omega2": w1 + w2}
    relative = {"theta1": th1, "theta2": th2, "omega1": w1, "omega2": w2}
    _, _, motion, p = motion_of(make("double_pendulum"), cartesian, seed)
    _, _, turned, _ = motion_of(make("double_pendulum_angles"), relative, seed)

    def positions(angles: Any) -> Any:
        a, b = angles[0], angles[0] + angles[1]
        first = p["l1"] * jnp.stack([jnp.sin(a), -jnp.cos(a)])
        return jnp.concatenate([first, first + p["l2"] * jnp.stack([jnp.sin(b), -jnp.cos(b)])])

    def velocities(state: Any) -> Any:
        return jax.jvp(positions, (state[:2],), (state[2:],))[1]

    state, rates = jnp.array([th1, th2, w1, w2]), jnp.concatenate([jnp.array([w1, w2]), turned.qdd])
    np.testing.assert_allclose(motion.qdd, jax.jvp(velocities, (state,), (rates,))[1], atol=1e-11)


def test_short_chains_are_the_pendulums() -> None:
    q, v = np.random.default_rng(0).normal(size=(2, 4))
    m, l, g = np.array([1.5, 0.7]), np.array([0.8, 1.1]), 9.81  # noqa: E741
    (m1, m2), (l1, l2) = m, l

    def equations(name: str, n: int, params: dict[str, Any], **options: Any) -> Any:
        return equations_at(make(name, options).system, q[:n], v[:n], 0.0, params)

    one = equations("chain", 2, {"m": m[:1], "l": l[:1], "g": g}, links=1)
    two = equations("chain", 4, {"m": m, "l": l, "g": g}, links=2)
    single = equations("pendulum", 2, {"m": m1, "l": l1, "g": g})
    double = equations("double_pendulum", 4, {"m1": m1, "m2": m2, "l1": l1, "l2": l2, "g": g})
    for ours, theirs in ((one, single), (two, double)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), ours, theirs)


@pytest.mark.parametrize("bars", [1, 3])
def test_four_bars_move_as_one_pendulum(bars: int) -> None:
    model = make("four_bars", {"bars": bars})
    for angle in (np.pi / 2, 0.4, -1.1, 1e-3, np.pi + 1e-3):
        _, _, motion, p = motion_of(model, {"angle": angle, "omega": -1.3})
        c = ((bars + 1) / 2 + bars) * p["g"] / (((bars + 1) / 3 + bars) * p["l"])
        cranks, couplers = np.split(motion.qdd[2::3], [bars + 1])
        np.testing.assert_allclose(cranks, -c * np.sin(angle + np.pi / 2), atol=1e-9)
        np.testing.assert_allclose(couplers, 0.0, atol=1e-9)
        assert motion.rank == 6 * bars + 2


@pytest.mark.parametrize("bars", [1, 3])
def test_four_bars_lose_rank_when_collinear(bars: int) -> None:
    """The constraints then admit more accelerations; the motion is continuous."""
    model = make("four_bars", {"bars": bars})
    for angle in (0.0, np.pi):
        q, v, motion, p = motion_of(model, {"angle": angle, "omega": 1.0})
        assert motion.rank == 6 * bars + 2 - bars
        assert motion.residual < 1e-10
        eom = equations_at(model.system, q, v, 0.0, p)
        c = ((bars + 1) / 2 + bars) * p["g"] / (((bars + 1) / 3 + bars) * p["l"])
        along = v @ eom.M @ motion.qdd / (v @ eom.M @ v)
        np.testing.assert_allclose(along, -c * np.sin(angle + np.pi / 2), rtol=1e-10)


@pytest.mark.parametrize("seed", DRAWS)
def test_sleigh_obeys_the_reduced_equations(seed: int) -> None:
    """Bloch, section 1.7: u' = a w^2 and (I + m a^2) w' = -m a u w."""
    theta, u, w = np.random.default_rng(seed).normal(size=3)
    start = {"theta": theta, "speed": u, "omega": w}
    _, _, motion, p = motion_of(make("chaplygin_sleigh"), start, seed)
    along = motion.qdd[0] * np.cos(theta) + motion.qdd[1] * np.sin(theta)
    np.testing.assert_allclose(along, p["a"] * w**2, rtol=1e-11)
    inertia = p["I"] + p["m"] * p["a"] ** 2
    np.testing.assert_allclose(inertia * motion.qdd[2], -p["m"] * p["a"] * u * w, rtol=1e-11)


@pytest.mark.parametrize("seed", DRAWS)
def test_free_body_obeys_eulers_equations(seed: int) -> None:
    draw = np.random.default_rng(seed)
    start = {"e": draw.normal(size=4), "w": draw.normal(size=3)}
    model = make("free_body")
    e, e_rate, motion, p = motion_of(model, start, seed)
    matrix = np.array([[-e[1], e[0], e[3], -e[2]],
                       [-e[2], -e[3], e[0], e[1]],
                       [-e[3], e[2], -e[1], e[0]]])  # fmt: skip
    w, J = start["w"], p["J"]
    np.testing.assert_allclose(2 * matrix @ e_rate, w, atol=1e-14)
    np.testing.assert_allclose(
        J * (2 * matrix @ motion.qdd), -np.cross(w, J * w), atol=1e-12, err_msg="Euler"
    )
    eom = equations_at(model.system, e, e_rate, 0.0, p)
    np.testing.assert_allclose(eom.M, 4 * matrix.T @ np.diag(J) @ matrix, atol=1e-13)
    assert np.linalg.matrix_rank(eom.M) == 3
    np.testing.assert_allclose(motion.multipliers, [-2 * J @ w**2], rtol=1e-11)
