"""Route: MuJoCo's C engine through `mujoco.rollout`, one thread per core.

MuJoCo integrates joint angles (a chain of k links has k of them, where the case has 2 k Cartesian
coordinates) with its RK4 and the step of the case. The start is mapped to angles once, before the
clock; the end is mapped back as part of every run, at the cost of less than one step.

Point masses get a moment of inertia of 1e-12 m l^2, because MuJoCo refuses bodies without. After
0.2 s it has changed positions by 3e-13 m and velocities by 4e-12 m/s; RK4 in other coordinates does
more (2e-12 m for two links, 4e-10 m for ten, with steps of 1 ms).

The four-bar is a tree of three hinges closed by `connect`, which MuJoCo keeps soft: a share of
1 - 0.9999 of the free acceleration passes, the smallest that it allows, and what opens is pulled
back with a time constant of two steps, the shortest that it allows by default. With steps of 1 ms
the loop stays within 2e-9 m; the error falls with the square of the step.

All that these mechanisms do not have is off (contacts, limits, springs, damping, actuators,
sensors), for open chains the whole constraint solver. The loop is solved by the default, Newton's
method, which needs one iteration, without warm start and islands, which only cost time here.

`rollout` stores every state and has no other mode. So a run is cut into calls whose states fit into
one buffer, made beforehand and used again. `mujoco.batch` (from 4.0 on), which stores nothing, is
as fast.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.speed.cases import Case
from experiments.speed.routes import Prepared, States, Unavailable

BUFFER_BYTES = 1 << 26

_POINT = 1e-12  # moment of inertia of a point mass, in units of m l^2
_ABSENT = ["limit", "frictionloss", "contact", "spring", "damper", "actuation", "sensor"]
_NOT_WRITTEN = {
    "rolling_wheel": "MuJoCo has no nonholonomic constraints: rolling is friction of soft contacts",
    "andrews": "its spring and loops could be expressed in MuJoCo, but are not written",
}


@dataclass(frozen=True)
class _Mechanism:
    """A mechanism in joint coordinates.

    Attributes:
        xml: the model for MuJoCo.
        to_joints: the case's q and v as joint angles and their rates.
        from_joints: the way back.
    """

    xml: str
    to_joints: Callable[[np.ndarray, np.ndarray], States]
    from_joints: Callable[[np.ndarray, np.ndarray], States]


def mujoco_rollout(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """The route.

    Raises:
        Unavailable: MuJoCo is not installed, or the mechanism is not written for it.
    """
    try:
        import mujoco
        from mujoco.rollout import Rollout
    except ImportError:
        raise Unavailable("mujoco is not installed: pip install 'jaxmech[bench]'") from None

    begun = time.perf_counter()
    mechanism = _mechanism(case)
    model = mujoco.MjModel.from_xml_string(mechanism.xml)
    cores = os.cpu_count() or 1
    workers = [mujoco.MjData(model) for _ in range(cores)]
    pool = Rollout(nthread=cores if cores > 1 else 0)
    angles, rates = mechanism.to_joints(q0, v0)
    start = np.concatenate([np.zeros((len(q0), 1)), angles, rates], axis=1)  # time comes first
    stored = max(1, min(case.steps, BUFFER_BYTES // start.nbytes))
    buffer = np.zeros(stored * start.size)

    def run() -> States:
        state = start
        for done in range(0, case.steps, stored):
            now = min(stored, case.steps - done)
            states = buffer[: now * start.size].reshape(len(start), now, -1)
            pool.rollout(model, workers, state, nstep=now, state=states)
            state = states[:, -1].copy()
        return mechanism.from_joints(*np.split(state[:, 1:], 2, axis=1))

    return Prepared(time.perf_counter() - begun, run)


def _mechanism(case: Case) -> _Mechanism:
    name, p = case.model.name, case.model.params
    if name == "double_pendulum":
        return _chain(np.array([p["m1"], p["m2"]]), np.array([p["l1"], p["l2"]]), p["g"], case)
    if name == "chain":
        return _chain(np.asarray(p["m"]), np.asarray(p["l"]), p["g"], case)
    if name == "four_bars" and case.model.system.n == 9:
        return _four_bar(p["m"], p["l"], p["g"], case)
    raise Unavailable(_NOT_WRITTEN.get(name, f"{case.name} is not written for MuJoCo"))


def _chain(m: np.ndarray, l: np.ndarray, g: float, case: Case) -> _Mechanism:  # noqa: E741
    """Point masses on rods, which hang along -y where all angles are zero."""
    bodies = ""
    for mass, length, hinge in reversed(list(zip(m, l, [0.0, *-l[:-1]], strict=True))):
        inertia = _POINT * mass * length**2
        bodies = _body(f"0 {hinge} 0", f"0 {-length} 0", mass, inertia, bodies)

    def to_joints(q: np.ndarray, v: np.ndarray) -> States:
        rods, rates = (np.diff(x.reshape(len(x), -1, 2), axis=1, prepend=0.0) for x in (q, v))
        theta = np.arctan2(rods[..., 0], -rods[..., 1])
        omega = (rods[..., 0] * rates[..., 1] - rods[..., 1] * rates[..., 0]) / l**2
        return np.diff(theta, prepend=0.0), np.diff(omega, prepend=0.0)

    def from_joints(angles: np.ndarray, rates: np.ndarray) -> States:
        theta, omega = np.cumsum(angles, axis=1), np.cumsum(rates, axis=1)
        along = np.stack([np.sin(theta), -np.cos(theta)], axis=-1) * l[:, None]
        across = np.stack([np.cos(theta), np.sin(theta)], axis=-1) * (l * omega)[..., None]
        q, v = np.cumsum(along, axis=1), np.cumsum(across, axis=1)
        return q.reshape(len(q), -1), v.reshape(len(v), -1)

    return _Mechanism(_xml(bodies, g, case, off="constraint"), to_joints, from_joints)


def _four_bar(m: float, l: float, g: float, case: Case) -> _Mechanism:  # noqa: E741
    """Crank 0 carries the coupler, whose end holds crank 1; where the angles are zero, they hang.

    The coordinates of the case are x, y, angle of crank 0, of crank 1 and of the coupler.
    """
    inertia = m * l**2 / 12
    coupler = _body(f"0 {-l} 0", f"{l / 2} 0 0", m, inertia, name="coupler")
    cranks = _body("0 0 0", f"0 {-l / 2} 0", m, inertia, coupler)
    cranks += _body(f"{l} 0 0", f"0 {-l / 2} 0", m, inertia, name="crank1")
    loop = (
        f'<equality><connect body1="coupler" body2="crank1" anchor="{l} 0 0" '
        f'solref="{2 * case.step_size} 1" solimp="0.9999 0.9999 0.001"/></equality>'
    )

    def to_joints(q: np.ndarray, v: np.ndarray) -> States:
        crank0, crank1, link = q[:, 2] + np.pi / 2, q[:, 5] + np.pi / 2, q[:, 8]
        angles = np.stack([crank0, link - crank0, crank1], axis=1)
        return angles, np.stack([v[:, 2], v[:, 8] - v[:, 2], v[:, 5]], axis=1)

    def from_joints(angles: np.ndarray, rates: np.ndarray) -> States:
        cranks = angles[:, ::2] - np.pi / 2
        link, link_rate = angles[:, 0] + angles[:, 1], rates[:, 0] + rates[:, 1]
        (x0, x1), (y0, y1) = l / 2 * np.cos(cranks.T), l / 2 * np.sin(cranks.T)
        (w0, w1), x, y = rates[:, ::2].T, l / 2 * np.cos(link), l / 2 * np.sin(link)
        q = [x0, y0, cranks[:, 0], l + x1, y1, cranks[:, 1], 2 * x0 + x, 2 * y0 + y, link]
        v = [-y0 * w0, x0 * w0, w0, -y1 * w1, x1 * w1, w1]
        v += [-2 * y0 * w0 - y * link_rate, 2 * x0 * w0 + x * link_rate, link_rate]
        return np.stack(q, axis=1), np.stack(v, axis=1)

    return _Mechanism(_xml(cranks, g, case, "island warmstart", loop), to_joints, from_joints)


def _body(
    hinge: str, centre: str, mass: float, inertia: float, children: str = "", name: str = ""
) -> str:
    """A body on a hinge about z; `inertia` is about its centre."""
    label = f'name="{name}" ' if name else ""
    return (
        f'<body {label}pos="{hinge}"><joint axis="0 0 1"/><inertial pos="{centre}" mass="{mass}" '
        f'diaginertia="{inertia} {inertia} {inertia}"/>{children}</body>'
    )


def _xml(bodies: str, g: float, case: Case, off: str, loop: str = "") -> str:
    flags = " ".join(f'{name}="disable"' for name in [*_ABSENT, *off.split()])
    return (
        f'<mujoco><option timestep="{case.step_size}" gravity="0 {-g} 0" integrator="RK4">'
        f"<flag {flags}/></option><worldbody>{bodies}</worldbody>{loop}</mujoco>"
    )
