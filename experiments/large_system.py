"""Large mechanisms, one motion each: first call, time of a step and memory, beside peers.

    python -m experiments.large_system [--rows chain:50 chain:1000 space:200 tree:100] [--json FILE]

`chain` are planar links in a row, `space` bodies in space with hinges about two directions in turn,
`tree` planar bodies each of which carries two others. Bodies of 1 m and 1 kg fall from the
horizontal; RK4 steps of 1 ms, float64. Every row is measured in a process of its own. Times are
seconds and microseconds of CPU; bytes are those that the compiled program needs beside its
arguments and results. Differences are those of the final attitudes [rad]. Peers that are not
installed are skipped with a word (`pip install mujoco exudyn`); Exudyn takes chains of up to 200
links.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments import mechanism_peers

ROWS = ("chain:50", "chain:100", "chain:200", "chain:500", "chain:1000", "space:200", "tree:100")
STEP, STEPS = 1e-3, 100  # [s]
INERTIA = 1 / 12  # about all axes [kg m^2]
AXES = {"chain": ((0.0, 0.0, 1.0),), "space": ((0.0, 1.0, 0.0), (0.0, 0.6, 0.8))}
LONGEST_EXUDYN = 200
HEAD = ("row", "build [CPU s]", "first call [CPU s]", "step [us]", "bytes", "energy drift",
        "MuJoCo step [us]", "difference", "Exudyn step [us]", "difference of Exudyn")  # fmt: skip


@dataclass(frozen=True)
class Bodies:
    """Bodies with hinges, all along the first axis at the start.

    Attributes:
        kind: `chain`, `space` or `tree`.
        parents: the body that carries each one, -1 for the ground.
    """

    kind: str
    parents: tuple[int, ...]

    @staticmethod
    def of(row: str) -> "Bodies":
        """The bodies of a row such as `tree:100`."""
        kind, _, count = row.partition(":")
        back = 2 if kind == "tree" else 1
        return Bodies(kind, tuple((k - 1) // back for k in range(int(count))))

    @property
    def is_planar(self) -> bool:
        """Whether the bodies move in the plane."""
        return self.kind != "space"

    def axis(self, k: int) -> tuple[float, float, float]:
        """The axis of the hinge of body k."""
        axes = AXES["space" if self.kind == "space" else "chain"]
        return axes[k % len(axes)]

    def seat(self, k: int) -> tuple[float, float]:
        """The hinge of body k, from the middle of its parent [m]."""
        if self.parents[k] < 0:
            return 0.0, 0.0
        aside = 0.0 if self.kind != "tree" else 0.1 if k % 2 else -0.1
        return 0.5, aside

    def positions(self) -> np.ndarray:
        """The middles of the bodies at the start, (N, 2) [m]."""
        places: list[np.ndarray] = []
        for k, parent in enumerate(self.parents):
            before = np.zeros(2) if parent < 0 else places[parent]
            places.append(before + self.seat(k) + np.array([0.5, 0.0]))
        return np.array(places)


def mechanism_of(bodies: Bodies) -> tuple[Any, Any]:
    """The mechanism in the coordinates of bodies, and its starts."""
    from jaxmech import parts as jp

    zeros: tuple[float, ...] = () if bodies.is_planar else (0.0,)
    parts: list[Any] = []
    hinges = []
    for k, parent in enumerate(bodies.parents):
        if bodies.is_planar:
            parts.append(jp.planar_body(f"body{k}", mass=1.0, inertia=INERTIA))
        else:
            parts.append(jp.spatial_body(f"body{k}", mass=1.0, inertia=(INERTIA,) * 3))
        before = parts[parent] if parent >= 0 else jp.ground
        seat, own = (*bodies.seat(k), *zeros), (-0.5, 0.0, *zeros)
        axis = {} if bodies.is_planar else {"axis": bodies.axis(k)}
        hinges.append(jp.revolute(f"hinge{k}", before, seat, parts[k], own, **axis))
    places = bodies.positions()
    starts = {f"body{k}": jp.Start((*place, *zeros)) for k, place in enumerate(places)}
    return jp.Mechanism(parts, hinges, [jp.gravity()], coordinates="bodies"), starts


def mujoco_model(bodies: Bodies) -> Any:
    """The same bodies for MuJoCo, not by XML, which it does not nest so deep."""
    import mujoco

    spec = mujoco.MjSpec()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.timestep = STEP
    spec.option.gravity = (0, -9.81, 0) if bodies.is_planar else (0, 0, -9.81)
    flags = mujoco.mjtDisableBit
    spec.option.disableflags = flags.mjDSBL_CONTACT | flags.mjDSBL_CONSTRAINT | flags.mjDSBL_LIMIT
    carried: list[Any] = []
    for k, parent in enumerate(bodies.parents):
        along, aside = bodies.seat(k)
        body = (spec.worldbody if parent < 0 else carried[parent]).add_body(
            name=f"body{k}",
            pos=(along + 0.5 * (parent >= 0), aside, 0),
            mass=1.0,
            ipos=(0.5, 0, 0),
            inertia=(INERTIA,) * 3,
            explicitinertial=True,
        )
        body.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE, axis=bodies.axis(k))
        carried.append(body)
    return spec.compile()


def measured(row: str) -> dict[str, Any]:
    """The figures of jaxmech, and those of the peers that are installed."""
    import jax
    import jax.numpy as jnp

    import jaxmech as jm

    jax.config.update("jax_enable_x64", True)
    bodies = Bodies.of(row)
    begun = time.process_time()
    mechanism, starts = mechanism_of(bodies)
    guess = mechanism.guess(starts)
    built = time.process_time()
    ts, law = jnp.asarray([0.0, STEP * STEPS]), jm.laws.SparseElimination()

    def run(q: Any, v: Any) -> Any:
        return jm.simulate(
            mechanism.system, q, v, ts, {}, steps=jm.FixedSteps(STEPS), formulation=law
        )

    program = jax.jit(run).lower(*guess).compile()
    memory: Any = program.memory_analysis()
    sol = jax.block_until_ready(program(*guess))
    called = time.process_time()
    figures = {
        "row": row,
        "build [CPU s]": built - begun,
        "first call [CPU s]": called - built,
        "step [us]": _best(lambda: jax.block_until_ready(program(*guess)), 20) / STEPS * 1e6,
        "bytes": memory.temp_size_in_bytes,
        "energy drift": float(sol.energy_drift),
        "status": int(sol.status),
        "position residual": float(sol.position_residual.max()),
    }
    q = np.asarray(sol.q[-1]).reshape(len(bodies.parents), -1)
    for peer in (mujoco_row, exudyn_row):
        try:
            figures |= peer(bodies, q)
        except ImportError as error:
            figures[f"{peer.__name__} skipped"] = str(error)
    return figures


def mujoco_row(bodies: Bodies, q: np.ndarray) -> dict[str, Any]:
    """The figures of MuJoCo, and the largest difference of the final attitudes."""
    import mujoco

    model = mujoco_model(bodies)
    data = mujoco.MjData(model)

    def run() -> None:
        mujoco.mj_resetData(model, data)
        mujoco.mj_step(model, data, STEPS)

    repeats = 1 if len(bodies.parents) > 200 else 5
    best = _best(run, repeats)
    mujoco.mj_kinematics(model, data)
    attitudes = quaternions(q[:, 2]) if bodies.is_planar else q[:, 3:]
    # MuJoCo sorts bodies by branches.
    theirs = np.stack([data.body(f"body{k}").xquat for k in range(len(q))])
    sums = [np.linalg.norm(attitudes + sign * theirs, axis=1) for sign in (1, -1)]
    difference = 2 * np.minimum(*sums).max()
    return {"MuJoCo step [us]": best / STEPS * 1e6, "difference": float(difference)}


def quaternions(angles: np.ndarray) -> np.ndarray:
    """The attitudes of planar bodies, (N, 4)."""
    zero = np.zeros_like(angles)
    return np.stack([np.cos(angles / 2), zero, zero, np.sin(angles / 2)], axis=1)


def exudyn_row(bodies: Bodies, q: np.ndarray) -> dict[str, Any]:
    """The figures of Exudyn for a chain: a kinematic tree with hinges about the second axis."""
    n = len(bodies.parents)
    if bodies.kind != "chain" or n > LONGEST_EXUDYN:
        return {}
    chain = mechanism_peers.Chain(
        masses=[1.0] * n,
        axes=[(0, 1, 0)] * n,
        inertia=(INERTIA,) * 3,
        center=np.array([0.5, 0.0, 0.0]),
        way=np.array([1.0, 0.0, 0.0]),
    )
    zeros = np.zeros(n)
    run = mechanism_peers.Run(zeros, zeros, STEPS, STEP, batch=1, clock=time.process_time)
    return mechanism_peers.exudyn_row(chain, run, -np.diff(q[:, 2], prepend=0.0))


def _best(run: Callable[[], Any], repeats: int) -> float:
    """The least CPU time of a few runs [s]."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times)


def growth(rows: list[dict[str, Any]], name: str) -> str:
    """How a figure grows from the shortest chain to the longest, beside their lengths."""
    chains = [row for row in rows if row["row"].startswith("chain") and name in row]
    if len(chains) < 2:
        return ""
    first, last = chains[0], chains[-1]
    lengths = [len(Bodies.of(row["row"]).parents) for row in (first, last)]
    ratio = last[name] / first[name] / (lengths[1] / lengths[0])
    return f"{name}: grows {ratio:.2f} times as much as the chain ({first['row']}, {last['row']})"


def main() -> None:
    """Measure all rows and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", default=ROWS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measured(options.row)))
        return
    rows = []
    print(" | ".join(HEAD), flush=True)
    for row in options.rows:
        command = [sys.executable, "-m", "experiments.large_system", "--row", row]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(process.stdout.splitlines()[-1]))
        cells = (rows[-1].get(name, "") for name in HEAD)
        print(" | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in cells), flush=True)
        for name, reason in rows[-1].items():
            if name.endswith("skipped"):
                print(f"{name}: {reason}")
    for name in ("first call [CPU s]", "step [us]", "bytes", "MuJoCo step [us]"):
        print(growth(rows, name))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
