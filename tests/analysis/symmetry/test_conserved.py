"""Conserved quantities of systems whose integrals are known."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.small import SKATE, WIRE


def _body(q: Any, v: Any, t: Any, p: Any) -> Any:
    w = 2 * (q[0] * v[1:] - v[0] * q[1:] - jnp.cross(q[1:], v[1:]))
    return p["J"] @ w**2 / 2 - p["k"] * (q[0] ** 2 - q[1] ** 2 - q[2] ** 2 + q[3] ** 2)


BODY = jm.System(
    _body,
    [jm.Holonomic(lambda q, t, p: (q @ q - 1) / 2, "unit")],
    coordinates=("a", "b", "c", "d"),
)
Q, V = np.array([0.5, 0.5, -0.5, 0.5]), np.array([0.3, 0.1, 0.7, 0.3])


@pytest.mark.parametrize(
    ("J", "k", "count"),
    [
        ([1.0, 2.0, 3.5], 0.0, 4),  # a free body: energy and three angular momenta in space
        ([1.0, 2.0, 3.5], 0.7, 2),  # with weight: energy and that about the vertical
        ([1.0, 1.0, 3.5], 0.7, 3),  # a top: also that about its axis
    ],
)
def test_a_rigid_body_with_a_quaternion(J: list[float], k: float, count: int) -> None:
    found = jm.analysis.conserved(BODY, Q, V, {"J": np.array(J), "k": k})
    assert len(found.quantities) == count
    run = jm.simulate(BODY, Q, V, np.linspace(0.0, 1.0, 5), found.params, steps=jm.FixedSteps(200))
    assert max(found.drift(run).values()) < 1e-8


@pytest.mark.slow
def test_constraints_and_forces_that_do_work_are_accounted_for() -> None:
    """A skate conserves energy, spin and the centre of its circle, not momentum; a wire nothing."""
    found = jm.analysis.conserved(SKATE.system, SKATE.q, SKATE.v, {**SKATE.params, "g": 0.0})
    names = [x.name for x in found.quantities]
    assert names[:2] == ["energy", "momentum of phi"]
    values = found.values([0.7, 0.2, 0.4], SKATE.v)
    np.testing.assert_allclose(values["momentum of phi"], 0.3 * 1.2)
    centre = 0.3 * (0.7 * 1.2 - np.sin(0.4)), 0.3 * (0.2 * 1.2 + np.cos(0.4))
    np.testing.assert_allclose(sorted(map(float, [values[x] for x in names[2:]])), sorted(centre))
    assert not jm.analysis.conserved(WIRE.system, WIRE.q, WIRE.v, WIRE.params).quantities


def test_given_fields() -> None:
    def planet(q: Any, v: Any, t: Any, p: Any) -> Any:
        return v @ v / 2 + 1 / jnp.sqrt(q @ q)

    kepler = jm.System(planet, coordinates=("x", "y"))
    fields = {
        "turn": lambda q, t, p: jnp.stack([-q[1], q[0]]),
        "ahead": lambda q, t, p: jnp.array([1.0, 0.0]),
    }
    found = jm.analysis.conserved(kepler, [1.0, 0.0], [0.0, 1.1], fields=fields)
    assert {x.name: x.is_conserved for x in found.quantities[2:]} == {"turn": True, "ahead": False}
    assert "not conserved" in repr(found)
    with pytest.raises(ValueError, match="must hold functions that return shape"):
        jm.analysis.conserved(kepler, [1.0, 0.0], [0.0, 1.1], fields={"one": lambda q, t, p: q[:1]})


def _heavy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2 - 9810.0 * q[2]


@pytest.mark.slow
@pytest.mark.parametrize("length", [1.0, 1000.0, 1e5])
def test_the_unit_of_length_does_not_matter(length: float) -> None:
    """A spherical pendulum in millimetres conserves its energy and one angular momentum."""
    sphere = jm.Holonomic(lambda q, t, p: (q @ q - p**2) / 2, "sphere")
    pendulum = jm.System(_heavy, [sphere], coordinates=("x", "y", "z"))
    q, v = length * np.array([0.6, 0.0, -0.8]), np.zeros(3)
    found = jm.analysis.conserved(pendulum, q, v, length)
    values = found.values([1.0, 2.0, 3.0], [5.0, 7.0, 9.0])
    energy, momentum = values.values()
    assert energy == (5**2 + 7**2 + 9**2) / 2 + 3 * 9810
    np.testing.assert_allclose(abs(momentum), abs(1 * 7 - 2 * 5), rtol=1e-6)
    assert len(jm.analysis.symmetries(pendulum, q, v, 0.0, length).s) == 2


@pytest.mark.slow
def test_single_precision() -> None:
    q, v = jnp.array([0.6, 0.0, -0.8], jnp.float32), jnp.zeros(3, jnp.float32)
    sphere = jm.Holonomic(lambda q, t, p: (q @ q - 1) / 2, "sphere")
    pendulum = jm.System(_heavy, [sphere], coordinates=("x", "y", "z"))
    turn = {"turn": lambda q, t, p: jnp.stack([-q[1], q[0], 0 * q[2]])}
    found = jm.analysis.conserved(pendulum, q, v, fields=turn)
    names = [x.name for x in found.quantities]
    assert names == ["energy", "momentum of x: y, y: -x", "turn"]
    assert all(x.is_conserved for x in found.quantities)
    assert jm.analysis.symmetries(pendulum, q, v).texts() == ["time: 1", "x: y, y: -x"]
