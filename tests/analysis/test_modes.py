"""Modes against closed forms, derivatives of eigenvalues, and invalid arguments."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.analysis import Modes, linearize, modes
from jaxmech.analysis.equilibrium import assess
from jaxmech.analysis.modes import spectrum


def angles(n: int) -> jm.System:
    """A chain of n links of 1 m with masses of 1 kg, by the angles of its links."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        ends = jnp.cumsum(jnp.stack([jnp.sin(q), -jnp.cos(q)]), axis=1)
        speeds = jnp.cumsum(jnp.stack([v * jnp.cos(q), v * jnp.sin(q)]), axis=1)
        return 0.5 * (speeds**2).sum() - p["g"] * ends[1].sum()

    return jm.System(lagrangian, coordinates=tuple(f"angle{k}" for k in range(n)))


@pytest.mark.slow
def test_a_hanging_chain_has_the_zeros_of_a_laguerre_polynomial() -> None:
    """Squared frequencies over g / l, in Cartesian coordinates and in angles."""
    n = 6
    model, zeros = jm.models.chain(n), np.polynomial.laguerre.lagroots([0] * n + [1])
    q = np.stack([np.zeros(n), -np.arange(1.0, n + 1)], axis=1).ravel()
    g = model.params["g"]
    for system, where, params in (
        (model.system, q, model.params),
        (angles(n), np.zeros(n), {"g": g}),
    ):
        found = modes(linearize(system, where, np.zeros(len(where)), params))
        squares = (2 * np.pi * found.frequencies[::2]) ** 2
        np.testing.assert_allclose(squares, g * zeros, rtol=1e-10)
        assert not np.any(found.eigenvalues.real)
        assert not np.any(found.shapes.imag)
        np.testing.assert_allclose(np.abs(found.shapes).max(0), 1.0)


# A disc on a shaft with damping, springs and a follower force, in the rotating frame:
# x'' + G x' + D x' + (K + N) x = 0.
def _rotor(q: Any, v: Any, t: Any, p: Any) -> Any:
    turning = p["w"] * (q[0] * v[1] - q[1] * v[0])
    return 0.5 * v @ v + turning + 0.5 * p["w"] ** 2 * q @ q - 0.5 * p["k"] @ q**2


def _loads(q: Any, v: Any, t: Any, p: Any) -> Any:
    return -p["d"] * v + p["n"] * jnp.stack([q[1], -q[0]])


ROTOR = jm.System(_rotor, force=_loads, coordinates=("x", "y"))
TURNING = {"w": 0.7, "k": np.array([1.0, 1.7]), "d": 0.1, "n": 0.3}


def test_gyroscopic_circulatory_and_damping_parts() -> None:
    found = modes(linearize(ROTOR, np.zeros(2), np.zeros(2), TURNING)).eigenvalues
    skew = np.array([[0, 1.0], [-1.0, 0]])
    rates = -2 * 0.7 * skew + 0.1 * np.eye(2)
    stiffness = np.diag(TURNING["k"]) - 0.49 * np.eye(2) - 0.3 * skew
    exact = np.linalg.eigvals(np.block([[0 * skew, np.eye(2)], [-stiffness, -rates]]))
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(exact), atol=1e-12)


@pytest.mark.slow
def test_eigenvalues_have_derivatives() -> None:
    """Derivatives with respect to every parameter, in both modes, agree with differences."""

    def real_and_imaginary(p: Any) -> Any:
        values = modes(linearize(ROTOR, jnp.zeros(2), jnp.zeros(2), p)).eigenvalues
        return jnp.concatenate([values.real, values.imag])

    call = jax.jit(real_and_imaginary)
    forward = jax.jit(jax.jacfwd(real_and_imaginary))(TURNING)
    for name, value in TURNING.items():
        for k in np.ndindex(np.shape(value)):
            step = np.zeros(np.shape(value))
            step[k] = 1e-5
            up, down = (call({**TURNING, name: value + s * step}) for s in (1, -1))
            slope = forward[name][(slice(None), *k)]
            np.testing.assert_allclose(slope, (up - down) / 2e-5, atol=1e-8)
            assert np.abs(slope).max() > 1e-3
    backward = jax.grad(lambda p: real_and_imaginary(p)[3])(TURNING)
    np.testing.assert_allclose(backward["w"], forward["w"][3], rtol=1e-10)


@pytest.mark.slow
def test_shapes_have_derivatives_and_eigenvalues_second_ones() -> None:
    def numbers(w: Any) -> Any:
        found = modes(linearize(ROTOR, jnp.zeros(2), jnp.zeros(2), {**TURNING, "w": w}))
        shape = found.shapes[:, 0]
        return jnp.stack([found.growth, found.frequencies[0], *shape.real, *shape.imag])

    call, slope = jax.jit(numbers), jax.jit(jax.jacfwd(numbers))
    curvature = jax.jit(jax.jacfwd(jax.jacrev(lambda w: numbers(w)[:2])))(0.7)
    up, down = (call(0.7 + s * 1e-5) for s in (1, -1))
    np.testing.assert_allclose(slope(0.7), (up - down) / 2e-5, atol=1e-8)
    up, down = (slope(0.7 + s * 1e-5)[:2] for s in (1, -1))
    np.testing.assert_allclose(curvature, (up - down) / 2e-5, atol=1e-7)
    assert np.abs(curvature).min() > 1e-3


@pytest.mark.slow
def test_with_zero_eigenvalues_only_eigenvalues_have_derivatives() -> None:
    """Two free masses and a spring: zero eigenvalues do not affect growth and frequency."""
    free = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - 0.5 * p["k"] * (q[1] - q[0]) ** 2,
        force=lambda q, v, t, p: -p["d"] * jnp.stack([v[0] - v[1], v[1] - v[0]]),
        coordinates=("x", "y"),
    )

    def found(k: Any) -> Modes:
        return modes(linearize(free, jnp.zeros(2), jnp.zeros(2), {"k": k, "d": 0.1}))

    def frequency(k: Any) -> Any:  # sqrt(2 k - 0.01) / (2 pi)
        return found(k).frequencies[-1]

    exact = 1 / np.sqrt(2 * 1.3 - 0.01) / (2 * np.pi)
    for slope in (jax.grad(frequency), jax.jit(jax.grad(frequency)), jax.jacfwd(frequency)):
        np.testing.assert_allclose(slope(1.3), exact, rtol=1e-9)
    assert np.isnan(jax.jacfwd(lambda k: found(k).shapes.real)(1.3)).any()
    assert np.isnan(jax.grad(jax.grad(frequency))(1.3))


@pytest.mark.slow
def test_a_batch_of_modes_is_that_of_each() -> None:
    speeds = jnp.array([0.0, 0.7, 1.2])

    def of(w: Any) -> Modes:
        return modes(linearize(ROTOR, jnp.zeros(2), jnp.zeros(2), {**TURNING, "w": w}))

    inside = jax.jit(jax.vmap(of))(speeds)
    outside = modes(
        jax.vmap(lambda w: linearize(ROTOR, jnp.zeros(2), jnp.zeros(2), {**TURNING, "w": w}))(
            speeds
        )
    )
    np.testing.assert_array_equal(inside.eigenvalues, outside.eigenvalues)
    for k, w in enumerate(speeds):
        np.testing.assert_allclose(inside.eigenvalues[k], of(w).eigenvalues, atol=1e-12)
    assert inside.growth.shape == (3,)


def test_zeros_are_counted_whatever_their_chains() -> None:
    """A chain of four zeros: LAPACK alone gives eps^(1/4), about 1e-4."""
    draw = np.random.default_rng(2)
    T = draw.normal(size=(6, 6))
    J = np.diag([0, 0, 0, 0, -1.0, 2.0]) + np.diag([1.0, 1.0, 1.0, 0, 0], 1)
    A = T @ J @ np.linalg.inv(T)
    assert np.abs(np.linalg.eigvals(A)).min() > 1e-6
    found = spectrum(jnp.asarray(A), jnp.zeros((0, 0)), jnp.zeros((0, 6)))
    assert found.zero.sum() == 4
    np.testing.assert_allclose(found.eigenvalues, [0, 0, 0, 0, -1.0, 2.0], atol=1e-11)
    right, left = (np.asarray(x)[:, 4:] for x in (found.right, found.left))
    np.testing.assert_allclose(A @ right, right * np.array([-1.0, 2.0]), atol=1e-11)
    np.testing.assert_allclose(left.conj().T @ right, np.eye(2), atol=1e-11)


def test_repeated_eigenvalues_have_no_derivative() -> None:
    def frequency(k: Any) -> Any:
        params = {"w": 0.0, "k": jnp.stack([k, k]), "d": 0.0, "n": 0.0}
        return modes(linearize(ROTOR, jnp.zeros(2), jnp.zeros(2), params)).frequencies[0]

    assert np.isnan(jax.grad(frequency)(1.0))


def _springs(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2 - p["k"] @ q**2 / 2


def _dampers(q: Any, v: Any, t: Any, p: Any) -> Any:
    return -p["c"] * v


PAIR = jm.System(_springs, force=_dampers, coordinates=("x", "y"))


@pytest.mark.parametrize("rate", [1e-7, 1e-5, 1.0, 1e5, 1e8, 1e14])
def test_the_unit_of_time_does_not_matter(rate: float) -> None:
    params = {"k": np.array([1.0, 2.0]) * rate**2, "c": np.array([0.2, 0.0]) * rate}
    found = jm.analysis.equilibrium(PAIR, np.zeros(2), params)
    exact = np.array([-0.1 + 1j * np.sqrt(0.99), 1j * np.sqrt(2)])
    values = np.asarray(modes(found.linearization).eigenvalues)
    np.testing.assert_allclose(values[[0, 2]], rate * exact, atol=1e-12 * rate)
    assert (int(found.assessment.zeros), found.stability) == (0, jm.analysis.Stability.STABLE)


def test_a_stiff_spring_does_not_hide_that_a_soft_direction_is_unstable() -> None:
    params = {"k": np.array([2e10, -9.81]), "c": np.zeros(2)}
    for damping in (0.0, 1e3):
        found = jm.analysis.equilibrium(PAIR, np.zeros(2), params | {"c": np.array([damping, 0.0])})
        assert (found.stability, found.index) == (jm.analysis.Stability.UNSTABLE, 1)
        assert found.assessment.zeros == 0
        np.testing.assert_allclose(found.assessment.growth, np.sqrt(9.81), rtol=1e-6)


def _moon(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Lagrangian of a satellite between earth and moon, in the frame that turns with them."""
    speed = v + p["w"] * jnp.stack([-q[1], q[0]])
    earth, moon = (jnp.sqrt((q[0] - x) ** 2 + q[1] ** 2) for x in (p["earth"], p["moon"]))
    return speed @ speed / 2 + p["mu_earth"] / earth + p["mu_moon"] / moon


@pytest.mark.slow
def test_a_triangular_libration_point_in_metres_and_seconds() -> None:
    """Szebehely, Theory of Orbits, 1967: lambda^4 + lambda^2 + 27/4 mu (1 - mu) = 0."""
    distance, masses = 3.844e8, np.array([3.986e14, 4.905e12])
    mu, w = masses[1] / masses.sum(), np.sqrt(masses.sum() / distance**3)
    params = {
        "earth": -mu * distance, "moon": (1 - mu) * distance, "w": w, "mu_earth": masses[0],
        "mu_moon": masses[1],
    }  # fmt: skip
    satellite = jm.System(_moon, coordinates=("x", "y"))
    start = distance * np.array([0.5 - mu, np.sqrt(0.75)])
    found = modes(linearize(satellite, start, np.zeros(2), params))
    exact = w * np.sqrt((1 + np.array([-1, 1]) * np.sqrt(1 - 27 * mu * (1 - mu))) / 2)
    np.testing.assert_allclose(found.eigenvalues.imag[::2], exact, rtol=1e-6)
    np.testing.assert_allclose(found.eigenvalues.real, 0.0, atol=1e-9 * w)


def _triangle(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Lagrangian of three masses that springs hold at unit distances, free in the plane."""
    places = q.reshape(3, 2)
    sides = places - jnp.roll(places, 1, 0)
    return v @ v / 2 - 50 * ((jnp.sqrt((sides**2).sum(1)) - 1) ** 2).sum()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_off_of_single_precision_is_not_growth(dtype: Any) -> None:
    free = jm.System(_triangle, coordinates=tuple("abcdef"))
    q = jnp.array([0, 0, 1, 0, 0.5, np.sqrt(0.75)], dtype)
    found = linearize(free, q, jnp.zeros_like(q))
    assessment = assess(found)
    assert (assessment.stability, assessment.zeros) == (jm.analysis.Stability.MARGINAL, 6)
    frequencies = np.asarray(modes(found).frequencies)[6::2]
    assert frequencies.dtype == dtype
    exact = np.sqrt([150.0, 150.0, 300.0]) / (2 * np.pi)
    np.testing.assert_allclose(frequencies, exact, rtol=100 * np.finfo(dtype).eps)


def test_metres_and_radians_are_compared_by_their_energy() -> None:
    """A heavy cart that moves by millimetres and a light needle that turns by radians."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        kinetic = 500.0 * v[0] ** 2 + 5e-7 * v[1] ** 2
        return kinetic - 500.0 * q[0] ** 2 - 2e-6 * q[1] ** 2 - 1e-3 * q[0] * q[1]

    system = jm.System(lagrangian, coordinates={"cart": "m", "needle": "rad"})
    found = modes(linearize(system, jnp.zeros(2), jnp.zeros(2)))
    slow = found.shapes[:, 0]
    assert abs(slow[1]) > abs(slow[0])
    assert [found.coordinates[k] for k in found.largest[::2]] == ["cart", "needle"]
