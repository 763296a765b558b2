"""Equilibria in batches, and the loss of stability over a parameter, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm


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


@pytest.mark.slow
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
