"""Accelerations by block elimination, against those of dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.sparse.bodies import energy
from jaxmech.sparse.law import accelerations
from jaxmech.sparse.metric import place_at
from jaxmech.sparse.structure import structure_of


def tree() -> jp.Mechanism:
    """Planar bodies and a point mass with hinges, a slider, a rod and a loop closed twice."""
    bodies = [
        jp.planar_body(f"bar{k}", mass=1.0 + 0.2 * k, inertia=f"i{k}", center=(0.1, 0.05))
        for k in range(4)
    ]
    bob = jp.point_mass("bob", mass=0.5)
    a, b, c, d = bodies
    joints = [
        jp.revolute("A", jp.ground, (0, 0), a, (-0.5, 0.0)),
        jp.revolute("B", a, (0.5, 0.1), b, (-0.4, 0.0)),
        jp.revolute("C", a, (0.4, -0.1), c, ("l", 0.0)),
        jp.prismatic("D", b, (0, 0), d, (0, 0), axis=(1, 0.2)),
        jp.distance("rod", d, (0.1, 0.2), bob, (0, 0), length=0.8),
        jp.distance("loop", c, (0.2, 0), bob, (0, 0), length=0.7),
        jp.distance("again", bob, (0, 0), c, (0.2, 0), length=0.7),
    ]
    forces = [
        jp.gravity("g"),
        jp.spring("spring", a, (0, 0), d, (0.1, 0.0), stiffness="k", length=0.3),
        jp.spring("other", b, (0, 0), c, (0.0, 0.2), stiffness=3.0, length=0.2),
        jp.torsion_damper("damper", a, b, damping=0.3),
        jp.applied_force("push", bob, (0, 0), (lambda t, p: p["g"] * t, 0.5)),
        lambda q, v, t, p: -0.1 * v,
    ]
    params = {"l": -0.3, "g": 9.81, "k": 7.0} | {f"i{k}": 0.1 + 0.02 * k for k in range(4)}
    return jp.Mechanism([*bodies, bob], joints, forces, params, coordinates="bodies")


def loop_in_space() -> jp.Mechanism:
    """Two bodies in space and a point, a hinge that turns with time, a ball joint and a rod."""
    a, b = (
        jp.spatial_body(name, mass=2.0, inertia=(0.02, 0.03, 0.04), center=(0.1, 0.05, 0.2))
        for name in "ab"
    )
    bob = jp.point_mass("bob", mass=0.5, dimension=3)
    joints = [
        jp.revolute("A", jp.ground, (0, 0, 0), a, (-0.5, 0, 0), axis=(0, 0, 1)),
        jp.given_angle("drive", jp.ground, a, lambda t, p: p["w"] * t**2, axis=(0, 0, 1)),
        jp.spherical("B", a, (0.5, 0, 0), b, (0, 0.1, 0)),
        jp.distance("rod", b, (0.1, 0.2, 0), bob, (0, 0, 0), length=0.8),
    ]
    forces = [jp.gravity()]
    return jp.Mechanism([a, b, bob], joints, forces, {"w": 0.7}, coordinates="bodies")


@pytest.mark.slow
@pytest.mark.parametrize("make", [tree, loop_in_space])
def test_accelerations_are_those_of_dense_matrices(make) -> None:
    mechanism = make()
    system, params = mechanism.system, dict(mechanism.params)
    draw = np.random.default_rng(3)
    q, v = draw.normal(size=(2, system.n))
    for norm in mechanism.kinematics.norms:
        e = q[norm.first : norm.first + 4]
        e /= np.linalg.norm(e)
    structure = structure_of(system)
    state = *map(jnp.asarray, (q, v, 0.3)), params

    @jax.jit
    def found(q, v, t, params):
        place = place_at(structure, q, v, t, params)
        return accelerations(place, q, v, t, params), energy(structure, q, v, t, params)

    law, total = found(*state)
    expected = jm.acceleration(system, *state)
    np.testing.assert_allclose(law.qdd, expected.qdd, rtol=1e-10, atol=1e-10)
    assert law.rank == expected.rank
    assert law.definite
    np.testing.assert_allclose(total, system.energy(*state), rtol=1e-12)
