"""What gaps cost: a four-bar that bounces off a stop beside MuJoCo, and an arm with twelve stops.

    python -m experiments.gaps [--batch 4096] [--out docs/speed/gaps.json]

The four-bar is one MJCF file for both. In MuJoCo its stop is a stiff spring and the loop is closed
softly; here the stop is an elastic impact and the loop a constraint. The errors are those of the
last angle, against a run with steps an eighth as long. Times are CPU seconds of this process, the
least of some calls.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech.config.environment import environment
from jaxmech.interop.mujoco import from_mjcf

STOP, DURATION = 0.3, 1.0  # angle of the stops [rad], length of a run [s]
STEPS, SOFT_STEP = 160, 1e-3  # steps of jaxmech in a run, step of MuJoCo [s]
CALLS = 5  # of which the fastest counts
AXES = ("0 0 1", "0 1 0", "0 1 0", "0 0 1", "0 1 0", "0 0 1")


def four_bar(step: float) -> str:
    """The four-bar as MJCF, its crank upright; the stops limit the angle of the crank."""
    solver = f'solref="{2 * step} 1" solimp="0.999 0.9999 0.001"'
    return f"""
    <mujoco><compiler angle="radian" autolimits="true"/>
      <option integrator="RK4" timestep="{step}" gravity="0 0 -9.81"/><worldbody>
      <body><joint name="a" axis="0 1 0" limited="true" range="{-STOP} {STOP}"
        solreflimit="-4e5 0" solimplimit="0.9999 0.9999 0.001"/>
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


def seconds(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds of the first call and of the fastest of some others, and the result."""
    times, result = [], None
    for _ in range(1 + CALLS):
        began = time.process_time()
        result = jax.block_until_ready(call())
        times.append(time.process_time() - began)
    return times[0], min(times[1:]), result


def bouncing(batch: int) -> dict[str, Any]:
    """The four-bar: errors and times of both programs."""
    import mujoco
    from mujoco.rollout import Rollout

    bare = from_mjcf(four_bar(SOFT_STEP)).system
    gap = jm.Unilateral(lambda q, t, p: STOP + jnp.array([1.0, -1.0]) * q[0], 1.0, name="stop")
    system = replace(bare, unilateral=(gap,))
    q0 = jnp.zeros(bare.n)
    slopes = np.asarray(bare.dynamics.velocity_jacobian(q0, q0, 0.0, {}))
    motion = np.linalg.svd(slopes)[2][-1]
    motion = motion / motion[0]
    rates = np.linspace(0.5, 2.5, batch)
    v0 = jnp.asarray(rates[:, None] * motion)
    ts = jnp.array([0.0, DURATION])

    def runs(system: Any, steps: int, v0: Any = v0) -> Any:
        policy = jm.FixedSteps(per_save=steps)
        run = jax.jit(jax.vmap(lambda v: jm.simulate(system, q0, v, ts, steps=policy)))
        return lambda: run(v0)

    first, best, sol = seconds(runs(system, STEPS))
    plain_first, plain_best, _ = seconds(runs(bare, STEPS))
    fine = runs(system, 8 * STEPS)()
    assert (np.asarray(sol.status) == 0).all(), "a run failed"
    model = mujoco.MjModel.from_xml_string(four_bar(SOFT_STEP))
    states = np.concatenate([np.zeros((batch, 1 + 3)), np.asarray(v0)], axis=1)
    count = round(DURATION / SOFT_STEP)
    with Rollout(nthread=1) as rollout:
        data = mujoco.MjData(model)
        soft = seconds(lambda: rollout.rollout(model, data, states, nstep=count)[0])
    end = np.asarray(fine.q[:, -1, 0])
    return {
        "batch": batch,
        "impacts a trajectory": float(sum(fine.events[k].count.mean() for k in fine.events)),
        "error": float(np.median(np.abs(np.asarray(sol.q[:, -1, 0]) - end))),
        "MuJoCo: error": float(np.median(np.abs(soft[2][:, -1, 1] - end))),
        "us a trajectory": best / batch * 1e6,
        "without the stop": plain_best / batch * 1e6,
        "MuJoCo: us a trajectory": soft[1] / batch * 1e6,
        "ratio": soft[1] / best,
        "first call [s]": first,
        "first call without the stop [s]": plain_first,
    }


def twelve_stops(batch: int, steps: int = 100) -> dict[str, Any]:
    """The arm that never touches its stops, with and without them."""
    draws = np.random.default_rng(0)
    q0 = jnp.asarray(draws.uniform(-0.5, 0.5, (batch, 6)))
    v0 = jnp.asarray(draws.normal(size=(batch, 6)))
    ts, results = jnp.linspace(0.0, 0.5, 11), {}
    for limits in (False, True):
        system, policy = arm(limits), jm.FixedSteps(per_save=steps // 10)
        run = jax.jit(jax.vmap(lambda q, v: jm.simulate(system, q, v, ts, steps=policy)))  # noqa: B023
        first, best, sol = seconds(lambda: run(q0, v0))  # noqa: B023
        name = "with" if limits else "without"
        results[name] = {"first call [s]": first, "us a step": best / batch / steps * 1e6}
        results.setdefault("angles", []).append(np.asarray(sol.q[:, -1]))
    without, with_stops = results.pop("angles")
    np.testing.assert_allclose(with_stops, without, atol=1e-9)
    return results


def main() -> None:
    """Measure, print and write."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = {"four-bar": bouncing(args.batch), "arm": twelve_stops(1024)}
    print(json.dumps(results, indent=2))
    if args.out:
        text = json.dumps({"environment": environment(), **results}, indent=2)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
