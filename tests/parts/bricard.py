"""Bricard's linkage: overconstrained, but it moves."""

from itertools import pairwise

import numpy as np

from jaxmech import parts as jp
from tests.parts.mechanisms import Built


def bricard() -> Built:
    """Problem A03 of the IFToMM library: five rods along the edges of a cube, and the ground.

    Every hinge is at right angles to both of its rods.
    """
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1.0]])
    x, y, z = np.eye(3)
    axes = [y, z, x, y, z, x]
    rods, starts = [], {}
    for k, (a, b) in enumerate(pairwise(corners)):
        inertia = tuple(np.where(np.abs(b - a) > 0.5, 1e-3, 1.0) / 12)
        rods.append(jp.spatial_body(f"rod{k}", mass=1.0, inertia=inertia))
        starts[f"rod{k}"] = jp.Start((a + b) / 2)
    halves = np.diff(corners, axis=0) / 2
    joints = [jp.revolute("hinge0", jp.ground, corners[0], rods[0], -halves[0], axis=axes[0])]
    for k in range(1, 5):
        ends = rods[k - 1], halves[k - 1], rods[k], -halves[k]
        joints.append(jp.revolute(f"hinge{k}", *ends, axis=axes[k]))
    joints.append(jp.revolute("hinge5", jp.ground, corners[5], rods[4], halves[4], axis=axes[5]))
    return jp.Mechanism(
        rods, joints, [jp.gravity(9.81, down=(0, -1, 0))], coordinates="bodies"
    ), starts
