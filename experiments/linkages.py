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

import jaxmech as jm
from experiments.mechanism_peers import shortest
from jaxmech import parts as jp
from jaxmech.config.environment import environment
from tests.parts.bricard import bricard
from tests.parts.mechanisms import Built, slider_crank

STEP, STEPS, BATCH = 1e-3, 200, 1024


@dataclass(frozen=True)
class Linkage:
    """A linkage of parts, the same for MuJoCo, and its start there."""

    make: Callable[[], Built]
    xml: str
    qpos: tuple[float, ...]
    qvel: tuple[float, ...]


def _words(numbers: Any) -> str:
    return " ".join(f"{x:.17g}" for x in np.ravel(numbers))


def _inertial(mass: float, moments: Any, center: Any = (0, 0, 0)) -> str:
    return f'<inertial pos="{_words(center)}" mass="{mass}" diaginertia="{_words(moments)}"/>'


def _model(bodies: str, equalities: str, gravity: str) -> str:
    """A model with loops alone: no contacts and no limits."""
    flags = '<flag contact="disable" limit="disable"/>'
    option = f'<option integrator="RK4" timestep="{STEP}" gravity="{gravity}">{flags}</option>'
    loops = f"<equality>{equalities}</equality>"
    return f"<mujoco>{option}<worldbody>{bodies}</worldbody>{loops}</mujoco>"


def mujoco_slider_crank() -> str:
    """A slider that carries the rod on a Cardan joint, whose end is tied to the crank."""
    _, starts = slider_crank()
    slide = np.array(starts["slider"].position)
    w, x, y, z = np.asarray(starts["rod"].attitude)
    along = np.array([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)])
    mass = _inertial(0.5, (4e-3, 4e-4, 4e-3), (0, 0.15, 0))
    rod = (
        f'<body name="rod" quat="{_words((w, x, y, z))}">{mass}'
        f'<joint type="hinge" axis="{_words(_in_rod((w, x, y, z), (0, 0, 1)))}"/>'
        f'<joint type="hinge" axis="1 0 0"/></body>'
    )
    crank = (
        f'<body name="crank" pos="0 0.1 0.12">{_inertial(0.12, (1e-4, 1e-5, 1e-4))}'
        '<joint type="hinge" axis="1 0 0"/></body>'
    )
    slider = (
        f'<body name="slider" pos="{_words(slide)}">{_inertial(2.0, (1e-4,) * 3)}'
        f'<joint type="slide" axis="1 0 0"/>{rod}</body>'
    )
    assert np.allclose(slide + 0.3 * along, (0, 0.1, 0.2))  # the pin of the crank
    tie = '<connect body1="crank" body2="rod" anchor="0 0 0.08"/>'
    return _model(crank + slider, tie, "0 0 -9.81")


def _in_rod(quaternion: Any, direction: Any) -> np.ndarray:
    """A direction in space along the axes of a body with this attitude."""
    w, u = quaternion[0], -np.asarray(quaternion[1:])
    d = np.asarray(direction, float)
    return d + 2 * np.cross(u, np.cross(u, d) + w * d)


def mujoco_bricard() -> str:
    """A chain of five rods along the edges of a cube, whose last end is tied in two points."""
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1.0]])
    x, y, z = np.eye(3)
    axes = [y, z, x, y, z, x]
    text, close, before = "", "", np.zeros(3)
    for k, (a, b) in enumerate(pairwise(corners)):
        moments = np.where(np.abs(b - a) > 0.5, 1e-3, 1.0) / 12
        text += f'<body name="rod{k}" pos="{_words(a - before)}">'
        text += _inertial(1.0, moments, (b - a) / 2)
        text += f'<joint type="hinge" axis="{_words(axes[k])}"/>'
        close, before = close + "</body>", a
    way = corners[5] - corners[4]
    ties = "".join(
        f'<connect body1="rod4" body2="world" anchor="{_words(way + shift * axes[5])}"/>'
        for shift in (-0.1, 0.1)
    )
    return _model(text + close, ties, "0 -9.81 0")


LINKAGES = {
    "slider-crank": Linkage(slider_crank, mujoco_slider_crank(), (0,) * 4, (6.0, 0, 0, 0)),
    "Bricard": Linkage(bricard, mujoco_bricard(), (0,) * 5, (0,) * 5),
}


def measured(linkage: Linkage) -> dict[str, Any]:
    """The figures of jaxmech, and those of MuJoCo if it is installed."""
    bodies, starts = linkage.make()
    params = dict(bodies.params)
    joints = replace(bodies, coordinates="joints")
    state = jm.assemble(bodies.system, *bodies.guess(starts), 0.0, params)
    moving = bodies.kinematics.moving(bodies.bodies, *state, jnp.zeros(()), params)
    starts = {
        body.name: jp.Start(m.frame.origin, m.frame.attitude, m.velocity, m.spin)
        for body, m in zip(bodies.bodies, moving, strict=True)
    }
    guess = joints.guess(starts)
    begun = time.process_time()
    q, v = jm.assemble(joints.system, *guess, 0.0, params)

    def run(q: Any, v: Any) -> Any:
        ts = jnp.asarray([0.0, STEP * STEPS])
        return jm.simulate(joints.system, q, v, ts, params, steps=jm.FixedSteps(per_save=STEPS))

    batch = jax.jit(jax.vmap(run))
    many = jnp.tile(q, (BATCH, 1)), jnp.tile(v, (BATCH, 1))
    sol = jax.block_until_ready(batch(*many))
    called = time.process_time()
    loops = [part.kept for part in jm.compiler.explain(run, *many).parts if part.kept]
    seconds = shortest(lambda: batch(*many).q, clock=time.process_time)
    row = {
        "coordinates": joints.system.n,
        "operations": max(loops, default=None),
        "first calls of assemble and the batch [CPU s]": round(called - begun, 2),
        "batch [CPU us/step]": seconds / STEPS / BATCH * 1e6,
        "gap": float(sol.position_residual.max()),
        "status": int(sol.status.max()),
    }
    try:
        theirs = rollout(linkage, float(sol.q[0, -1, 0]))
    except ImportError as error:
        return row | {"MuJoCo skipped": str(error)}
    ratio = theirs["rollout [CPU us/step]"] / row["batch [CPU us/step]"]
    return row | theirs | {"ratio": round(ratio, 2)}


def rollout(linkage: Linkage, angle: float) -> dict[str, Any]:
    """MuJoCo's rollout of a batch on two threads; `angle` is the final one of the first hinge."""
    import mujoco
    from mujoco.rollout import Rollout

    model = mujoco.MjModel.from_xml_string(linkage.xml)
    start = np.tile(np.concatenate([[0.0], linkage.qpos, linkage.qvel]), (BATCH, 1))
    workers = [mujoco.MjData(model) for _ in range(2)]
    # A consistent start: MuJoCo's velocities of the loop, from those of its first joint.
    data = workers[0]
    data.qpos[:], data.qvel[:] = linkage.qpos, linkage.qvel
    mujoco.mj_forward(model, data)
    J = data.efc_J.reshape(-1, model.nv)
    rest = -J[:, 0] * linkage.qvel[0]
    qvel = np.concatenate([[linkage.qvel[0]], np.linalg.lstsq(J[:, 1:], rest, rcond=1e-10)[0]])
    start[:, 1 + model.nq :] = qvel
    with Rollout(nthread=len(workers)) as pool:
        seconds = shortest(
            lambda: pool.rollout(model, workers, start, nstep=STEPS), clock=time.process_time
        )
        states, _ = pool.rollout(model, workers, start, nstep=STEPS)
    data.qpos[:] = states[0, -1, 1 : 1 + model.nq]
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
    if options.json:
        report = {"rows": rows, "environment": environment()}
        options.json.write_text(json.dumps(report, indent=1, default=str) + "\n")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
