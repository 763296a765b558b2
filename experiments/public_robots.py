"""Public robots in joint coordinates against MuJoCo, and URDF files against pinocchio.

In random states of each file, the mass matrix and the accelerations of the tree, without contacts,
limits, equalities and dry friction, are compared with those of MuJoCo's `mj_forward`, and those of
a URDF file, which must not have a floating base, also with pinocchio (mass matrix and bias).
Without files it takes an arm, a quadruped and a hand from `robot_descriptions`, which clones them
from GitHub. What is not installed or cannot be reached is skipped with a word. Deviations are
relative to the largest entry.

Usage: python -m experiments.public_robots [FILE.xml FILE.urdf ...]
"""

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxmech.interop.mujoco import IgnoredElementsWarning, Robot, from_mjcf
from jaxmech.interop.mujoco.source import compiled, spec_of

ROBOTS = ("panda_mj_description", "go1_mj_description", "shadow_hand_mj_description")
STATES = 3


def files() -> Iterator[Path]:
    """The files of the public robots, as far as they can be reached."""
    for name in ROBOTS:
        try:
            yield Path(importlib.import_module(f"robot_descriptions.{name}").MJCF_PATH)
        except Exception as error:  # noqa: BLE001  (git raises errors of its own)
            print(f"{name}: skipped ({type(error).__name__}: {str(error).splitlines()[0][:80]})")


def evaluated(robot: Robot) -> Any:
    """A compiled function of qpos, qvel and parameters: M and the forces, both on qvel."""
    system, zero = robot.mechanism.system, jnp.zeros(())

    @jax.jit
    def mass_and_forces(qpos: Any, qvel: Any, params: Any) -> Any:
        q = robot.q(qpos)
        v = robot.v(q, qvel)
        T = jax.jacfwd(lambda u: robot.v(q, u))(qvel)
        drift = jax.jvp(lambda q: robot.v(q, qvel), (q,), (v,))[1]
        M = system.mass(q, v, zero, params)
        Q = system.conservative_force(q, v, zero, params)
        Q = Q + system.applied_force(q, v, zero, params)
        return T.T @ M @ T, T.T @ (Q - M @ drift)

    return mass_and_forces


def against_mujoco(file: Path, robot: Robot, fn: Any, rng: np.random.Generator) -> list[float]:
    """The largest relative deviations of M and of the accelerations."""
    model = compiled(*spec_of(file))
    bits = mujoco.mjtDisableBit
    for bit in (bits.mjDSBL_CONTACT, bits.mjDSBL_EQUALITY, bits.mjDSBL_LIMIT):
        model.opt.disableflags |= int(bit)
    friction, speed = model.dof_frictionloss.copy(), 0.01
    model.dof_frictionloss[:] = 0
    worst = [0.0, 0.0]
    data = mujoco.MjData(model)
    for _ in range(STATES):
        data.qpos[:] = model.qpos0 + rng.normal(size=model.nq)
        mujoco.mj_normalizeQuat(model, data.qpos)
        data.qvel[:], data.ctrl[:] = rng.normal(size=model.nv), rng.normal(size=model.nu)
        mujoco.mj_forward(model, data)
        given = {f"ctrl.{model.actuator(k).name}": data.ctrl[k] for k in range(model.nu)}
        known = robot.mechanism.params
        M, force = fn(data.qpos, data.qvel, {name: given.get(name, x) for name, x in known.items()})
        force = force + friction * np.tanh(data.qvel / speed)
        expected = full_mass(model, data)
        pairs = ((M, expected), (np.linalg.solve(M, force), data.qacc))
        worst = [max(w, deviation(*pair)) for w, pair in zip(worst, pairs, strict=True)]
    return worst


def full_mass(model: Any, data: Any) -> np.ndarray:
    """MuJoCo's mass matrix, whose function has changed its arguments in version 4."""
    M = np.zeros((model.nv, model.nv))
    try:
        mujoco.mj_fullM(model, data, M)
    except TypeError:
        mujoco.mj_fullM(model, M, data.qM)
    return M


def against_pinocchio(file: Path, robot: Robot, fn: Any, rng: np.random.Generator) -> list[float]:
    """The largest relative deviations of M and of the bias; none without pinocchio."""
    try:
        pin = importlib.import_module("pinocchio")
    except ImportError:
        print(f"{file.name}: pinocchio is not installed")
        return []
    model = pin.buildModelFromUrdf(str(file))
    data, worst = model.createData(), [0.0, 0.0]
    for _ in range(STATES):
        q, v = rng.normal(size=(2, model.nv))
        M, force = fn(q, v, robot.mechanism.params)
        damping = np.asarray(model.damping) * v if hasattr(model, "damping") else 0.0
        bias = pin.nonLinearEffects(model, data, q, v) + damping
        pairs = ((M, pin.crba(model, data, q)), (-force, bias))
        worst = [max(w, deviation(*pair)) for w, pair in zip(worst, pairs, strict=True)]
    return worst


def deviation(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest expected entry."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def main(arguments: list[str]) -> None:
    """Print a line for each robot."""
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore", IgnoredElementsWarning)
    for file in [Path(x) for x in arguments] or files():
        robot = from_mjcf(file)
        fn, rng = evaluated(robot), np.random.default_rng(0)
        M, qacc = against_mujoco(file, robot, fn, rng)
        n = len(robot.mechanism.system.coordinates)
        said = f"{file.name}: {n} coordinates; M {M:.1e}, qacc {qacc:.1e} from MuJoCo"
        if file.suffix == ".urdf" and (found := against_pinocchio(file, robot, fn, rng)):
            said += f"; M {found[0]:.1e}, bias {found[1]:.1e} from pinocchio"
        ignored = ", ".join(f"{len(x)} {kind}" for kind, x in robot.ignored.items())
        print(said + (f"; ignored: {ignored}" if ignored else ""), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
