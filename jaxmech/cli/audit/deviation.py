"""How far the soft loops and limits of MuJoCo deviate from the motion with rigid ones."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.integrate import FixedSteps, StepWarning
from jaxmech.interop.mujoco import Robot, names_of
from jaxmech.parts import are_numbers
from jaxmech.plot import COLORS, grid, labelled, save
from jaxmech.run import simulate
from jaxmech.status import Status
from jaxmech.system import Holonomic, Unilateral

SAVES = 100
LONGEST_STEP = 1e-3  # of the rigid motion [s]


@dataclass(frozen=True)
class Overrun:
    """How far MuJoCo's motion passes a limit, that of a joint, a tendon or a rope.

    Attributes:
        penetration: how far it is beyond the limit, (T,), [m or rad].
        soft: when it first reaches the limit [s]; NaN if it does not.
        rigid: when the rigid motion does.
    """

    penetration: np.ndarray
    soft: float
    rigid: float


@dataclass(frozen=True)
class Creep:
    """How far MuJoCo moves a joint that its friction holds.

    Attributes:
        way: the way of the joint while the rigid one does not move [m or rad].
        seconds: how long that is [s].
    """

    way: float
    seconds: float


@dataclass(frozen=True)
class Deviation:
    """Both motions from the same state, at times ts (T,).

    Attributes:
        ts: times [s].
        gaps: the residual of each loop in MuJoCo's motion, (T,), [m] of a point and [rad] of an
            attitude.
        distances: between the centres of mass of each body in both motions [m], (T,).
        residual: the largest residual of a loop in the rigid motion.
        error: the estimated error of the rigid motion, as a share of the motion.
        failure: why the rigid motion ended early; empty if it did not.
        limits: how far MuJoCo's motion passes each limit that either motion reaches.
        creeps: how far it moves joints with frictionloss that stick in the rigid motion.
    """

    ts: np.ndarray
    gaps: dict[str, np.ndarray]
    distances: dict[str, np.ndarray]
    residual: float
    error: float
    failure: str = ""
    limits: Mapping[str, Overrun] = field(default_factory=dict)
    creeps: Mapping[str, Creep] = field(default_factory=dict)


def deviation(robot: Robot, model: Any, q: Any, v: Any, params: Any, seconds: float) -> Deviation:
    """Compare the motion of MuJoCo, without contacts, with the rigid one.

    Limits count that are constraints of the robot.
    """
    bodies = [body for body in robot.mechanism.bodies if body.name in robot.bodies]
    steps_per_save = max(1, round(seconds / SAVES / model.opt.timestep))
    ts = np.arange(0.0, seconds + 1e-9, steps_per_save * model.opt.timestep)
    centers = np.array([_center(body) for body in bodies])
    soft = _soft(robot, model, q, v, params, len(ts), steps_per_save)
    per_save = max(1, int(np.ceil(steps_per_save * model.opt.timestep / LONGEST_STEP)))
    system = robot.mechanism.system
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StepWarning)  # the report states the error
        sol = simulate(system, q, v, ts, params, steps=FixedSteps(per_save), throw=False)
    loops = [c for c in _loops(robot) if isinstance(c, Holonomic)]
    stops = [u for u in system.unilateral if isinstance(u, Unilateral)]
    zero = jnp.zeros(())

    @jax.jit
    @jax.vmap
    def compared(soft: Any, rigid: Any) -> Any:
        q = robot.q(soft)
        gaps = {c.name: jnp.linalg.norm(c.value(q, zero, params)) for c in loops}
        frames = [robot.mechanism.kinematics.frames(bodies, x, zero, params) for x in (q, rigid)]
        values = {stop.name: stop.constraint.value(q, zero, params) for stop in stops}
        return (
            gaps,
            values,
            [
                jnp.linalg.norm(a.point(center) - b.point(center))
                for a, b, center in zip(*frames, centers, strict=True)
            ],
        )

    gaps, values, distances = compared(soft, sol.q)
    failed = Status(int(sol.status)) != Status.OK
    return Deviation(
        ts,
        {name: np.asarray(gap) for name, gap in gaps.items()},
        {body.name: np.asarray(x) for body, x in zip(bodies, distances, strict=True)},
        float(jnp.max(sol.position_residual)),
        float(sol.integration_error),
        Status(int(sol.status)).name if failed else "",
        _overruns(ts, {name: np.asarray(value) for name, value in values.items()}, sol.events),
        _creeps(robot, ts, soft, {} if sol.events is None else sol.events.active),
    )


def _creeps(
    robot: Robot, ts: np.ndarray, soft: np.ndarray, active: Mapping[str, Any]
) -> dict[str, Creep]:
    """The joints with frictionloss that stick at some time."""
    q, creeps = np.asarray(jax.vmap(robot.q)(soft)), {}
    for name, coordinates in robot.joints.items():
        sticks = np.asarray(active.get(f"{name}.friction", np.zeros(len(ts), bool)))
        holds = sticks[1:] & sticks[:-1]
        if holds.any():
            x = q[:, robot.system.coordinates.index(coordinates[0])]
            way, seconds = np.abs(np.diff(x))[holds].sum(), np.diff(ts)[holds].sum()
            creeps[name] = Creep(float(way), float(seconds))
    return creeps


def _overruns(ts: np.ndarray, gaps: dict[str, np.ndarray], events: Any) -> dict[str, Overrun]:
    """The limits that a motion reaches, each with gaps (T, k) in MuJoCo's motion."""
    overruns = {}
    for name, values in gaps.items():
        for k, gap in enumerate(values.T):
            label = name if values.shape[1] == 1 else f"{name}[{k}]"
            closes = events[f"{label} closes"]
            rigid = float(closes.t[0]) if int(closes.count) else np.nan
            beyond = np.maximum(-gap, 0.0)
            if beyond.any() or np.isfinite(rigid):
                overruns[label] = Overrun(beyond, _first_zero(ts, gap), rigid)
    return overruns


def _first_zero(ts: np.ndarray, gap: np.ndarray) -> float:
    """When a gap first becomes negative, between two saves by a straight line."""
    if not (gap < 0).any():
        return np.nan
    k = int(np.argmax(gap < 0))
    if k == 0:
        return float(ts[0])
    share = gap[k - 1] / (gap[k - 1] - gap[k])
    return float(ts[k - 1] + share * (ts[k] - ts[k - 1]))


def _loops(robot: Robot) -> list[Any]:
    """The constraints that are not unit quaternions."""
    return [c for c in robot.mechanism.system.constraints if not c.name.endswith(".unit")]


def _center(body: Any) -> Any:
    """The centre of mass on a body; its reference point where that is a parameter."""
    center = body.properties.center
    return center if are_numbers(center) else np.zeros(3)


def _soft(
    robot: Robot, model: Any, q: Any, v: Any, params: Any, count: int, steps_per_save: int
) -> np.ndarray:
    """MuJoCo's qpos at all times, (T, nq)."""
    import mujoco

    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    left_out = robot.ignored
    for flags, names, kind in (
        (model.jnt_limited, [*robot.joints], "joint limit"),
        (model.tendon_limited, names_of(model, "tendon", model.ntendon), "tendon"),
    ):
        flags[[name in left_out.get(kind, ()) for name in names]] = 0
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = robot.qpos(q), robot.qvel(q, v)
    for k in range(model.nu):
        data.ctrl[k] = params.get(f"ctrl.{model.actuator(k).name}", 0.0)
    rows = [data.qpos.copy()]
    for _ in range(count - 1):
        mujoco.mj_step(model, data, steps_per_save)
        rows.append(data.qpos.copy())
    return np.array(rows)


MOST_LINES = len(COLORS)


def draw(comparison: Deviation, title: str, folder: Path) -> Path:
    """Write loops.png into a folder."""
    beyond = {name: limit.penetration for name, limit in comparison.limits.items()}
    pairs: list[tuple[dict[str, np.ndarray], str]] = [
        (comparison.gaps, "gap of the loop [m, rad]"),
        (beyond, "beyond the limit [m, rad]"),
        (comparison.distances, "body off by [m]"),
    ]
    pairs = [(values, label) for values, label in pairs if values]
    figure, axes = grid(len(pairs))
    for ax, (values, label) in zip(axes, pairs, strict=True):
        largest = sorted(values, key=lambda name: -values[name].max())[:MOST_LINES]
        for name, color in zip(largest, COLORS, strict=False):
            positive = np.where(values[name] > 0, values[name], np.nan)
            ax.semilogy(comparison.ts, positive, color=color, linewidth=1.2, label=name)
        labelled(ax, "t [s]", label, legend=True)
    folder.mkdir(parents=True, exist_ok=True)
    return save([("loops", f"{title}: MuJoCo's motion against the rigid one", figure)], folder)[0]
