"""The chains of `experiments.mechanisms` in MuJoCo, MJX and Exudyn.

Each row has the time of a step and the largest difference of the final angles from those of
jaxmech; it is empty where the package is not installed (`pip install mujoco mujoco-mjx exudyn`).
All have joint angles as coordinates and make the same RK4 steps in float64.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Run:
    """A run of a chain: initial angles and rates (n,), steps, their size [s] and the batch.

    The clock is that of all rows.
    """

    angles: np.ndarray
    rates: np.ndarray
    steps: int
    step: float
    batch: int
    clock: Callable[[], float] = time.perf_counter

    def per_step(self, seconds: float, trajectories: int = 1) -> float:
        """Microseconds per step of a trajectory."""
        return seconds / self.steps / trajectories * 1e6


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
                f'<body pos="{_words(self.way if k else (0, 0, 0))}">'
                f'<inertial pos="{_words(self.center)}" mass="{mass}" '
                f'diaginertia="{_words(self.inertia)}"/>'
                f'<joint type="hinge" axis="{_words(axis)}"/>'
            )
            close += "</body>"
        option = f'<option integrator="RK4" timestep="{step}" gravity="0 0 -9.81">'
        flags = '<flag contact="disable" constraint="disable" limit="disable"/></option>'
        return f"<mujoco>{option}{flags}<worldbody>{text}{close}</worldbody></mujoco>"


def shortest(
    run: Callable[[], Any], seconds: float = 1.0, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The shortest of the runs of about a second [s], after one for warming up."""
    import jax

    jax.block_until_ready(run())
    times = []
    while not times or sum(times) < seconds:
        begun = clock()
        jax.block_until_ready(run())
        times.append(clock() - begun)
    return min(times)


def peer_figures(chain: Chain, run: Run, final: np.ndarray, peers: Sequence[str]) -> dict[str, Any]:
    """The figures of the peers that are installed; `final` are the angles of jaxmech."""
    row: dict[str, Any] = {}
    for name in peers:
        try:
            row |= PEERS[name](chain, run, final)
        except ImportError as error:
            row[f"{name} skipped"] = str(error)
    return row


def mujoco_row(chain: Chain, run: Run, final: np.ndarray) -> dict[str, Any]:
    """`mj_step` of a single chain, and the rollout of a batch on two threads."""
    import mujoco
    from mujoco.rollout import Rollout

    model = mujoco.MjModel.from_xml_string(chain.xml(run.step))
    data = mujoco.MjData(model)

    def single() -> None:
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = run.angles, run.rates
        mujoco.mj_step(model, data, run.steps)

    one = shortest(single, clock=run.clock)
    start = np.tile(np.concatenate([[0.0], run.angles, run.rates]), (run.batch, 1))
    workers = [mujoco.MjData(model) for _ in range(2)]
    with Rollout(nthread=len(workers)) as pool:
        many = shortest(
            lambda: pool.rollout(model, workers, start, nstep=run.steps), clock=run.clock
        )
    return {
        "MuJoCo step [us]": run.per_step(one),
        "rollout [us/step]": run.per_step(many, run.batch),
        "difference": _difference(data.qpos, final),
    }


def mjx_row(chain: Chain, run: Run, final: np.ndarray) -> dict[str, Any]:
    """`mjx.step` in a loop, over a batch."""
    import jax
    import jax.numpy as jnp
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_string(chain.xml(run.step)))
    empty = mjx.make_data(model)

    @jax.jit
    @jax.vmap
    def batch(angles: Any, rates: Any) -> Any:
        start = empty.replace(qpos=angles, qvel=rates)
        return jax.lax.fori_loop(0, run.steps, lambda _, x: mjx.step(model, x), start).qpos

    start = [jnp.tile(x, (run.batch, 1)) for x in (run.angles, run.rates)]
    many = shortest(lambda: batch(*start), clock=run.clock)
    return {
        "MJX [us/step]": run.per_step(many, run.batch),
        "difference of MJX": _difference(batch(*start)[0], final),
    }


def exudyn_row(chain: Chain, run: Run, final: np.ndarray) -> dict[str, Any]:
    """A kinematic tree of Exudyn, a single chain."""
    import exudyn
    import exudyn.itemInterface

    n, container = len(chain.masses), exudyn.SystemContainer()
    system = container.AddSystem()
    node = system.AddNode(
        exudyn.itemInterface.NodeGenericODE2(
            referenceCoordinates=[0.0] * n,
            initialCoordinates=list(run.angles),
            initialCoordinates_t=list(run.rates),
            numberOfODE2Coordinates=n,
        )
    )
    kinds = exudyn.JointType
    axes = {
        (1, 0, 0): kinds.RevoluteX,
        (0, 1, 0): kinds.RevoluteY,
        (0, 0, 1): kinds.RevoluteZ,
    }
    offsets = [np.zeros(3)] + [chain.way] * (n - 1)
    system.AddObject(
        exudyn.itemInterface.ObjectKinematicTree(
            nodeNumber=node,
            jointTypes=[axes[axis] for axis in chain.axes],
            linkParents=list(range(-1, n - 1)),
            jointTransformations=exudyn.Matrix3DList([np.eye(3)] * n),
            jointOffsets=exudyn.Vector3DList(offsets),
            linkInertiasCOM=exudyn.Matrix3DList([np.diag(chain.inertia)] * n),
            linkCOMs=exudyn.Vector3DList([chain.center] * n),
            linkMasses=list(chain.masses),
            baseOffset=[0.0, 0.0, 0.0],
            gravity=[0.0, 0.0, -9.81],
        )
    )
    system.Assemble()
    settings = exudyn.SimulationSettings()
    settings.timeIntegration.numberOfSteps = run.steps
    settings.timeIntegration.endTime = run.steps * run.step
    settings.timeIntegration.verboseMode = 0
    settings.solutionSettings.writeSolutionToFile = False
    settings.solutionSettings.sensorsWritePeriod = run.steps * run.step

    def single() -> None:
        system.SolveDynamic(settings, solverType=exudyn.DynamicSolverType.RK44)

    one = shortest(single, clock=run.clock)
    end = system.GetNodeOutput(node, exudyn.OutputVariableType.Coordinates)
    return {
        "Exudyn step [us]": run.per_step(one),
        "difference of Exudyn": _difference(np.asarray(end), final),
    }


def _difference(angles: Any, final: np.ndarray) -> float:
    return float(np.abs(np.angle(np.exp(1j * (np.asarray(angles) - final)))).max())


def _words(numbers: Any) -> str:
    return " ".join(map(str, numbers))


PEERS = {"mujoco": mujoco_row, "mjx": mjx_row, "exudyn": exudyn_row}
