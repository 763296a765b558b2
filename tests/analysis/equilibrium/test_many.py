"""Many equilibria at once, and the loss of stability over a parameter, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm


def _angles(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A double pendulum by the angles of its rods, from the downward vertical."""
    x = jnp.cumsum(jnp.stack([jnp.sin(q), -jnp.cos(q)]), axis=1)
    speed = jnp.cumsum(jnp.stack([v * jnp.cos(q), v * jnp.sin(q)]), axis=1)
    return (speed**2).sum() / 2 - p["g"] * x[1].sum()


DOUBLE = jm.System(_angles, coordinates=("upper", "lower"))


@pytest.mark.slow
def test_a_double_pendulum_has_four_equilibria() -> None:
    """Each rod is down or up, and each that is up adds one negative eigenvalue."""
    turn = {"upper": 2 * np.pi, "lower": 2 * np.pi}
    found = jm.analysis.equilibria(
        DOUBLE, [0.1, 0.2], {"g": 9.81}, spread=np.pi, periods=turn, starts=60
    )
    assert [int(x.index) for x in found.found] == [0, 1, 1, 2]
    np.testing.assert_allclose(found.energies, 9.81 * np.array([-3, -1, 1, 3]), rtol=1e-12)
    assert sum(found.hits) == found.starts
    assert [int(x.stability) for x in found.found] == [jm.analysis.Stability.STABLE] + [0] * 3
    np.testing.assert_allclose([float(x.assessment.unstable) for x in found.found], [0, 1, 1, 2])


def _hoop(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A bead on a hoop of radius 1 that turns at the rate w, in the frame of the hoop."""
    return (v[0] ** 2 + (p["w"] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])


BEAD = jm.System(_hoop, coordinates=("angle",))


def _column(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Two bars on hinges with springs, and the masses 2 and 1 at their ends."""
    motion = 3 * v[0] ** 2 + 2 * v[0] * v[1] * jnp.cos(q[0] - q[1]) + v[1] ** 2
    return motion / 2 - (q[0] ** 2 + (q[1] - q[0]) ** 2) / 2


def _follower(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A load P along the upper bar."""
    return jnp.stack([p["P"] * jnp.sin(q[0] - q[1]), 0.0])


COLUMN = jm.System(_column, force=_follower, coordinates=("lower", "upper"))


def grows(system: jm.System, size: int, params: Any) -> Any:
    """Whether a mode about zero grows, for each of the parameters."""

    def growth(p: Any) -> Any:
        return jm.analysis.modes(
            jm.analysis.linearize(system, jnp.zeros(size), jnp.zeros(size), p)
        ).growth

    return np.asarray(jax.vmap(growth)(params)) > 1e-7


@pytest.mark.slow
def test_a_follower_load_causes_flutter() -> None:
    """Ziegler's column of two bars: P l / k = 7/2 - sqrt(2); its stiffness is never singular."""
    loads = 3.5 - np.sqrt(2) + np.array([-1e-4, 1e-4])
    assert grows(COLUMN, 2, {"P": loads}).tolist() == [False, True]


@pytest.mark.slow
def test_equilibria_have_second_derivatives() -> None:
    """The second derivative of cos(angle) = g / w^2 with respect to w."""

    def angle(w: Any) -> Any:
        return jm.analysis.equilibrium(BEAD, jnp.array([0.9]), {"w": w}).q[0]

    w = 5.0
    cos = 9.81 / w**2
    sin, slope = np.sqrt(1 - cos**2), 2 * 9.81 / w**3
    np.testing.assert_allclose(jax.grad(angle)(w), slope / sin, rtol=1e-10)
    second = -3 * slope / w / sin - slope * cos * slope / sin**3
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(angle)))(w), second, rtol=1e-9)


def test_damping_inside_a_shaft_makes_it_unstable_at_a_known_speed() -> None:
    """Hopf: beyond the natural frequency times 1 + outer over inner damping."""

    def rotor(q: Any, v: Any, t: Any, p: Any) -> Any:
        turning = p["w"] * (q[0] * v[1] - q[1] * v[0]) + p["w"] ** 2 * q @ q / 2
        return v @ v / 2 + turning - 2 * q @ q

    def loads(q: Any, v: Any, t: Any, p: Any) -> Any:
        return -0.3 * v - 0.1 * p["w"] * jnp.stack([-q[1], q[0]])

    shaft = jm.System(rotor, force=loads, coordinates=("x", "y"))

    rates = 2.0 * (1 + 0.1 / 0.2) + np.array([-1e-4, 1e-4])
    assert grows(shaft, 2, {"w": rates}).tolist() == [False, True]


def _wells(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2 - ((q[0] / p) ** 2 - 1) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("length", [1.0, 1e-7])
def test_equal_wells_are_two_families_though_a_direction_is_free(length: float) -> None:
    """Their energies and eigenvalues agree, and so would those of one family."""
    free = jm.System(_wells, coordinates=("x", "y"))
    start, spread = length * np.array([0.3, 0.0]), 2 * length
    found = jm.analysis.equilibria(free, start, length, starts=12, spread=spread)
    places = [float(x.q[0]) / length for x in found.found]
    np.testing.assert_allclose(sorted(places), [-1.0, 0.0, 1.0], atol=1e-6)


def _groove(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2 - (jnp.sqrt(q @ q) - 1) ** 2


@pytest.mark.slow
def test_a_ring_of_equilibria_is_one_family() -> None:
    ring = jm.System(_groove, coordinates=("x", "y"))
    found = jm.analysis.equilibria(ring, [0.9, 0.1], starts=12)
    assert found.hits == (12,)
