"""M and Q of trees by recursions are those of the Lagrangian, and take fewer operations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp

PARAMS = {"l": 0.4, "m": 1.3, "k": 20.0, "c": 0.3}


def hinge_in_time(name: str, ends: Any, u: Any, w: Any, turn: Any) -> Any:
    """Its point and its axis move on the first body."""
    moved = (ends[0], (lambda t, p: p["l"] * jnp.sin(3 * t), 0, 0.1), *ends[2:])
    axis = (lambda t, p: jnp.cos(t), lambda t, p: jnp.sin(t), 0)
    return jp.revolute(name, *moved, axis=axis, axis_b=w)


# Joints by name, ends, two directions and a quaternion.
JOINTS: dict[str, Callable[..., Any]] = {
    "hinge": lambda name, ends, u, w, turn: jp.revolute(name, *ends, axis=u, axis_b=w),
    "slide": lambda name, ends, u, w, turn: jp.prismatic(name, *ends, axis=u, turn=turn),
    "sleeve": lambda name, ends, u, w, turn: jp.cylindrical(name, *ends, axis=u, axis_b=w),
    "cardan": lambda name, ends, u, w, turn: jp.universal(name, *ends, axis_a=u, axis_b=w),
    "ball": lambda name, ends, u, w, turn: jp.spherical(name, *ends),
    "weld": lambda name, ends, u, w, turn: jp.weld(name, *ends, turn=turn),
    "plane": lambda name, ends, u, w, turn: jp.planar(name, *ends, normal=u, normal_b=w),
    "screw": lambda name, ends, u, w, turn: jp.screw(name, *ends, axis=u, axis_b=w, lead="l"),
    "hinge in time": hinge_in_time,
}


def spatial_tree(seed: int, velocities: Any = "rates") -> jp.Mechanism:
    """Bodies that hang on bodies before them or on the ground by joints of all kinds, one free."""
    draw = np.random.default_rng(seed)

    def vector() -> Any:
        return tuple(draw.normal(size=3))

    def body(name: str) -> Any:
        F = draw.normal(size=(3, 3)) / 5
        second_moments = F @ F.T  # of the mass about its centre
        inertia = np.trace(second_moments) * np.eye(3) - second_moments
        center = (0.1, "l", draw.normal()) if draw.random() < 0.7 else None
        return jp.spatial_body(name, mass="m", inertia=inertia, center=center)

    bodies, joints = [jp.ground, body("free")], []
    for kind in draw.permutation(list(JOINTS)):
        new, old = body(f"after {kind}"), bodies[draw.integers(len(bodies))]
        pair = (new, old) if draw.random() < 0.5 else (old, new)
        ends: tuple[Any, ...] = (pair[0], vector(), pair[1], (0.2, "l", draw.normal()))
        joints.append(JOINTS[kind](str(kind), ends, vector(), vector(), tuple(draw.normal(size=4))))
        bodies.append(new)
    forces = [
        jp.gravity(down=(1, 2, -5)),
        jp.spring("spring", bodies[2], vector(), bodies[-1], vector(), stiffness="k", length="l"),
        jp.joint_spring("closer", "sleeve.angle", stiffness="k", rest=0.5),
        jp.rotor("drive", "cardan.angle_a", lambda t, p: 9 * p["c"]),
    ]
    return jp.Mechanism(bodies[1:], joints, forces, PARAMS, velocities=velocities)


def planar_tree(seed: int) -> jp.Mechanism:
    """A free body and a chain from the ground, in the plane, and a point."""
    draw = np.random.default_rng(seed)
    a, b, c, d = (
        jp.planar_body(name, mass="m", inertia=0.1, center=(0.1, draw.normal())) for name in "abcd"
    )
    joints = [
        jp.prismatic("rail", jp.ground, (0, 0.5), a, (0, "l"), axis=(1, 2), turn=0.3),
        jp.revolute("hinge", b, ("l", 0), a, (0.1, 0.2)),
        jp.prismatic("slide", c, (0.5, 0), b, (0.1, "l"), axis=(0, 1)),
    ]
    forces = [jp.gravity(), jp.spring("s", d, (0, 1), c, (1, 0), stiffness="k", length="l")]
    bob = jp.point_mass("bob", mass="m")
    return jp.Mechanism([a, b, c, d, bob], joints, forces, PARAMS)


def state_of(mechanism: jp.Mechanism, seed: int) -> tuple[Any, ...]:
    """A random state, time and parameters; quaternions have any length."""
    draw = np.random.default_rng(seed)
    q, v = draw.normal(size=(2, mechanism.system.n))
    params = {name: jnp.asarray(value * draw.uniform(0.5, 1.5)) for name, value in PARAMS.items()}
    return jnp.asarray(q), jnp.asarray(v), jnp.asarray(draw.normal()), params


def mass_and_force(system: jm.System, *state: Any) -> tuple[Any, Any]:
    return system.dynamics.mass(*state), system.dynamics.conservative_force(*state)


@pytest.mark.parametrize(
    "made",
    [
        lambda: planar_tree(1),
        pytest.param(lambda: spatial_tree(2), marks=pytest.mark.slow),
    ],
    ids=["planar", "spatial"],
)
def test_mass_and_force_are_those_of_the_lagrangian(made: Any) -> None:
    mechanism = made()
    system = mechanism.system
    by_derivatives = replace(system, mass_and_force=None)
    run = jax.jit(lambda *state: [mass_and_force(s, *state) for s in (system, by_derivatives)])
    for seed in range(3):
        (M, Q), (expected, force) = run(*state_of(mechanism, seed))
        np.testing.assert_allclose(M, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
        np.testing.assert_array_equal(M, M.T)
        np.testing.assert_allclose(Q, force, rtol=1e-12, atol=1e-12 * np.abs(force).max())


def test_a_chain_takes_few_operations() -> None:
    """Those of a law of motion for six bodies whose hinges turn about z, y and x; by derivatives
    they are 2,900."""
    bodies = [
        jp.spatial_body(f"b{k}", mass=1.0, inertia=(0.02, 0.03, 0.04), center=(0.1, 0.02, 0.2))
        for k in range(6)
    ]
    befores = [jp.ground, *bodies]
    joints = [
        jp.revolute(f"j{k}", befores[k], (0.05, 0, 0.4), bodies[k], (0, 0, -0.1), axis=axis)
        for k, axis in enumerate(((0, 0, 1), (0, 1, 0), (1, 0, 0)) * 2)
    ]
    system = jp.Mechanism(bodies, joints, [jp.gravity()]).system

    def run(q: Any, v: Any) -> Any:
        return mass_and_force(system, q, v, jnp.zeros(()), {}), q, v

    x = jnp.ones((8, 6))
    (part,) = jm.compiler.explain(run, x, x).parts
    assert 0 < part.operations < 1000


def test_states_of_first_order_and_wrong_shapes() -> None:
    arm = jp.planar_body("arm", mass=2.0, inertia=0.1)
    pin = jp.revolute("pin", jp.ground, (0, 0), arm, (0, 0.5))
    mechanism = jp.Mechanism(
        [arm], [pin], [jp.gravity()], states=("z",), rates=lambda q, v, t, p: -v[1]
    )
    eom = mechanism.system.equations([0.3, 0.0], [1.0, 2.0])
    np.testing.assert_allclose(eom.M, np.diag([0.6, 1.0]))
    np.testing.assert_allclose(eom.Q, [-9.81 * np.sin(0.3), -2.0], rtol=1e-12)
    wrong = jm.System(
        lambda q, v, t, p: v @ v,
        coordinates=("x", "y"),
        mass_and_force=lambda q, v, t, p: (jnp.eye(3), q),
    )
    with pytest.raises(ValueError, match=r"matrix of `mass_and_force` must have shape \(2, 2\)"):
        wrong.equations([0.0, 0.0], [0.0, 0.0])
