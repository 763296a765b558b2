"""What gaps cost: a four-bar that bounces off a stop beside MuJoCo, an arm with stops or friction.

    python -m experiments.gaps [--batch 4096] [--out docs/speed/gaps.json]

The four-bar is one MJCF file for both. Here its stop is an elastic impact and the loop a
constraint. In MuJoCo a stop is a spring, and the loop a stiff one with critical damping: both get
stiffer with shorter steps, so that its motion approaches that of the impact. Its table has two
integrators, several steps, and springs of several frequencies in units of a step, without damping,
of which the best for each step are about 0.2 to 0.4. The errors are those of the last angle, the
median over the members, against a run of jaxmech with steps an eighth as long as its shortest.
Times are CPU seconds of this process, the least of some calls, in which both programs alternate.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.measuring import in_turns, write
from jaxmech.interop.mujoco import from_mjcf

STOP, DURATION = 0.3, 1.0  # angle of the stops [rad], length of a run [s]
STEPS = (40, 80, 160, 320)  # of jaxmech in a run
SOFT_STEPS = (1e-3, 2e-4, 5e-5)  # of MuJoCo [s]
FREQUENCIES = (0.1, 0.2, 0.4)  # of the spring in the place of the stop, times the step
INTEGRATORS = ("RK4", "implicitfast")
MEMBERS = 32  # of the batch that MuJoCo computes; its time for each does not depend on others
CALLS = 3  # of which the fastest counts
AXES = ("0 0 1", "0 1 0", "0 1 0", "0 0 1", "0 1 0", "0 0 1")


def four_bar(step: float, integrator: str = "RK4", frequency: float = 0.2) -> str:
    """The four-bar as MJCF, its crank upright; the stops limit the angle of the crank."""
    solver = f'solref="{2 * step} 1" solimp="0.999 0.9999 0.001"'
    return f"""
    <mujoco><compiler angle="radian" autolimits="true"/>
      <option integrator="{integrator}" timestep="{step}" gravity="0 0 -9.81" iterations="200"
        tolerance="1e-12"/><worldbody>
      <body><joint name="a" axis="0 1 0" limited="true" range="{-STOP} {STOP}"
        solreflimit="{-((frequency / step) ** 2)} 0" solimplimit="0.9999 0.9999 0.001"/>
        <inertial pos="0 0 0.15" mass="1" diaginertia="0.01 0.01 0.01"/>
        <body name="coupler" pos="0 0 0.3"><joint name="b" axis="0 1 0"/>
          <inertial pos="0.3 0 0" mass="1" diaginertia="0.03 0.03 0.03"/></body></body>
      <body name="rocker" pos="0.7 0 -0.1"><joint name="c" axis="0 1 0"/>
        <inertial pos="-0.05 0 0.2" mass="1" diaginertia="0.02 0.02 0.02"/></body></worldbody>
      <equality><connect body1="coupler" body2="rocker" anchor="0.6 0 0" {solver}/></equality>
    </mujoco>"""


def arm(limits: bool) -> Any:
    """The arm of six axes; with stops at 170 degrees on either side of every joint, or without."""
    masses, damping = (6, 4, 3, 2, 1.2, 0.8), (2, 3, 2, 0.6, 0.4, 0.2)
    text = "".join(
        f'<body pos="0 0 {0.4 if k else 0}"><joint axis="{axis}" damping="{damping[k]}" '
        f'limited="true" range="-170 170"/><inertial pos="0 0 0.2" mass="{masses[k]}" '
        'diaginertia="0.02 0.02 0.005"/>'
        for k, axis in enumerate(AXES)
    )
    xml = f"<mujoco><worldbody>{text}{'</body>' * len(AXES)}</worldbody></mujoco>"
    return from_mjcf(xml, limits=limits).system


def rollouts(order: list[int], v0: np.ndarray) -> dict[Any, Callable[[], Any]]:
    """The runs of MuJoCo by their settings, whose coordinates have an order of their own."""
    import mujoco
    from mujoco.rollout import Rollout

    states = np.concatenate([np.zeros((len(v0), 1 + 3)), v0[:, order]], axis=1)

    def run(setting: tuple[str, float, float]) -> Callable[[], Any]:
        integrator, step, frequency = setting
        xml = four_bar(step, integrator, frequency)
        model, rollout = mujoco.MjModel.from_xml_string(xml), Rollout(nthread=1)
        data, count = mujoco.MjData(model), round(DURATION / step)
        return lambda: rollout.rollout(model, data, states, nstep=count)[0][:, -1, 1]

    return {setting: run(setting) for setting in product(INTEGRATORS, SOFT_STEPS, FREQUENCIES)}


def bouncing(batch: int) -> dict[str, Any]:
    """The four-bar: errors and times of both programs by their settings."""
    bare = from_mjcf(four_bar(1e-3)).system
    gap = jm.Unilateral(lambda q, t, p: STOP + jnp.array([1.0, -1.0]) * q[0], 1.0, name="stop")
    system = replace(bare, unilateral=(gap,))
    q0 = jnp.zeros(bare.n)
    slopes = np.asarray(bare.dynamics.velocity_jacobian(q0, q0, jnp.zeros(()), {}))
    motion = np.linalg.svd(slopes)[2][-1]
    v0 = np.linspace(0.5, 2.5, batch)[:, None] * (motion / motion[0])
    some = slice(None, None, max(1, batch // MEMBERS))
    ts = jnp.array([0.0, DURATION])

    def run(system: Any, steps: int, v0: Any = jnp.asarray(v0)) -> Callable[[], Any]:  # noqa: B008
        policy = jm.FixedSteps(per_save=steps)
        compiled = jax.jit(jax.vmap(lambda v: jm.simulate(system, q0, v, ts, steps=policy)))
        return lambda: compiled(v0)

    ours: dict[Any, Callable[[], Any]] = {steps: run(system, steps) for steps in STEPS}
    order = [bare.coordinates.index(f"{joint}.angle") for joint in "abc"]
    runs = {**ours, "bare": run(bare, STEPS[2]), **rollouts(order, v0[some])}
    measured = in_turns(runs, CALLS)
    fine = run(system, 8 * STEPS[-1])()
    assert (np.asarray(fine.status) == 0).all(), "a run failed"
    end = np.asarray(fine.q[:, -1, 0])
    rows = {}
    for steps in STEPS:
        first, best, sol = measured[steps]
        error = float(np.median(np.abs(np.asarray(sol.q[:, -1, 0]) - end)))
        row = {"us a trajectory": best / batch * 1e6, "error": error, "first call [s]": first}
        rows[f"jaxmech, {steps} steps"] = row
    for setting in product(INTEGRATORS, SOFT_STEPS, FREQUENCIES):
        _, best, angles = measured[setting]
        error = float(np.median(np.abs(angles - end[some])))
        integrator, step, frequency = setting
        name = f"MuJoCo, {integrator}, {step:g} s, frequency {frequency:g}"
        rows[name] = {"us a trajectory": best / len(angles) * 1e6, "error": error}
    first, best, _ = measured["bare"]
    without = {"us a trajectory": best / batch * 1e6, "first call [s]": first}
    return {
        "batch": batch,
        "MuJoCo": version("mujoco"),
        "impacts a trajectory": float(sum(fine.events[k].count.mean() for k in fine.events)),
        "runs": rows,
        f"jaxmech, {STEPS[2]} steps, without the stop": without,
    }


def arms(batch: int, steps: int = 100) -> dict[str, Any]:
    """The arm without and with its stops, which it never touches, and with friction in its joints.

    The friction of each joint sticks and slides, since the arm loses its speed by damping.
    """
    draws = np.random.default_rng(0)
    q0 = jnp.asarray(draws.uniform(-0.5, 0.5, (batch, 6)))
    v0 = jnp.asarray(draws.normal(size=(batch, 6)))
    ts, policy = jnp.linspace(0.0, 0.5, 11), jm.FixedSteps(per_save=steps // 10)
    bare, rub = arm(False), jm.DryFriction(lambda q, v, t, p: v, static=0.3, name="joints")
    systems = {"without": bare, "with": arm(True), "friction": replace(bare, unilateral=(rub,))}

    def run(system: Any) -> Callable[[], Any]:
        compiled = jax.jit(jax.vmap(lambda q, v: jm.simulate(system, q, v, ts, steps=policy)))
        return lambda: compiled(q0, v0)

    measured = in_turns({name: run(system) for name, system in systems.items()}, CALLS)
    without, with_stops = (np.asarray(measured[k].result.q[:, -1]) for k in ("without", "with"))
    np.testing.assert_allclose(with_stops, without, atol=1e-9)
    return {
        name: {"first call [s]": first, "us a step": best / batch / steps * 1e6}
        for name, (first, best, _) in measured.items()
    }


def main() -> None:
    """Measure, print and write."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = {"four-bar": bouncing(args.batch), "arm": arms(1024)}
    print(json.dumps(results, indent=2))
    write(args.out, **results)


if __name__ == "__main__":
    main()
