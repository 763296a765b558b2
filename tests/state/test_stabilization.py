"""Projection and Baumgarte stabilization."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Baumgarte, Holonomic, Projection, System, compiler
from jaxmech.state import RowsBefore
from jaxmech.system import extents_at
from tests.quick import each
from tests.small import (
    DOUBLE,
    MIXED,
    PENDULUM,
    QUATERNION,
    REDUNDANT,
    SKATE,
    WIRE,
    Case,
)

T = jnp.asarray(0.3)


def projected(
    case: Case, q: Any, v: Any, t: Any = T, *, singular: bool = False, **options: Any
) -> Any:
    """The projected q and v, whether they converged, and the residuals at both levels."""
    system, p = case[:2]

    @jax.jit
    def run(q: Any, v: Any) -> Any:
        known = system.with_singular_mass(singular)
        q, v, reached = Projection(**options).after_step(known, q, v, t, p)
        left = system.dynamics.position_level(q, t, p), system.dynamics.velocity_level(q, v, t, p)
        return q, v, reached, jnp.concatenate(left)

    return run(jnp.asarray(q), jnp.asarray(v))


def test_onto_a_circle_along_the_radius() -> None:
    q, v, reached, left = projected(PENDULUM, [1.21, -1.61], [0.8, 0.6])
    np.testing.assert_allclose(q, 2 * np.array([1.21, -1.61]) / np.hypot(1.21, 1.61), atol=1e-6)
    assert reached
    assert np.abs(left).max() < 1e-6
    tangent = np.array([-q[1], q[0]]) / 2
    np.testing.assert_allclose(v, tangent * (tangent @ [0.8, 0.6]), atol=1e-6)


def test_second_derivatives_are_those_of_the_nearest_point() -> None:
    """On the circle |q| = 2 one correction suffices; around it the nearest point is 2 q / |q|."""
    zero = jnp.zeros(2)

    def projection(q: Any) -> Any:
        return Projection().after_step(PENDULUM.system, q, zero, T, PENDULUM.params)[0]

    hessian = jax.jit(jax.hessian(projection))(jnp.array([2.0, 0.0]))
    expected = np.zeros((2, 2, 2))
    expected[0, 1, 1] = expected[1, 0, 1] = expected[1, 1, 0] = -0.5
    np.testing.assert_allclose(hessian, expected, atol=1e-12)


def test_corrections_end_at_round_off() -> None:
    system, p, q, v = DOUBLE
    sizes = np.array([1e-12, 1e-9, 1e-7, 1e-4])

    def residual(policy: Projection, size: Any) -> Any:
        off = jnp.asarray(q + size * np.array([1, -2, 3, 1])), jnp.asarray(v + size)
        new = policy.after_step(system, *off, T, p)
        level = (
            system.dynamics.position_level(new[0], T, p),
            system.dynamics.velocity_level(*new[:2], T, p),
        )
        return jnp.abs(jnp.concatenate(level)).max()

    for policy in (Projection(), Projection().lazy()):
        left = each(partial(residual, policy))(sizes)
        assert (left < 2e-15 + 100 * sizes**3).all(), policy


def test_small_corrections_take_fewer_operations() -> None:
    """A forward run computes the second correction in a rare branch."""
    known = RowsBefore(jnp.asarray(False), jnp.asarray(2, jnp.int32), jnp.ones(4))

    def count(policy: Projection) -> int:
        def project(q: Any, v: Any) -> Any:
            return policy.after_step(DOUBLE.system, q, v, T, DOUBLE.params, known)[:2]

        state = (jnp.asarray(x)[None] for x in DOUBLE[2:])
        return compiler.explain(project, *state).parts[0].operations

    once = count(Projection(iterations=1))
    assert once < count(Projection().lazy()) < (once + count(Projection())) / 2


def test_corrections_are_smallest_in_the_mass_metric() -> None:
    """M dq is a combination of the rows of A: orthogonal to all directions that A leaves free."""
    p = {**DOUBLE.params, "m1": 5.0}
    case = DOUBLE._replace(params=p)
    q0, v0 = DOUBLE.q + 1e-4 * np.array([1, -2, 3, 1]), DOUBLE.v + 1e-4
    q, v, reached, _ = projected(case, q0, v0)
    A = jax.jacfwd(lambda q: DOUBLE.system.dynamics.position_level(q, T, p))(jnp.asarray(q0))
    free = np.linalg.svd(A)[2][2:]
    M = np.diag([5.0, 5.0, 0.7, 0.7])
    assert reached
    np.testing.assert_allclose(free @ M @ (q - q0), 0.0, atol=1e-12)
    np.testing.assert_allclose(free @ M @ (v - v0), 0.0, atol=1e-12)
    assert np.abs(q - q0).max() > 1e-5


def test_every_iteration_makes_the_rest_smaller() -> None:
    off = PENDULUM.q * 1.01
    left = [np.abs(projected(PENDULUM, off, PENDULUM.v, iterations=k)[3]) for k in (1, 2, 3, 6)]
    assert 1e-5 < left[0][0] < 1e-3
    assert left[1][0] < 0.02 * left[0][0]
    assert left[2][0] < 0.02 * left[1][0]
    assert left[3].max() < 1e-13


@pytest.mark.parametrize(
    "case",
    [PENDULUM, DOUBLE, REDUNDANT, SKATE, WIRE],
    ids=["one", "two", "redundant", "skate", "wire"],
)
def test_a_consistent_state_stays_where_it_is(case: Case) -> None:
    q, v, reached, _ = projected(case, *case[2:], t=jnp.asarray(0.0))
    assert reached
    np.testing.assert_allclose(q, case.q, rtol=0, atol=1e-15)
    np.testing.assert_allclose(v, case.v, rtol=0, atol=1e-15)


def test_all_kinds_at_once() -> None:
    q, v, reached, left = projected(MIXED, MIXED.q + 1e-3, MIXED.v + 1e-3, t=jnp.asarray(0.0))
    assert reached
    assert left.shape == (4,)
    assert np.abs(left).max() < 1e-8
    assert q[4] == MIXED.q[4] + 1e-3  # the servo constrains accelerations alone
    assert v[4] == MIXED.v[4] + 1e-3


@pytest.mark.parametrize("singular", [False, True])
def test_a_singular_mass_needs_the_flag(singular: bool) -> None:
    q, _, reached, _ = projected(QUATERNION, QUATERNION.q * 1.0001, QUATERNION.v, singular=singular)
    assert reached == singular
    if singular:
        np.testing.assert_allclose(q, QUATERNION.q, atol=1e-7)


@pytest.mark.parametrize(
    "phi",
    [lambda q, t, p: q @ q + 1, lambda q, t, p: 0 * q[0] + 1e-9, lambda q, t, p: q[0] * jnp.nan],
    ids=["nowhere", "without a slope", "nan"],
)
def test_what_cannot_be_reached_is_reported(phi: Any) -> None:
    system = System(lambda q, v, t, p: 0.5 * v @ v, [Holonomic(phi)], coordinates=("x", "y"))
    assert not projected(Case(system, {}, PENDULUM.q, PENDULUM.v), *PENDULUM[2:])[2]


def test_baumgarte_feedback_by_hand() -> None:
    """-2 alpha phi' - beta^2 phi, -alpha psi, and 0, in the order of the system's rows."""
    system, p = MIXED.system, MIXED.params
    q, v = np.random.default_rng(0).normal(size=(2, 5))
    phi = jax.jit(system.dynamics.position_level)(q, T, p)
    phi_rate, *psi = jax.jit(system.dynamics.velocity_level)(q, v, T, p)
    feedback = jax.jit(lambda q, v: Baumgarte(alpha=3.0, beta=5.0).feedback(system, q, v, T, p))
    expected = [0.0, -6.0 * phi_rate - 25.0 * phi[0], -3.0 * psi[0], -3.0 * psi[1]]
    np.testing.assert_allclose(feedback(q, v), expected, rtol=1e-13)


def test_a_projection_fails_alike_in_any_unit() -> None:
    """One correction is not enough from 10 % off; a mechanism of micrometres is no exception."""

    @jax.jit
    def reached(size: Any) -> Any:
        p = {**PENDULUM.params, "l": 2.0 * size}
        q, v = size * 1.1 * jnp.asarray(PENDULUM.q), size * jnp.asarray(PENDULUM.v)
        known = RowsBefore(
            jnp.asarray(False), jnp.asarray(1), extents_at(PENDULUM.system, q, v, T, p)
        )
        return [
            Projection(iterations=k).after_step(PENDULUM.system, q, v, T, p, known)[2]
            for k in (1, 8)
        ]

    for size in (1e-6, 1.0, 1e6):
        assert [bool(x) for x in reached(size)] == [False, True]
