"""Metric tensor and Christoffel symbols against closed forms; the error of (4.3) in print."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Holonomic, System, acceleration
from jaxmech.laws import Contravariant, christoffel_symbols, metric_tensor
from jaxmech.laws.contravariant import eliminated
from jaxmech.system import EquationsOfMotion
from tests.quick import quick


def symbols_of(lagrangian: Any, q: Any, t: Any = 0.0, params: Any = None) -> Any:
    names = tuple(f"q{k}" for k in range(len(q)))
    return symbols_in(System(lagrangian, coordinates=names), jnp.array(q), t, params)


def symbols_in(system: System, *state: Any) -> Any:
    return quick(lambda *state: christoffel_symbols(system, *state))(*state)


def test_sphere() -> None:
    """theta from the pole, phi: Gamma^th_ph,ph = -sin cos, Gamma^ph_th,ph = cot."""
    theta = 0.7
    found = symbols_of(
        lambda q, v, t, p: 0.5 * p * (v[0] ** 2 + jnp.sin(q[0]) ** 2 * v[1] ** 2),
        [theta, 0.2],
        params=3.0,
    )
    second = np.zeros((2, 3, 3))
    second[0, 2, 2] = -np.sin(theta) * np.cos(theta)
    second[1, 1, 2] = second[1, 2, 1] = 1 / np.tan(theta)
    np.testing.assert_allclose(found.second, second, atol=1e-15)
    first = second * np.array([3.0, 3.0 * np.sin(theta) ** 2])[:, None, None]
    np.testing.assert_allclose(found.first, first, atol=1e-15)


def test_rotating_axes() -> None:
    """Polar coordinates in a turning frame: g_phi,0 = r^2 W, and the Coriolis terms from it."""
    r, W = 2.0, 0.4
    turning = System(
        lambda q, v, t, p: 0.5 * (v[0] ** 2 + q[0] ** 2 * (v[1] + p) ** 2), coordinates=("r", "phi")
    )
    g = metric_tensor(turning, [r, 0.3], 0.0, W)
    np.testing.assert_allclose(g, [[0, 0, r**2 * W], [0, 1, 0], [r**2 * W, 0, r**2]], atol=1e-15)
    second = symbols_in(turning, jnp.array([r, 0.3]), 0.0, W).second
    assert second[0, 2, 0] == second[0, 0, 2] == pytest.approx(-r * W)
    assert second[1, 1, 0] == second[1, 0, 1] == pytest.approx(W / r)


def test_explicit_time() -> None:
    """A mass that grows as exp(k t), pushed by a drift p(t): Gamma_x,x0 = M'/2, Gamma_x,00 = p'."""
    k, t = 0.3, 1.2
    found = symbols_of(
        lambda q, v, t, p: 0.5 * jnp.exp(p * t) * v[0] ** 2 + jnp.sin(t) * v[0], [0.5], t, k
    )
    assert found.first[0, 1, 0] == found.first[0, 0, 1] == pytest.approx(k * np.exp(k * t) / 2)
    assert found.first[0, 0, 0] == pytest.approx(np.cos(t))


def moving(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Everything at once: M(q, t), terms linear in v, a potential."""
    r, phi, z = q
    mass = 1.0 + 0.2 * jnp.sin(t) * jnp.cos(z)
    kinetic = 0.5 * mass * (v[0] ** 2 + r**2 * (v[1] + p["W"] * t) ** 2 + 2 * v[2] ** 2)
    magnetic = p["B"] * r**2 * v[1] * jnp.cos(z) + v[0] * v[2] * jnp.sin(phi)
    return kinetic + magnetic - p["g"] * z * r


def test_the_same_equations_as_from_the_lagrangian() -> None:
    system = System(
        moving,
        [Holonomic(lambda q, t, p: q[2] - 0.1 * q[0] ** 2 - 0.3 * t)],
        force=lambda q, v, t, p: -0.1 * v,
        coordinates=("r", "phi", "z"),
    )
    params = {"W": 0.4, "B": 0.7, "g": 9.81}

    @quick
    def both(q: Any, v: Any, t: Any) -> Any:
        return [
            equations(q, v, t, params)
            for equations in (system.equations, lambda *x: Contravariant().equations(system, *x))
        ]

    draw = np.random.default_rng(0)
    for _ in range(4):
        q, v, t = draw.uniform(0.5, 1.5, 3), draw.normal(size=3), draw.uniform()
        for value, right in zip(*map(jax.tree.leaves, reversed(both(q, v, t))), strict=True):
            np.testing.assert_allclose(value, right, rtol=1e-12, atol=1e-12)


def test_the_precision_is_that_of_the_coordinates() -> None:
    """Also while float64 is the default, as it is here."""
    polar = System(
        lambda q, v, t, p: 0.5 * (v[0] ** 2 + q[0] ** 2 * v[1] ** 2), coordinates=("r", "phi")
    )
    state = jnp.array([2.0, 0.3], jnp.float32), jnp.array([1.0, 0.5], jnp.float32)
    qdd = acceleration(polar, *state, formulation=Contravariant()).qdd
    assert qdd.dtype == metric_tensor(polar, state[0]).dtype == jnp.float32
    np.testing.assert_allclose(qdd, [2.0 * 0.5**2, -2 * 1.0 * 0.5 / 2.0], rtol=1e-6)


def equations(n: int, m: int, rank: int) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(10 * n + m)
    F, A = draw.normal(size=(n, n)), draw.normal(size=(m, rank)) @ draw.normal(size=(rank, n))
    return F @ F.T + np.eye(n), draw.normal(size=n), A, A @ draw.normal(size=n)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "rank"), [(5, 4, 2), (3, 0, 0)])
def test_eliminated_reactions_leave_n_minus_rank_equations(n: int, m: int, rank: int) -> None:
    eom = EquationsOfMotion(*map(jnp.asarray, equations(n, m, rank)))
    law = Contravariant(eliminate=True)

    @quick
    def everything(eom: EquationsOfMotion) -> Any:
        laws = [law.solve(eom) for law in (law, Contravariant())]
        return eliminated(eom), laws

    (E, F), (solved, plain) = everything(eom)
    assert np.linalg.matrix_rank(E, tol=1e-10) == n - rank
    np.testing.assert_allclose(E @ solved.qdd, F, atol=1e-12)
    np.testing.assert_allclose(eom.A @ solved.qdd, eom.b, atol=1e-12)
    np.testing.assert_allclose(solved.qdd, plain.qdd, atol=1e-11)
    assert plain.rank == solved.rank == rank
