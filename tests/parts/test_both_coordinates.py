"""Motions and the loads of joints, in the coordinates of joints as in those of bodies.

Those of trees are compared in single states, in `test_joint_coordinates`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from tests.parts.mechanisms import Built, four_bar_in_space


def open_four_bar() -> Built:
    """A four-bar without a parallel position, where its loads are unique."""
    crank, rod, rocker = (jp.planar_body(n, mass=1.0, inertia=0.02) for n in ("c", "r", "s"))
    joints = [
        jp.revolute("A", jp.ground, (0, 0), crank, (-0.1, 0)),
        jp.revolute("B", crank, (0.1, 0), rod, (-0.25, 0)),
        jp.revolute("C", rod, (0.25, 0), rocker, (0.2, 0)),
        jp.revolute("D", rocker, (-0.2, 0), jp.ground, (0.5, 0)),
    ]
    forces = [jp.gravity(), jp.torsion_damper("oil", jp.ground, crank, damping=0.02)]
    reach, lift = 0.5, np.array([0.0, 0.2])  # from the end of the crank to that of the rocker
    tip = np.array([0.5, 0.0]) + 0.4 * np.array([np.cos(1.4), np.sin(1.4)])
    along = (tip - lift) / np.linalg.norm(tip - lift) * reach / 2
    starts = {
        "c": jp.Start(lift / 2, np.pi / 2, (-0.3, 0.0), 3.0),
        "r": jp.Start(lift + along, np.arctan2(*along[::-1])),
        "s": jp.Start((tip + np.array([0.5, 0.0])) / 2, 1.4),
    }
    mechanism = jp.Mechanism([crank, rod, rocker], joints, forces, coordinates="bodies")
    return mechanism, starts


def slides_in_a_loop() -> Built:
    """An elliptic trammel: a rod whose ends are carried by slides on two crossed rails."""
    across, up, rod = (
        jp.planar_body(name, mass=m, inertia=0.03)
        for name, m in (("across", 0.5), ("up", 0.7), ("rod", 1.0))
    )
    joints = [
        jp.prismatic("floor", jp.ground, (0, 0), across, (0, 0), axis=(1, 0)),
        jp.prismatic("wall", jp.ground, (0, 0), up, (0, 0), axis=(0, 1)),
        jp.revolute("A", across, (0, 0), rod, (-0.5, 0)),
        jp.revolute("B", up, (0, 0), rod, (0.5, 0)),
    ]
    forces = [
        jp.gravity(),
        jp.spring("s", up, (0, 0), jp.ground, (0, 2), stiffness=20.0, length=0.5),
    ]
    starts = {
        "across": jp.Start((0.6, 0)),
        "up": jp.Start((0, 0.8)),
        "rod": jp.Start((0.3, 0.4), np.arctan2(0.8, -0.6)),
    }
    return jp.Mechanism([across, up, rod], joints, forces, coordinates="bodies"), starts


def disk_with_arm() -> Built:
    """A disk that rolls on a line, with an arm on its axle."""
    disk = jp.planar_body("disk", mass=1.0, inertia=0.02)
    arm = jp.planar_body("arm", mass=0.6, inertia=0.03)
    joints = [
        jp.rolling_disk("floor", jp.ground, (0, 0), disk, (0, 0), normal=(0, 1), radius=0.2),
        jp.revolute("axle", disk, (0, 0), arm, (0, 0.3)),
    ]
    starts = {
        "disk": jp.Start((0, 0.2), velocity=(0.4, 0), spin=-2.0),
        "arm": jp.Start((0.0, -0.1), velocity=(0.4, 0)),
    }
    return jp.Mechanism([disk, arm], joints, [jp.gravity()], coordinates="bodies"), starts


def assembled(mechanism: jp.Mechanism, starts: Any) -> dict[str, jp.Start]:
    """Consistent starts of the bodies."""
    params, t = dict(mechanism.params), jnp.zeros(())
    state = jm.assemble(mechanism.system, *mechanism.guess(starts), t, params)
    moving = mechanism.kinematics.moving(mechanism.bodies, *state, t, params)
    return {
        body.name: jp.Start(m.frame.origin, m.frame.attitude, m.velocity, m.spin)
        for body, m in zip(mechanism.bodies, moving, strict=True)
    }


END = 5.0  # [s]
STEP = 2.5e-4  # [s], so that errors of the integration are below the tolerance


def observed_motion(mechanism: jp.Mechanism, starts: Any) -> tuple[Any, Any, Any]:
    """The positions and attitudes of all bodies along a motion, the loads and the ranks."""
    params = dict(mechanism.params)
    q, v = mechanism.guess(starts)
    ts = jnp.linspace(0.0, END, 5)
    steps = round(END / 4 / STEP)
    sol = jm.simulate(mechanism.system, q, v, ts, params, steps=jm.FixedSteps(steps))
    observed = jm.observe(mechanism.system, sol, params)

    def poses(q: Any, t: Any) -> Any:
        frames = mechanism.kinematics.frames(mechanism.bodies, q, t, params)
        return [(frame.origin, frame.axes) for frame in frames]

    return jax.vmap(poses)(sol.q, ts), observed.loads, observed.rank


@pytest.mark.parametrize(
    ("make", "has_unique_loads"),
    [
        (open_four_bar, True),
        pytest.param(slides_in_a_loop, True, marks=pytest.mark.slow),
        pytest.param(disk_with_arm, True, marks=pytest.mark.slow),
        pytest.param(four_bar_in_space, False, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_motions_and_loads(make: Callable[[], Built], has_unique_loads: bool) -> None:
    bodies, guess = make()
    starts = assembled(bodies, guess)
    joints = replace(bodies, coordinates="joints")
    assert joints.system.n < bodies.system.n
    poses, loads, ranks = observed_motion(joints, starts)
    expected, expected_loads, body_ranks = observed_motion(bodies, starts)
    freedoms = joints.system.n - len(joints.kinematics.norms) - ranks
    for a, b in zip(jax.tree.leaves(poses), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert set(loads) == set(expected_loads)
    if has_unique_loads:
        for name, pair in loads.items():
            for a, b in zip(pair, expected_loads[name], strict=True):
                np.testing.assert_allclose(a, b, atol=1e-7, err_msg=name)
    assert (freedoms == freedoms[0]).all()
    assert body_ranks[0] > ranks[0]
