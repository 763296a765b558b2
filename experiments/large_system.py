"""One long chain of planar links with hinges: first call, time of a step and memory, beside MuJoCo.

    python -m experiments.large_system [--links 50 200 1000] [--json FILE]

A chain with links of 1 m and 1 kg falls from the horizontal; RK4 steps of 1 ms, float64. Every row
is measured in a process of its own. Times are seconds and microseconds of CPU; bytes are those that
the compiled program needs beside its arguments and results. The difference is that of the angles
to MuJoCo's after the same steps. Without MuJoCo its columns are empty.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LINKS = (50, 100, 200, 500, 1000)
STEP, STEPS = 1e-3, 100  # [s]
HEAD = ("links", "build [CPU s]", "first call [CPU s]", "step [us]", "bytes", "energy drift",
        "MuJoCo step [us]", "difference")  # fmt: skip


def chain(n: int) -> tuple[Any, Any]:
    """A horizontal chain, and its starts."""
    from jaxmech import parts as jp

    links = [jp.planar_body(f"link{k}", mass=1.0, inertia=1 / 12) for k in range(n)]
    before = [jp.ground, *links]
    hinges = [
        jp.revolute(f"hinge{k}", before[k], (0.5 if k else 0, 0), links[k], (-0.5, 0))
        for k in range(n)
    ]
    starts = {f"link{k}": jp.Start((k + 0.5, 0.0)) for k in range(n)}
    return jp.Mechanism(links, hinges, [jp.gravity()], coordinates="bodies"), starts


def mujoco_model(n: int) -> Any:
    """The same chain for MuJoCo, not by XML, which it does not nest so deep."""
    import mujoco

    spec = mujoco.MjSpec()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.timestep = STEP
    spec.option.gravity = (0, -9.81, 0)
    flags = mujoco.mjtDisableBit
    spec.option.disableflags = flags.mjDSBL_CONTACT | flags.mjDSBL_CONSTRAINT | flags.mjDSBL_LIMIT
    body = spec.worldbody
    for k in range(n):
        body = body.add_body(
            pos=(float(k > 0), 0, 0),
            mass=1.0,
            ipos=(0.5, 0, 0),
            inertia=(1 / 12, 1 / 12, 1 / 12),
            explicitinertial=True,
        )
        body.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0, 0, 1))
    return spec.compile()


def measured(n: int) -> dict[str, Any]:
    """A row: the figures of jaxmech, and those of MuJoCo if it is installed."""
    import jax
    import jax.numpy as jnp

    import jaxmech as jm

    jax.config.update("jax_enable_x64", True)
    begun = time.process_time()
    mechanism, starts = chain(n)
    guess = mechanism.guess(starts)
    built = time.process_time()
    ts, law = jnp.asarray([0.0, STEP * STEPS]), jm.SparseElimination()

    def run(q: Any, v: Any) -> Any:
        return jm.simulate(mechanism.system, q, v, ts, {}, method=jm.RK4(STEPS), formulation=law)

    program = jax.jit(run).lower(*guess).compile()
    sol = jax.block_until_ready(program(*guess))
    called = time.process_time()
    row = {
        "links": n,
        "build [CPU s]": built - begun,
        "first call [CPU s]": called - built,
        "step [us]": _best(lambda: jax.block_until_ready(program(*guess))) / STEPS * 1e6,
        "bytes": program.memory_analysis().temp_size_in_bytes,
        "energy drift": float(sol.energy_drift),
        "status": int(sol.status),
        "position residual": float(sol.position_residual.max()),
    }
    return row | mujoco_row(n, np.asarray(sol.q[-1]).reshape(n, 3)[:, 2])


def mujoco_row(n: int, angles: np.ndarray) -> dict[str, Any]:
    """The figures of MuJoCo, and the largest difference of the final angles."""
    try:
        import mujoco
    except ImportError:
        return {}
    model = mujoco_model(n)
    data = mujoco.MjData(model)

    def run() -> None:
        mujoco.mj_resetData(model, data)
        mujoco.mj_step(model, data, STEPS)

    best = _best(run, repeats=1)  # long for long chains
    difference = np.abs(np.cumsum(data.qpos) - angles).max()
    return {"MuJoCo step [us]": best / STEPS * 1e6, "difference": float(difference)}


def _best(run: Callable[[], Any], repeats: int = 3) -> float:
    """The least CPU time of a few runs [s]."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times)


def slope(rows: list[dict[str, Any]], name: str) -> float:
    """The exponent with which a figure grows from the first row to the last."""
    first, last = rows[0], rows[-1]
    return float(np.log(last[name] / first[name]) / np.log(last["links"] / first["links"]))


def main() -> None:
    """Measure all rows and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--links", type=int, nargs="+", default=LINKS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        print(json.dumps(measured(given.row)))
        return
    rows = []
    print(" | ".join(HEAD), flush=True)
    for n in given.links:
        command = [sys.executable, "-m", "experiments.large_system", "--row", str(n)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(found.stdout.splitlines()[-1]))
        cells = (rows[-1].get(name, "") for name in HEAD)
        print(" | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in cells), flush=True)
    if len(rows) > 1:
        for name in ("step [us]", "bytes", "MuJoCo step [us]"):
            if name in rows[0]:
                print(f"{name}: exponent {slope(rows, name):.2f}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
