"""Route: MuJoCo's C engine through `mujoco.rollout`, one thread per core.

MuJoCo integrates joint angles by its RK4 with the step of the case. Initial states are mapped to
angles before timing starts; final states are mapped back in every run, which costs less than one
step. Contacts, limits, springs and everything else that the mechanisms do not have is disabled, for
open chains the whole constraint solver.

- MuJoCo rejects point masses, so they get a moment of inertia of 1e-12 m l^2. After 0.2 s that has
  changed positions by 3e-13 m and velocities by 4e-12 m/s, less than RK4 in other coordinates does.
- The four-bar is a tree of three hinges closed by `connect`, which is soft: the smallest softness
  allowed, 1 - 0.9999 of the free acceleration, and the shortest time constant, two steps. With
  steps of 1 ms the loop stays closed to 2e-9 m; the error falls with the square of the step. The
  solver is Newton's method, one iteration, without warm start and islands, which cost time here.
- `rollout` has to store every state, so a run is cut into calls that reuse one buffer.
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

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


class _Mechanism(NamedTuple):
    """A model for MuJoCo, with the maps between q and v of the case and joint angles and rates."""

    xml: str
    to_joints: Callable[[np.ndarray, np.ndarray], States]
    from_joints: Callable[[np.ndarray, np.ndarray], States]


def mujoco_rollout(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Compile the route of MuJoCo."""
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
