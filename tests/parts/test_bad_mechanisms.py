"""Mechanisms that cannot be put together or cannot move: one message that names the part."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.parts import Mechanism, gravity, ground, planar_body, revolute, spatial_body
from jaxmech.parts.joints import Joint

TS = np.linspace(0.0, 0.1, 3)


@pytest.mark.slow
def test_a_loop_without_a_consistent_pose_is_named() -> None:
    crank, coupler = (planar_body(name, mass=1.0, inertia=0.1) for name in ("crank", "coupler"))
    joints = [
        revolute("drive", ground, (0, 0), crank, (0, 0)),
        revolute("knee", crank, (0.1, 0), coupler, (-0.1, 0)),
        revolute("end", coupler, (0.1, 0), ground, (1, 0)),  # 0.3 m of links for a way of 1 m
    ]
    loop = Mechanism([crank, coupler], joints, cut=["end"]).system
    q = jnp.array([0.3, 0.4])
    with pytest.raises(ValueError, match=r"Constraint 'end' cannot be met .* position residual"):
        jm.assemble(loop, q, jnp.zeros(2), 0.0, {})
    with pytest.raises(
        jm.errors.SimulationError, match=r"INCONSISTENT at t = 0 s.*'end' has a position"
    ):
        jm.simulate(loop, q, jnp.zeros(2), TS, {}, steps=jm.FixedSteps(per_save=1))


def hinge(dimension: int) -> Joint:
    if dimension == 2:
        bar = planar_body("bar", mass="m", inertia="J")
        return revolute("hinge", ground, (0, 0), bar, (0.5, 0))
    bar = spatial_body("bar", mass="m", inertia="J")
    return revolute("hinge", ground, (0, 0, 0), bar, (0.5, 0, 0), axis=(0, 1, 0))


def test_a_negative_inertia_in_the_parameters_is_named() -> None:
    joint = hinge(2)
    arm = Mechanism(joint.bodies[1:], [joint], [gravity(9.81)], {"m": 1.0, "J": 2.0})
    params = {"m": 1.0, "J": -2.0}
    with pytest.raises(
        jm.errors.SimulationError, match=r"or a negative one, moves with hinge\.angle"
    ):
        jm.simulate(arm.system, [0.0], [0.0], TS, params, steps=jm.FixedSteps(per_save=1))
