"""Chains of spatial bodies with hinges: first calls, operations and speed, beside MuJoCo.

    python -m experiments.mechanisms [--bodies 1 3 6] [--coordinates joints] [--json FILE]

Every row is measured in a process of its own, in float64, with RK4 steps of 1 ms from the same
initial state. Times are CPU time, those of a batch the sum over all threads for a step of one
trajectory; operations are those of a step, on scalars, as the compiler counts them. The columns of
MuJoCo are empty where it is not installed; the last one is the largest difference of the final
angles.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.measuring import (
    in_a_process,
    rollout,
    table_head,
    table_row,
    timed,
    words,
    write,
)
from jaxmech import parts as jp

BODIES = (1, 2, 3, 5, 8, 12, 20)
STEP = 1e-3  # [s]
STEPS, BATCH = 200, 1024
AXES = ((0, 0, 1), (0, 1, 0), (1, 0, 0))
HERE, END, CENTER, INERTIA = (0, 0, -0.1), (0.05, 0, 0.4), (0.1, 0.02, 0.2), (0.02, 0.03, 0.04)
HEAD = ("bodies", "coordinates", "n", "operations", "assemble [CPU s]", "simulate [CPU s]",
        "single [us/step]", "batch [us/step]", "MuJoCo step [us]", "rollout [us/step]",
        "difference")  # fmt: skip


@dataclass(frozen=True)
class Chain:
    """Masses, the axes of the hinges, and the numbers that all bodies share."""

    masses: Sequence[float]  # [kg]
    axes: Sequence[tuple[int, int, int]]
    inertia: tuple[float, float, float]  # about the centre of mass [kg m^2]
    center: np.ndarray  # from the hinge of a body to its centre of mass [m]
    way: np.ndarray  # from the hinge of a body to the next one [m]

    def xml(self, step: float) -> str:
        """The chain for MuJoCo."""
        text, close = "", ""
        for k, (mass, axis) in enumerate(zip(self.masses, self.axes, strict=True)):
            text += (
                f'<body pos="{words(self.way if k else (0, 0, 0))}">'
                f'<inertial pos="{words(self.center)}" mass="{mass}" '
                f'diaginertia="{words(self.inertia)}"/>'
                f'<joint type="hinge" axis="{words(axis)}"/>'
            )
            close += "</body>"
        option = f'<option integrator="RK4" timestep="{step}" gravity="0 0 -9.81">'
        flags = '<flag contact="disable" constraint="disable" limit="disable"/></option>'
        return f"<mujoco>{option}{flags}<worldbody>{text}{close}</worldbody></mujoco>"


def state(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Joint angles and rates, (n,) each."""
    return np.linspace(0.3, 0.9, n), np.linspace(1.0, -1.0, n)


def chain(n: int, coordinates: str) -> Any:
    """A chain of n bodies whose hinges turn about z, y and x of the body before, and so on."""
    bodies = [
        jp.spatial_body(f"b{k}", mass=1 + 0.1 * k, inertia=INERTIA, center=CENTER) for k in range(n)
    ]
    joints = [
        jp.revolute(
            f"j{k}", bodies[k - 1] if k else jp.ground, END if k else (0, 0, 0), bodies[k], HERE,
            axis=AXES[k % 3],
        )
        for k in range(n)
    ]  # fmt: skip
    return jp.Mechanism(bodies, joints, [jp.gravity()], coordinates=coordinates)


def peer_chain(n: int) -> Chain:
    """The same chain for MuJoCo, whose bodies have their origins in their hinges."""
    return Chain(
        masses=[1 + 0.1 * k for k in range(n)],
        axes=[AXES[k % 3] for k in range(n)],
        inertia=INERTIA,
        center=np.subtract(CENTER, HERE),
        way=np.subtract(END, HERE),
    )


def measured(n: int, coordinates: str) -> dict[str, Any]:
    """A row: the figures of jaxmech, and those of MuJoCo if it is installed."""
    mechanism, (angles, rates) = chain(n, coordinates), state(n)
    system, params = mechanism.system, dict(mechanism.params)
    starts = {f"j{k}": jp.Start(angles[k], velocity=rates[k]) for k in range(n)}
    if coordinates == "bodies":
        starts = poses(chain(n, "joints"), starts)
    guess = mechanism.guess(starts)
    assembled = timed(lambda: jm.assemble(system, *guess, 0.0, params), 0)
    q, v = assembled.result

    def run(q: Any, v: Any) -> Any:
        ts = jnp.asarray([0.0, STEP * STEPS])
        sol = jm.simulate(system, q, v, ts, params, steps=jm.FixedSteps(STEPS))
        return sol.q[-1], sol.v[-1]

    single, batch = jax.jit(run), jax.jit(jax.vmap(run))
    many = (jnp.tile(q, (BATCH, 1)), jnp.tile(v, (BATCH, 1)))
    alone = timed(lambda: single(q, v))
    figures = {
        "bodies": n,
        "coordinates": coordinates,
        "n": system.n,
        "operations": operations_of(jm.compiler.explain(run, *many)),
        "assemble [CPU s]": round(assembled.first, 2),
        "simulate [CPU s]": round(alone.first, 2),
        "single [us/step]": alone.best / STEPS * 1e6,
        "batch [us/step]": timed(lambda: batch(*many)).best / STEPS / BATCH * 1e6,
    }
    final, _ = alone.result
    if coordinates == "bodies":
        joints = chain(n, "joints")
        moving = mechanism.kinematics.moving(mechanism.bodies, *alone.result, jnp.zeros(()), params)
        final = joints.guess(starts_of(mechanism, moving))[0]
    try:
        return figures | mujoco_figures(peer_chain(n), angles, rates, np.asarray(final))
    except ImportError as error:
        return figures | {"MuJoCo skipped": str(error)}


def mujoco_figures(
    chain: Chain, angles: np.ndarray, rates: np.ndarray, final: np.ndarray
) -> dict[str, Any]:
    """`mj_step` of a single chain, the rollout of a batch on two threads, and the difference."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(chain.xml(STEP))
    data = mujoco.MjData(model)

    def single() -> None:
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = angles, rates
        mujoco.mj_step(model, data, STEPS)

    alone = timed(single).best
    many, _ = rollout(model, np.tile([*angles, *rates], (BATCH, 1)), STEPS)
    return {
        "MuJoCo step [us]": alone / STEPS * 1e6,
        "rollout [us/step]": many / STEPS / BATCH * 1e6,
        "difference": float(np.abs(np.angle(np.exp(1j * (data.qpos - final)))).max()),
    }


def poses(mechanism: Any, starts: Any) -> Any:
    """Starts of the bodies of a mechanism in the coordinates of joints."""
    state = mechanism.guess(starts)
    params = dict(mechanism.params)
    moving = mechanism.kinematics.moving(mechanism.bodies, *state, jnp.zeros(()), params)
    return starts_of(mechanism, moving)


def starts_of(mechanism: Any, moving: Any) -> Any:
    """Starts of bodies from the poses and velocities of a state."""
    return {
        body.name: jp.Start(m.frame.origin, m.frame.attitude, m.velocity, m.spin)
        for body, m in zip(mechanism.bodies, moving, strict=True)
    }


def operations_of(report: Any) -> int | None:
    """The operations of a step; None where it runs as plain `vmap`."""
    loops = [part.operations for part in report.parts if part.operations]
    return max(loops, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=int, nargs="+", default=BODIES)
    parser.add_argument("--coordinates", nargs="+", default=["joints", "bodies"])
    parser.add_argument("--json", type=Path, help="file for the rows")
    options = parser.parse_args()
    rows = []
    print(table_head(HEAD))
    for n, coordinates in product(options.bodies, options.coordinates):
        rows.append(in_a_process(measured, n, coordinates))
        print(table_row(rows[-1].get(name) for name in HEAD), flush=True)
    write(options.json, rows=rows)


if __name__ == "__main__":
    main()
