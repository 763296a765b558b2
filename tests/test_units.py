"""Units of coordinates: where they are stated, and where they are shown."""

import jax
import jax.numpy as jnp
import pytest

import jaxmech as jm

TS = jnp.linspace(0.0, 0.2, 5)


def spring() -> jm.System:
    def lagrangian(q, v, t, p):
        return (v[:2] @ v[:2] - q @ q) / 2

    return jm.System(
        lagrangian,
        coordinates={"x": "m", "turn": "rad"},
        states={"current": "A"},
        rates=lambda q, v, t, p: -v[2:],
    )


def swing(x: float) -> jm.Solution:
    q0, v0 = jnp.array([1.0, 0.2, 0.0]), jnp.array([0.0, 0.0, 1.0])
    return jm.simulate(spring(), q0 * x, v0, TS, steps=jm.FixedSteps(4))


def test_units_follow_the_names_through_a_batch() -> None:
    sol = jax.vmap(swing)(jnp.array([1.0, 2.0]))
    assert sol.names == ("x", "turn", "x.rate", "turn.rate", "current")
    assert [sol.unit(name) for name in sol.names] == ["m", "rad", "m/s", "rad/s", "A"]


def test_units_in_tables() -> None:
    pytest.importorskip("xarray")
    pytest.importorskip("pandas")
    sol = swing(1.0)
    data = sol.to_xarray()
    assert data["turn.rate"].attrs["units"] == "rad/s"
    assert data["energy"].attrs["units"] == "J"


def test_coordinates_of_joints_have_units() -> None:
    from jaxmech.parts import ground, planar_body, revolute

    bar = planar_body("bar", mass=1.0, inertia=1.0)
    crank = jm.parts.Mechanism([bar], [revolute("hinge", ground, (0, 0), bar, (-1, 0))])
    assert crank.system.unit("hinge.angle") == "rad"
    bars = jm.parts.Mechanism([bar], coordinates="bodies").system
    assert [bars.unit(name) for name in bars.coordinates] == ["m", "m", "rad"]
