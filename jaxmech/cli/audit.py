"""What `jaxmech audit` says about an MJCF or URDF file.

It names redundant equations and what of the file is not used, and compares MuJoCo's motion, whose
loops and limits are soft, with the rigid one.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.analysis import Structure, structure
from jaxmech.integrate import FixedSteps
from jaxmech.interop.mujoco import (
    IgnoredElementsWarning,
    Robot,
    compiled,
    from_mjcf,
    names_of,
    spec_of,
    text_of,
    unused,
)
from jaxmech.parts import AbstractRigidBody
from jaxmech.run import simulate
from jaxmech.state import assemble
from jaxmech.status import Status
from jaxmech.system import Holonomic, Unilateral
from jaxmech.utils.text import titled_lines

_SAVES = 100
_LONGEST_STEP = 1e-3  # of the rigid motion [s]
_MOST_BODIES = 5  # in the table


@dataclass(frozen=True)
class Deviation:
    """MuJoCo's motion against the rigid one from the same state, at T times."""

    gaps: dict[str, np.ndarray]  # of each loop in MuJoCo's motion, (T,), [m or rad]
    limits: dict[str, np.ndarray]  # how far that is beyond each limit it passes, (T,), [m or rad]
    distances: dict[str, np.ndarray]  # of the centres of mass in both motions [m], (T,)
    status: Status  # of the rigid motion

    def lines(self) -> list[str]:
        if self.status != Status.OK:
            return [f"  the rigid motion ends with status {self.status.name}"]
        largest = sorted(self.distances.items(), key=lambda item: -item[1].max())
        lines = list[str]()
        for title, what, unit, values in (
            ("loop", "largest gap", "[m, rad]", self.gaps),
            ("limit", "beyond by", "[m, rad]", self.limits),
            ("body", "off by", "[m]", dict(largest[:_MOST_BODIES])),
        ):
            lines += [f"  {title:<30} {what:>12} {'at the end':>12}   {unit}"] if values else []
            lines += [f"  {k:<30} {x.max():12.2e} {x[-1]:12.2e}" for k, x in values.items()]
        return lines


def deviation(robot: Robot, model: Any, q: Any, v: Any, params: Any, seconds: float) -> Deviation:
    """Compare the motion of MuJoCo, without contacts, with the rigid one.

    Limits count that are constraints of the robot.
    """
    import mujoco

    system = robot.mechanism.system
    bodies = [
        body
        for body in robot.mechanism.bodies
        if isinstance(body, AbstractRigidBody) and body.name in robot.bodies
    ]
    centers = [np.asarray(body.properties.center) for body in bodies]
    loops = [
        c for c in system.constraints if isinstance(c, Holonomic) and not c.name.endswith(".unit")
    ]
    stops = [u for u in system.unilateral if isinstance(u, Unilateral)]
    steps_per_save = max(1, round(seconds / _SAVES / model.opt.timestep))
    interval = steps_per_save * model.opt.timestep
    ts = np.arange(0.0, seconds + 1e-9, interval)

    # MuJoCo's qpos at all times, without contacts and the limits that are left out.
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    for limited, names, kind in (
        (model.jnt_limited, [*robot.joints], "joint limit"),
        (model.tendon_limited, names_of(model, "tendon", model.ntendon), "tendon"),
    ):
        limited[[name in robot.ignored.get(kind, ()) for name in names]] = 0
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = robot.qpos(q), robot.qvel(q, v)
    for k in range(model.nu):
        data.ctrl[k] = params.get(f"ctrl.{model.actuator(k).name}", 0.0)
    soft = [data.qpos.copy()]
    for _ in ts[1:]:
        mujoco.mj_step(model, data, steps_per_save)
        soft.append(data.qpos.copy())
    steps = FixedSteps(max(1, int(np.ceil(interval / _LONGEST_STEP))))
    sol = simulate(system, q, v, ts, params, steps=steps, throw=False)

    @jax.jit
    @jax.vmap
    def compared(qpos: Any, rigid: Any) -> Any:
        q, zero = robot.q(qpos), jnp.zeros(())
        pairs = [robot.mechanism.kinematics.frames(bodies, x, zero, params) for x in (q, rigid)]
        return (
            {c.name: jnp.linalg.norm(c.value(q, zero, params)) for c in loops},
            {stop.name: stop.constraint.value(q, zero, params) for stop in stops},
            {
                body.name: jnp.linalg.norm(a.point(center) - b.point(center))
                for body, center, a, b in zip(bodies, centers, *pairs, strict=True)
            },
        )

    gaps, values, distances = jax.tree.map(np.asarray, compared(np.array(soft), sol.q))
    limits = {
        name if table.shape[1] == 1 else f"{name}[{k}]": np.maximum(-gap, 0.0)
        for name, table in values.items()
        for k, gap in enumerate(table.T)
        if (gap < 0).any()
    }
    return Deviation(gaps, limits, distances, Status(int(sol.status)))


@dataclass(frozen=True)
class FileAudit:
    """What was found in a file; prints itself."""

    name: str  # of the file
    robot: Robot
    structure: Structure  # at the start
    unused: tuple[str, ...]  # elements and attributes of the file
    seconds: float
    deviation: Deviation | None  # of soft loops and limits from rigid ones, if there are any

    @property
    def serious(self) -> bool:
        failed = self.deviation is not None and self.deviation.status != Status.OK
        return failed or self.structure.serious

    def __str__(self) -> str:
        rows = [("left out", f"{kind}: {', '.join(x)}") for kind, x in self.robot.ignored.items()]
        rows += [("not used", ", ".join(self.unused))] if self.unused else []
        lines = [self.name, str(self.structure), *titled_lines(rows, 14)]
        if self.deviation:
            over = f"over {self.seconds:g} s, without contacts"
            lines += [f"MuJoCo's motion against the rigid one {over}", *self.deviation.lines()]
        return "\n".join(lines)


def audit(file: Path, seconds: float = 1.0) -> FileAudit:
    """Examine an MJCF or URDF file, from its first keyframe or the reference pose.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a model.
    """
    spec, source_name = spec_of(file)
    model = compiled(spec, source_name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredElementsWarning)  # they are part of the report
        robot = from_mjcf(file, limits=True)
    system, params = robot.mechanism.system, dict(robot.mechanism.params)
    q, v = robot.start
    for keyframe in [*robot.keyframes.values()][:1]:
        q, v, params = keyframe.q, keyframe.v, params | dict(keyframe.ctrl)
    q, v = assemble(system, q, v, 0.0, params)
    at_start = structure(system, q, v, 0.0, params)
    is_soft = system.unilateral or any(not c.name.endswith(".unit") for c in system.constraints)
    comparison = deviation(robot, model, q, v, params, seconds) if is_soft else None
    left = unused(text_of(file), file.parent)
    return FileAudit(file.name, robot, at_start, left, seconds, comparison)
