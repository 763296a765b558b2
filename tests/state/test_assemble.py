"""`assemble` finds the nearest consistent state, keeps fixed coordinates, and reports failures."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, Status, System, assemble, simulate
from tests.small import (
    DOUBLE,
    MIXED,
    PENDULUM,
    QUATERNION,
    Case,
)

HEAVY = {**DOUBLE.params, "m1": 5.0}
M_HEAVY = np.diag([5.0, 5.0, 0.7, 0.7])


def many(case: Case, **options: Any) -> Any:
    """Assemble a batch of guesses at t = 0.3 with the parameters of the case."""
    return jax.jit(jax.vmap(lambda q, v: assemble(case.system, q, v, 0.3, case.params, **options)))


on_circle = many(PENDULUM)  # compiled once for all tests


def levels(case: Case, q: Any, v: Any) -> np.ndarray:
    def one(q: Any, v: Any) -> Any:
        t = jnp.asarray(0.3)
        position = case.system.dynamics.position_level(q, t, case.params)
        return jnp.concatenate(
            [position, case.system.dynamics.velocity_level(q, v, t, case.params)]
        )

    return np.asarray(jax.jit(jax.vmap(one))(q, v))


def guesses(case: Case, width: float, count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(2)
    near = draw.uniform(-width, width, (2, count, case.system.n))
    return case.q + near[0], case.v + near[1]


@pytest.fixture(scope="module")
def heavy() -> tuple[np.ndarray, ...]:
    """Guesses for the double pendulum with a heavy first mass, and the assembled states."""
    case = DOUBLE._replace(params=HEAVY)
    guess = guesses(case, 0.3)
    return *guess, *map(np.asarray, many(case)(*guess))


def test_velocities_are_the_projection_in_the_mass_metric(heavy: Any) -> None:
    """v = v_guess - M^-1 A^T (A M^-1 A^T)^-1 A v_guess at the assembled q."""
    for guess, q, v in zip(*heavy[1:], strict=True):
        rod = q[2:] - q[:2]
        A = np.array([[*q[:2], 0.0, 0.0], [*-rod, *rod]])
        W = np.linalg.inv(M_HEAVY) @ A.T
        np.testing.assert_allclose(v, guess - W @ np.linalg.solve(A @ W, A @ guess), atol=1e-12)


@pytest.mark.parametrize(
    ("case", "width"),
    [(QUATERNION, 0.3), (MIXED, 0.2)],
    ids=["singular mass", "all kinds, time-dependent, nonlinear in v"],
)
def test_every_kind_of_constraint_holds_afterwards(case: Case, width: float) -> None:
    guess, run = guesses(case, width), many(case)
    q, v = run(*guess)
    assert np.abs(levels(case, *guess)).max() > 0.01
    assert np.abs(levels(case, q, v)).max() < 1e-12
    np.testing.assert_allclose(run(q, v), (q, v), atol=1e-12)
    # The search for one known guess is on the host.
    for k in range(3):
        alone = assemble(case.system, guess[0][k], guess[1][k], 0.3, case.params)
        np.testing.assert_allclose(alone, (q[k], v[k]), atol=1e-10)


def test_fixed_coordinates_keep_their_guess() -> None:
    """Positions and velocities bit by bit; the other coordinate stays on its side of the circle."""
    guess = guesses(PENDULUM, 0.3)
    q, v = map(np.asarray, many(PENDULUM, fixed=("x",))(*guess))
    np.testing.assert_array_equal(q[:, 0], guess[0][:, 0])
    np.testing.assert_array_equal(v[:, 0], guess[1][:, 0])
    np.testing.assert_allclose(q[:, 1], -np.sqrt(4.0 - q[:, 0] ** 2), atol=1e-12)
    np.testing.assert_allclose(v[:, 1], -v[:, 0] * q[:, 0] / q[:, 1], atol=1e-12)
    alone = assemble(PENDULUM.system, guess[0][0], guess[1][0], 0.3, PENDULUM.params, fixed=["x"])
    np.testing.assert_allclose(alone, (q[0], v[0]), atol=1e-12)


def test_other_velocities_may_be_fixed_than_coordinates() -> None:
    guess = guesses(DOUBLE, 0.1)
    q, v = map(np.asarray, many(DOUBLE, fixed=("x1",), fixed_velocities=("y2",))(*guess))
    assert np.abs(levels(DOUBLE, q, v)).max() < 1e-12
    np.testing.assert_array_equal(q[:, 0], guess[0][:, 0])
    np.testing.assert_array_equal(v[:, 3], guess[1][:, 3])
    assert np.abs(v[:, 0] - guess[1][:, 0]).min() > 1e-4


def test_a_bad_guess_does_not_affect_others() -> None:
    """The other results are bit-identical whatever their neighbours."""
    good = guesses(PENDULUM, 0.5)
    bad = [guess.copy() for guess in good]
    bad[0][2] = np.nan
    bad[0][4] = 0.0  # every point of the circle is as near
    bad[1][3] = np.inf
    one, other = on_circle(*good), on_circle(*bad)
    assert np.isnan(other[0][2]).all()
    assert not np.isfinite(other[1][3]).all()
    for k in (0, 1, 5):
        np.testing.assert_array_equal([one[0][k], one[1][k]], [other[0][k], other[1][k]])
    np.testing.assert_array_equal(one[0][3], other[0][3])


@pytest.mark.slow
def test_single_precision() -> None:
    guess = [x.astype(np.float32) for x in guesses(PENDULUM, 0.5)]
    q, v = on_circle(*guess)
    assert q.dtype == v.dtype == np.float32
    assert np.abs(levels(PENDULUM, q, v)).max() < 3e-6


KINK = System(
    lambda q, v, t, p: 0.5 * v @ v,
    [Holonomic(lambda q, t, p: q[1] - p * jnp.abs(q[0]), "roof")],
    coordinates=("x", "y"),
)


@pytest.mark.slow
def test_a_missing_nearest_state_raises_or_is_nan() -> None:
    """Below the kink of y = |x| the kink is nearest, where there is no derivative."""
    with pytest.raises(ValueError, match=r"^Argument `q_guess` must have a nearest point on the"):
        assemble(KINK, [0.1, -1.0], [0.0, 0.0], 0.0, 1.0)

    def run(q: Any) -> Any:
        q, v = assemble(KINK, q, jnp.zeros(2), 0.0, 1.0)
        return q, simulate(KINK, q, v, jnp.array([0.0, 0.1]), 1.0, steps=FixedSteps(1)).status

    q, status = jax.jit(jax.vmap(run))(jnp.array([[0.1, -1.0], [1.0, 0.9]]))
    assert np.isnan(q[0]).all()
    np.testing.assert_allclose(q[1], [0.95, 0.95], atol=1e-12)
    assert status.tolist() == [Status.NONFINITE, Status.OK]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "fixed"),
    [(QUATERNION, ()), (MIXED, ("x",))],
    ids=["singular mass", "all kinds, with a fixed coordinate"],
)
def test_derivatives_are_those_of_differences(case: Case, fixed: tuple[str, ...]) -> None:
    """Along a random direction of guess and time, for positions and velocities."""
    draw = np.random.default_rng(5)
    q, v = (x[0] for x in guesses(case, 0.1, 1))
    way = draw.normal(size=(2, case.system.n))

    @jax.jit
    @jax.vmap
    def along(s: Any) -> Any:
        def state(s: Any) -> Any:
            guess = q + s * way[0], v + s * way[1]
            return jnp.concatenate(
                assemble(
                    case.system, *guess, 0.3 + s, case.params, fixed=fixed, fixed_velocities=()
                )
            )

        return jax.jvp(state, (s,), (jnp.ones_like(s),))

    states, slopes = along(jnp.array([-1e-5, 0.0, 1e-5]))
    assert np.abs(slopes).max() > 0.1
    np.testing.assert_allclose(slopes[1], (states[2] - states[0]) / 2e-5, rtol=1e-7, atol=1e-7)
