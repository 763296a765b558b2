"""Closed linkages in space, made of parts: a slider-crank and Bricard's linkage."""

from itertools import pairwise

import numpy as np
from scipy.spatial.transform import Rotation

from experiments.measuring import quaternion_of
from jaxmech import parts as jp

CORNERS = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1.0]])
X, Y, Z = np.eye(3)
AXES = (Y, Z, X, Y, Z, X)  # of the hinges of Bricard's linkage
CRANK, ROD = 0.08, 0.3  # [m]
SHAFT, SLIDE = np.array([0.0, 0.1, 0.12]), np.array([0.2, 0.0, 0.0])
PIN = SHAFT + np.array([0.0, 0.0, CRANK])

Built = tuple[jp.Mechanism, dict[str, jp.Start]]


def bricard() -> Built:
    """Problem A03 of the IFToMM library: five rods along the edges of a cube, and the ground."""
    rods, starts = [], {}
    for k, (a, b) in enumerate(pairwise(CORNERS)):
        inertia = tuple(np.where(np.abs(b - a) > 0.5, 1e-3, 1.0) / 12)
        rods.append(jp.spatial_body(f"rod{k}", mass=1.0, inertia=inertia))
        starts[f"rod{k}"] = jp.Start((a + b) / 2)
    halves = np.diff(CORNERS, axis=0) / 2
    joints = [jp.revolute("hinge0", jp.ground, CORNERS[0], rods[0], -halves[0], axis=AXES[0])]
    for k in range(1, 5):
        ends = rods[k - 1], halves[k - 1], rods[k], -halves[k]
        joints.append(jp.revolute(f"hinge{k}", *ends, axis=AXES[k]))
    joints.append(jp.revolute("hinge5", jp.ground, CORNERS[5], rods[4], halves[4], axis=AXES[5]))
    weight = jp.gravity(down=(0, -1, 0))
    return jp.Mechanism(rods, joints, [weight], coordinates="bodies"), starts


def rod_rotation() -> Rotation:
    """How the rod of the slider-crank is turned, whose y is along it and z across the guide."""
    along = (PIN - SLIDE) / np.linalg.norm(PIN - SLIDE)
    arm = np.cross(along, Z) / np.linalg.norm(np.cross(along, Z))
    return Rotation.from_matrix(np.stack([arm, along, np.cross(arm, along)], axis=1))


def slider_crank() -> Built:
    """The slider-crank of Haug 1989: a crank about x, a rod, and a slider along x."""
    crank = jp.spatial_body("crank", mass=0.12, inertia=(1e-4, 1e-5, 1e-4))
    rod = jp.spatial_body("rod", mass=0.5, inertia=(4e-3, 4e-4, 4e-3))
    slider = jp.spatial_body("slider", mass=2.0, inertia=(1e-4, 1e-4, 1e-4))
    o, half = (0, 0, 0), ROD / 2
    joints = [
        jp.revolute("shaft", jp.ground, SHAFT, crank, o, axis=X),
        jp.spherical("ball", crank, (0, 0, CRANK), rod, (0, half, 0)),
        jp.universal("cross", slider, o, rod, (0, -half, 0), axis_a=Z, axis_b=X),
        jp.prismatic("guide", jp.ground, o, slider, o, axis=X),
    ]
    starts = {
        "crank": jp.Start(SHAFT, spin=(6.0, 0, 0)),
        "rod": jp.Start((SLIDE + PIN) / 2, attitude=quaternion_of(rod_rotation())),
        "slider": jp.Start(SLIDE),
    }
    bodies = [crank, rod, slider]
    return jp.Mechanism(bodies, joints, [jp.gravity()], coordinates="bodies"), starts
