"""A six-axis arm and a Stewart platform, and derivatives of their motions, beside MuJoCo.

    python -m experiments.derivative_peers [--json FILE]

The mechanisms are those of `experiments.derivatives`, with RK4 steps of 1 ms in float64. The
derivatives are those of the sum of the last coordinates of the arm, by its 12 initial angles and
rates, and of the last length of a leg, by the mass of the legs and the place of their centres of
mass. jaxmech computes a gradient. MuJoCo repeats its rollout for a difference quotient of every
number (`differences`), or, for the arm, multiplies the matrices of `mjd_transitionFD` over the
steps (`matrices`), which takes Euler steps, since there are none for RK4. Its loops are soft.

Times are microseconds per step of a trajectory, of a batch on two threads, and the shortest of
some; those of derivatives are also stated in motions. The last column is the largest difference of
a derivative from that of jaxmech, in parts of the largest derivative.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxmech as jm
from experiments.derivatives import AXES, arm, stewart
from experiments.measuring import rollout, table_head, table_row, timed, words, write
from experiments.mechanisms import Chain

STEP, STEPS, BATCH, THREADS = 1e-3, 500, 1024, 2
CHANGE = 1e-6  # of difference quotients
HEAD = (
    "mechanism",
    "route",
    "motion [us/step]",
    "derivatives [us/step]",
    "in motions",
    "difference",
)
Row = dict[str, Any]


def arm_rows() -> list[Row]:
    """The arm, by its initial state."""
    mechanism, starts = arm(6)
    q, v = mechanism.guess(starts)
    params = mechanism.params
    steps = jm.FixedSteps(STEPS)

    def end(q: Any, v: Any) -> Any:
        ts = jnp.asarray([0.0, STEP * STEPS])
        return jm.simulate(mechanism.system, q, v, ts, params, steps=steps).q[-1].sum()

    batch = [jnp.tile(x, (BATCH, 1)) for x in (q, v)]
    motion = _seconds(end, *batch)
    grad = jax.grad(end, (0, 1))
    gradient = _seconds(grad, *batch)
    exact = np.concatenate(grad(q, v))
    rows = [_row("arm", "jaxmech", motion, gradient, exact, exact)]

    chain = Chain([params["m"]] * 6, AXES, (0.02, 0.02, 0.003), np.array([0, 0, params["c"]]),
                  np.array([0, 0, 0.4]))  # fmt: skip
    start = np.concatenate([q, v])
    model = mujoco.MjModel.from_xml_string(chain.xml(STEP))
    seconds, last = _rollout(model, np.tile(start, (BATCH, 1)))
    single = np.tile(start, (13, 1))
    single[1:] += CHANGE * np.eye(12)
    ends = _rollout(model, single)[1][:, :6].sum(1)
    np.testing.assert_allclose(last[0, :6].sum(), float(end(q, v)), atol=1e-6)
    repeated = _rollout(model, np.tile(single, (BATCH, 1)))[0]
    slopes = (ends[1:] - ends[0]) / CHANGE
    rows.append(_row("arm", "MuJoCo, differences", seconds, repeated, slopes, exact))

    text = chain.xml(STEP).replace('"RK4"', '"implicitfast"')
    model = mujoco.MjModel.from_xml_string(text)
    seconds = _rollout(model, np.tile(start, (BATCH, 1)))[0]
    slopes, by_matrices = _by_matrices(model, np.asarray(q), np.asarray(v))
    rows.append(_row("arm", "MuJoCo, matrices", seconds, by_matrices * BATCH, slopes, exact))
    return rows


def _by_matrices(model: mujoco.MjModel, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, float]:
    """The derivatives by the product of the matrices of all steps, and seconds per trajectory."""

    def slopes(data: mujoco.MjData) -> np.ndarray:
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = q, v
        matrices = np.empty((STEPS, 12, 12))
        for A in matrices:
            mujoco.mjd_transitionFD(model, data, CHANGE, 0, A, None, None, None)
            mujoco.mj_step(model, data)
        slope = np.repeat([1.0, 0.0], 6)
        for A in matrices[::-1]:
            slope = slope @ A
        return slope

    workers = [mujoco.MjData(model) for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        times = timed(lambda: [*pool.map(slopes, workers)], 0, time.perf_counter)
    return times.result[0], times.first / THREADS


def stewart_rows() -> list[Row]:
    """The platform, by the mass of its legs and the place of their centres of mass."""
    mechanism, starts = stewart()
    q, v = jm.assemble(mechanism.system, *mechanism.guess(starts), 0.0, mechanism.params)
    leg, steps = mechanism.system.coordinates.index("P0.position"), jm.FixedSteps(STEPS)

    def end(p: dict[str, Any]) -> Any:
        ts = jnp.asarray([0.0, STEP * STEPS])
        return jm.simulate(mechanism.system, q, v, ts, p, steps=steps).q[-1, leg]

    params = {name: jnp.asarray(float(x)) for name, x in mechanism.params.items()}
    batch = {name: jnp.full(BATCH, x) for name, x in params.items()}
    motion = _seconds(end, batch)
    gradient = _seconds(jax.grad(end), batch)
    slopes = jax.grad(end)(params)
    names = ("m", "c")
    exact = np.array([slopes[name] for name in names])
    rows = [_row("Stewart", "jaxmech", motion, gradient, exact, exact)]

    def model(**changes: float) -> mujoco.MjModel:
        values = {name: float(params[name]) + changes.get(name, 0.0) for name in names}
        return mujoco.MjModel.from_xml_string(stewart_xml(mechanism, starts, values))

    first = model()
    data = mujoco.MjData(first)
    start = np.concatenate([data.qpos, data.qvel])
    seconds, last = _rollout(first, np.tile(start, (BATCH, 1)))
    slide = first.jnt_qposadr[first.joint("slide0").id]
    np.testing.assert_allclose(last[0, slide], float(end(params) - q[leg]), atol=1e-4)
    # A rollout for each changed model.
    ends = [_rollout(model(**{name: 1e-4}), start[None])[1][0, slide] for name in names]
    slopes = (np.array(ends) - last[0, slide]) / 1e-4
    rows.append(_row("Stewart", "MuJoCo, differences", seconds, 3 * seconds, slopes, exact))
    return rows


def stewart_xml(mechanism: Any, starts: Any, values: dict[str, float]) -> str:
    """The platform for MuJoCo: the legs are trees, which connections join to the top."""
    legs, joints, ropes, sites = "", "", "", ""
    top = np.asarray(starts["top"].position)
    for k in range(6):
        foot, head = (np.asarray(starts[f"{part}{k}"].position) for part in ("low", "up"))
        length = np.linalg.norm(head - foot)
        attitude = words(starts[f"low{k}"].attitude)
        inward = np.empty(3)
        back = starts[f"low{k}"].attitude * np.array([1, -1, -1, -1])
        mujoco.mju_rotVecQuat(inward, np.array([0.0, 1.0, 0.0]), back)
        legs += (
            f'<site name="foot{k}" pos="{words(foot)}"/>'
            f'<body pos="{words(foot)}" quat="{attitude}">'
            f'<inertial pos="0 0 0.3" mass="{values["m"]}" diaginertia="0.03 0.03 0.002"/>'
            f'<joint type="hinge" axis="{words(inward)}"/><joint type="hinge" axis="1 0 0"/>'
            f'<body name="up{k}" pos="0 0 {length}">'
            f'<inertial pos="0 0 {values["c"]}" mass="1" diaginertia="0.02 0.02 0.001"/>'
            f'<joint name="slide{k}" type="slide" axis="0 0 1"/></body></body>'
        )
        sites += f'<site name="head{k}" pos="{words(head - top)}"/>'
        joints += f'<connect body1="up{k}" body2="top" anchor="0 0 0" solref="0.002 1"/>'
        ropes += (
            f'<spatial stiffness="3e4" damping="50" springlength="{length + 0.005}">'
            f'<site site="foot{k}"/><site site="head{k}"/></spatial>'
        )
    return (
        f'<mujoco><option integrator="RK4" timestep="{STEP}" gravity="0 0 -9.81"/><worldbody>'
        f'<body name="top" pos="{words(top)}"><freejoint/>'
        f'<inertial pos="0 0 0" mass="20" diaginertia="1 1 2"/>{sites}</body>{legs}</worldbody>'
        f"<equality>{joints}</equality><tendon>{ropes}</tendon></mujoco>"
    )


def _rollout(model: mujoco.MjModel, start: np.ndarray) -> tuple[float, np.ndarray]:
    rounds = 2 if len(start) > 13 else 1
    return rollout(model, start, STEPS, rounds, THREADS, time.perf_counter)


def _seconds(fn: Callable[..., Any], *args: Any) -> float:
    batched = jax.jit(jax.vmap(fn))
    return timed(lambda: batched(*args), clock=time.perf_counter).best


def _row(
    mechanism: str, route: str, motion: float, slopes: float, values: np.ndarray, exact: np.ndarray
) -> Row:
    per_step = 1e6 / STEPS / BATCH
    difference = float(np.abs(values - exact).max() / np.abs(exact).max())
    cells = mechanism, route, motion * per_step, slopes * per_step, slopes / motion, difference
    return dict(zip(HEAD, cells, strict=True))


def main() -> None:
    """Print the table, and write it with the machine it was measured on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []
    print(table_head(HEAD))
    for made in (arm_rows, stewart_rows):
        for row in made():
            rows.append(row)
            print(table_row(row.values()), flush=True)
    write(arguments.json, rows=rows)


if __name__ == "__main__":
    main()
