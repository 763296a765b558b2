"""Batches of closed linkages in space, beside MuJoCo: a slider-crank and Bricard's linkage.

    python -m experiments.linkages [--json FILE]

A spatial slider-crank (Haug 1989; a loop with a ball and a Cardan joint) and Bricard's linkage (six
hinges, overconstrained, with one freedom), made of parts in the coordinates of joints. RK4 steps of
1 ms in float64, for jaxmech with its default projection, for MuJoCo with `connect` equalities and
its default solver. Times are CPU time of all threads for a step of one trajectory. Gaps are the
largest distances [m] between the points that a loop should hold together, and the difference is
that of the angles of the first hinge, at the end: MuJoCo's loops are soft, and its springs act on
the motion. MuJoCo is skipped with a word where it is not installed.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

import jaxmech as jm
from experiments.measuring import quaternion_of, rollout, shortest, words, write
from experiments.mechanisms import operations_of, starts_of
from jaxmech import parts as jp

STEP, STEPS, BATCH = 1e-3, 200, 1024
CORNERS = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1.0]])
X, Y, Z = np.eye(3)
AXES = (Y, Z, X, Y, Z, X)  # of the hinges of Bricard's linkage
CRANK, ROD = 0.08, 0.3  # [m]
SHAFT, SLIDE = np.array([0.0, 0.1, 0.12]), np.array([0.2, 0.0, 0.0])
PIN = SHAFT + np.array([0.0, 0.0, CRANK])

Built = tuple[jp.Mechanism, dict[str, jp.Start]]


@dataclass(frozen=True)
class Linkage:
    """A linkage of parts, the same for MuJoCo, and its start there."""

    make: Callable[[], Built]
    xml: str
    qpos: tuple[float, ...]


def _inertial(mass: float, moments: Any, center: Any = (0, 0, 0)) -> str:
    return f'<inertial pos="{words(center)}" mass="{mass}" diaginertia="{words(moments)}"/>'


def _model(bodies: str, equalities: str, gravity: str) -> str:
    """A model with loops alone: no contacts and no limits."""
    flags = '<flag contact="disable" limit="disable"/>'
    option = f'<option integrator="RK4" timestep="{STEP}" gravity="{gravity}">{flags}</option>'
    loops = f"<equality>{equalities}</equality>"
    return f"<mujoco>{option}<worldbody>{bodies}</worldbody>{loops}</mujoco>"


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


def mujoco_slider_crank() -> str:
    """A slider that carries the rod on a Cardan joint, whose end is tied to the crank."""
    turn = rod_rotation()
    mass = _inertial(0.5, (4e-3, 4e-4, 4e-3), (0, ROD / 2, 0))
    rod = (
        f'<body name="rod" quat="{words(quaternion_of(turn))}">{mass}'
        f'<joint type="hinge" axis="{words(turn.inv().apply(Z))}"/>'
        f'<joint type="hinge" axis="1 0 0"/></body>'
    )
    crank = (
        f'<body name="crank" pos="{words(SHAFT)}">{_inertial(0.12, (1e-4, 1e-5, 1e-4))}'
        '<joint type="hinge" axis="1 0 0"/></body>'
    )
    slider = (
        f'<body name="slider" pos="{words(SLIDE)}">{_inertial(2.0, (1e-4,) * 3)}'
        f'<joint type="slide" axis="1 0 0"/>{rod}</body>'
    )
    tie = f'<connect body1="crank" body2="rod" anchor="0 0 {CRANK}"/>'
    return _model(crank + slider, tie, "0 0 -9.81")


def mujoco_bricard() -> str:
    """A chain of five rods along the edges of a cube, whose last end is tied in two points."""
    text, close, before = "", "", np.zeros(3)
    for k, (a, b) in enumerate(pairwise(CORNERS)):
        moments = np.where(np.abs(b - a) > 0.5, 1e-3, 1.0) / 12
        text += f'<body name="rod{k}" pos="{words(a - before)}">'
        text += _inertial(1.0, moments, (b - a) / 2)
        text += f'<joint type="hinge" axis="{words(AXES[k])}"/>'
        close, before = close + "</body>", a
    way = CORNERS[5] - CORNERS[4]
    ties = "".join(
        f'<connect body1="rod4" body2="world" anchor="{words(way + shift * AXES[5])}"/>'
        for shift in (-0.1, 0.1)
    )
    return _model(text + close, ties, "0 -9.81 0")


LINKAGES = {
    "slider-crank": Linkage(slider_crank, mujoco_slider_crank(), (0,) * 4),
    "Bricard": Linkage(bricard, mujoco_bricard(), (0,) * 5),
}


def measured(linkage: Linkage) -> dict[str, Any]:
    """The figures of jaxmech, and those of MuJoCo if it is installed."""
    bodies, starts = linkage.make()
    params = dict(bodies.params)
    joints = replace(bodies, coordinates="joints")
    state = jm.assemble(bodies.system, *bodies.guess(starts), 0.0, params)
    moving = bodies.kinematics.moving(bodies.bodies, *state, jnp.zeros(()), params)
    guess = joints.guess(starts_of(bodies, moving))
    begun = time.process_time()
    q, v = jm.assemble(joints.system, *guess, 0.0, params)

    def run(q: Any, v: Any) -> Any:
        ts = jnp.asarray([0.0, STEP * STEPS])
        return jm.simulate(joints.system, q, v, ts, params, steps=jm.FixedSteps(per_save=STEPS))

    batch = jax.jit(jax.vmap(run))
    many = jnp.tile(q, (BATCH, 1)), jnp.tile(v, (BATCH, 1))
    sol = jax.block_until_ready(batch(*many))
    called = time.process_time()
    seconds = shortest(lambda: batch(*many).q)
    row = {
        "coordinates": joints.system.n,
        "operations": operations_of(jm.compiler.explain(run, *many)),
        "first calls of assemble and the batch [CPU s]": round(called - begun, 2),
        "batch [CPU us/step]": seconds / STEPS / BATCH * 1e6,
        "gap": float(sol.position_residual.max()),
        "status": int(sol.status.max()),
    }
    try:
        theirs = peer(linkage, float(v[0]), float(sol.q[0, -1, 0]))
    except ImportError as error:
        return row | {"MuJoCo skipped": str(error)}
    ratio = theirs["rollout [CPU us/step]"] / row["batch [CPU us/step]"]
    return row | theirs | {"ratio": round(ratio, 2)}


def peer(linkage: Linkage, speed: float, angle: float) -> dict[str, Any]:
    """MuJoCo's rollout of a batch on two threads, from a speed of the first hinge to an angle."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(linkage.xml)
    # A consistent start: MuJoCo's velocities of the loop, from those of its first joint.
    data = mujoco.MjData(model)
    data.qpos[:] = linkage.qpos
    mujoco.mj_forward(model, data)
    J = data.efc_J.reshape(-1, model.nv)
    others = np.linalg.lstsq(J[:, 1:], -J[:, 0] * speed, rcond=1e-10)[0]
    start = np.tile([*linkage.qpos, speed, *others], (BATCH, 1))
    seconds, last = rollout(model, start, STEPS)
    data.qpos[:] = last[0, : model.nq]
    mujoco.mj_forward(model, data)
    return {
        "rollout [CPU us/step]": seconds / STEPS / BATCH * 1e6,
        "difference [rad]": abs(float(data.qpos[0]) - angle),
        "gap of MuJoCo": float(np.abs(data.efc_pos[: data.ne]).max()),
    }


def main() -> None:
    """Measure both linkages and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = {}
    for name, linkage in LINKAGES.items():
        rows[name] = measured(linkage)
        print(name, json.dumps(rows[name]), flush=True)
    write(options.json, rows=rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
