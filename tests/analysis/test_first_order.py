"""Linearization, equilibria and structure of systems with states of first order."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

P = {"J": 0.02, "k": 0.5, "c": 0.01, "u": 6.0, "R": 1.2, "L": 0.05, "s": 2.0}


def circuit(q: Any, v: Any, t: Any, p: Any) -> Any:
    return (p["u"] - p["R"] * v[1] - p["k"] * v[0]) / p["L"]


def wound(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * p["J"] * v[0] ** 2 - 0.5 * p["s"] * q[0] ** 2


def torque(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([p["k"] * v[1] - p["c"] * v[0]])


MOTOR = jm.System(  # which winds up a spring
    wound, force=torque, coordinates=("angle",), states=("current",), rates=circuit
)
REST = np.array([P["k"] * P["u"] / P["R"] / P["s"], 0.0]), np.array([0.0, P["u"] / P["R"]])


def test_equilibrium_and_its_linear_equations() -> None:
    found = jm.analysis.equilibrium(MOTOR, [0.1, 0.0], P)
    np.testing.assert_allclose(found.q, REST[0], atol=1e-12)
    np.testing.assert_allclose(found.v, REST[1], atol=1e-12)
    assert repr(found).splitlines() == [
        "Equilibrium: at rest, ASYMPTOTICALLY_STABLE", "  angle    1.25", "  current  5"
    ]  # fmt: skip
    lin = jm.analysis.linearize(
        MOTOR, found.q, found.v, P, inputs=["u", "current"], outputs=["angle", "current"]
    )
    A = [[0, 1, 0], [-100, -0.5, 25], [0, -10, -24]]
    np.testing.assert_allclose(lin.space.A, A, atol=1e-10)
    np.testing.assert_allclose(lin.space.B, [[0, 0], [0, 0], [20, 1]], atol=1e-12)
    np.testing.assert_allclose(lin.space.C, [[1, 0, 0], [0, 0, 1]], atol=1e-12)
    np.testing.assert_allclose(
        np.sort_complex(jm.analysis.modes(lin).eigenvalues),
        np.sort_complex(np.linalg.eigvals(A)),
        rtol=1e-9,
    )


@pytest.mark.slow
def test_the_integral_of_a_state_counts_where_it_is_read() -> None:
    # A controller with integral action holds the mass where its error vanishes.
    held = jm.System(
        lambda q, v, t, p: v[0] ** 2 / 2,
        force=lambda q, v, t, p: jnp.stack([-0.5 * v[0] - q[0] - 0.2 * q[1] + 0.3]),
        coordinates=("x",), states=("error",), rates=lambda q, v, t, p: 5 * (q[0] - v[1]),
    )  # fmt: skip
    found = jm.analysis.equilibrium(held, [0.1, 0.0])
    np.testing.assert_allclose(found.q, [0.0, 1.5], atol=1e-9)
    np.testing.assert_allclose(found.v, 0.0, atol=1e-12)
    assert "integral of error  1.5" in repr(found)
    assert found.linearization.positions == 2
