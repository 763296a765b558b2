"""Small oscillations of a hanging chain, against its eigenvalues and those of a rope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.sparse.law import accelerations
from jaxmech.sparse.metric import place_at
from jaxmech.sparse.structure import structure_of

N, LENGTH, GRAVITY = 30, 2.0, 9.81  # of all links [m]
LINK, MASS = LENGTH / N, 0.1
SMALL = 2e-5  # [rad]


def chain() -> jp.Mechanism:
    inertia = MASS * LINK**2 / 12
    bars = [jp.planar_body(f"bar{k}", mass=MASS, inertia=inertia) for k in range(N)]
    above = [jp.ground, *bars]
    hinges = [
        jp.revolute(f"hinge{k}", above[k], (0.0, -LINK / 2 if k else 0.0), bars[k], (0.0, LINK / 2))
        for k in range(N)
    ]
    return jp.Mechanism(bars, hinges, [jp.gravity(GRAVITY)], coordinates="bodies")


def modes() -> tuple[np.ndarray, np.ndarray]:
    """Frequencies [rad/s], smallest first, and modes in the angles of the links, as columns."""
    below = N - 1 - np.arange(N)  # links that hang on each one
    M = MASS * LINK**2 * (0.5 + np.minimum(below[:, None], below))
    np.fill_diagonal(M, MASS * LINK**2 * (1 / 3 + below))
    squares, angles = scipy.linalg.eigh(MASS * GRAVITY * LINK * np.diag(0.5 + below), M)
    return np.sqrt(squares), angles / np.abs(angles).max(axis=0)


def coordinates(angles: np.ndarray) -> jnp.ndarray:
    """q of hanging links with these angles from the vertical."""
    ways = LINK * np.stack([np.sin(angles), -np.cos(angles)], axis=1)
    middles = np.cumsum(ways, axis=0) - ways / 2
    return jnp.asarray(np.column_stack([middles, angles]).ravel())


def test_the_smallest_frequency_is_near_that_of_a_rope() -> None:
    """J0(2 w sqrt(L/g)) = 0: Bernoulli's rope; links of finite length differ by 1/N^2."""
    assert modes()[0][0] == pytest.approx(2.404826 / 2 * np.sqrt(GRAVITY / LENGTH), rel=1 / N**2)


@pytest.mark.slow
def test_accelerations_in_every_mode_are_those_of_its_frequency() -> None:
    structure = structure_of(chain().system)

    @jax.jit
    def qdd(q):
        v, t = jnp.zeros_like(q), jnp.zeros(())
        return accelerations(place_at(structure, q, v, t, {}), q, v, t, {}).qdd

    for frequency, mode in zip(*[x.T for x in modes()], strict=True):
        angular = np.asarray(qdd(coordinates(SMALL * mode)))[2::3]
        expected = -(frequency**2) * SMALL * mode
        np.testing.assert_allclose(angular, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.slow
def test_a_mode_returns_after_its_period() -> None:
    frequencies, angles = modes()
    start = coordinates(SMALL * angles[:, 0])
    period = 2 * np.pi / frequencies[0]
    sol = jm.simulate(
        chain().system, start, jnp.zeros_like(start), jnp.array([0.0, period / 2, period]),
        steps=jm.FixedSteps(200), formulation=jm.laws.SparseElimination(),
    )  # fmt: skip
    half, whole = np.asarray(sol.q[1:, 2::3])
    np.testing.assert_allclose(half, -start[2::3], atol=1e-6 * SMALL)
    np.testing.assert_allclose(whole, start[2::3], atol=1e-6 * SMALL)
