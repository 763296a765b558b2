"""Mechanisms with quaternions in rates and in spins: operations, first calls and speed.

    python -m experiments.spins [--cases body quadruped]

Steps are those of RK4, of 1 ms, with projection, in float64. Operations are those of a law of
motion and of a step, on scalars, as the compiler counts them. Times are CPU time: seconds for the
first call of a batch of 1,024 trajectories, microseconds for a step of one of them and of a single
one. The last column is the largest difference of the coordinates after 0.2 s.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp

CENTER, INERTIA = (0.1, 0.02, 0.2), (0.02, 0.03, 0.04)
STEPS, BATCH, REPEATS = 100, 1024, 3
HEAD = ("mechanism", "velocities", "law", "step", "first call [CPU s]", "batch [us/step]",
        "single [us/step]", "difference")  # fmt: skip
Made = tuple[jp.Mechanism, Mapping[str, jp.Start]]


def body(velocities: Any) -> Made:
    """A free body whose centre of mass is off its reference point."""
    body = jp.spatial_body("body", mass=2.0, inertia=(0.1, 0.2, 0.25), center=CENTER)
    mechanism = jp.Mechanism([body], [], [jp.gravity()], velocities=velocities)
    return mechanism, {"body": jp.Start((0, 0, 1.0), velocity=(1, 0.5, 0), spin=(0.3, 3.0, 0.2))}


def quadruped(velocities: Any) -> Made:
    """A free torso with four legs of three links."""
    torso = jp.spatial_body("torso", mass=10.0, inertia=(0.3, 0.5, 0.6))
    bodies, joints = [torso], []
    starts = {"torso": jp.Start((0, 0, 1.0), velocity=(0.1, 0.2, 0.3), spin=(0.5, -0.4, 0.3))}
    for k, (x, y) in enumerate(((0.3, 0.2), (0.3, -0.2), (-0.3, 0.2), (-0.3, -0.2))):
        leg = [
            jp.spatial_body(f"{name}{k}", mass=0.5, inertia=INERTIA, center=CENTER)
            for name in ("hip", "thigh", "shank")
        ]
        ends = ((x, y, 0), (0, 0.05, 0), (0, 0, -0.2))
        for before, link, end, axis in zip(
            [torso, *leg], leg, ends, ((1, 0, 0), (0, 1, 0), (0, 1, 0)), strict=False
        ):
            joint = jp.revolute(f"to {link.name}", before, end, link, (0, 0, 0), axis=axis)
            joints.append(joint)
            starts[joint.name] = jp.Start(0.4, velocity=0.5)
        bodies += leg
    return jp.Mechanism(bodies, joints, [jp.gravity()], velocities=velocities), starts


def balls(count: int, velocities: Any) -> Made:
    """A chain that hangs on balls."""
    links = [
        jp.spatial_body(f"b{k}", mass=1.0, inertia=INERTIA, center=CENTER) for k in range(count)
    ]
    ends = [jp.ground, *links]
    joints = [
        jp.spherical(f"j{k}", ends[k], (0.05, 0, 0.4), links[k], (0, 0, -0.1)) for k in range(count)
    ]
    turn = tuple(jp.quaternion((1, 2, 3), 0.4).tolist())
    starts = {joint.name: jp.Start(turn) for joint in joints}
    return jp.Mechanism(links, joints, [jp.gravity()], velocities=velocities), starts


def linkage(velocities: Any) -> Made:
    """A crank and a rocker with a rod on two balls, of which one closes the loop."""
    bodies = crank, rod, rocker = [
        jp.spatial_body(name, mass=1.0, inertia=(0.05, 0.05, 0.02))
        for name in ("crank", "rod", "rocker")
    ]
    joints = [
        jp.revolute("A", jp.ground, (0, 0, 0), crank, (0, 0, 0), axis=(0, 0, 1)),
        jp.spherical("B", crank, (0.2, 0, 0), rod, (-0.4, 0, 0)),
        jp.revolute("D", jp.ground, (0.9, 0.3, 0), rocker, (0, 0, 0), axis=(1, 0, 0)),
        jp.spherical("C", rod, (0.4, 0, 0), rocker, (-0.1, 0, -0.5)),
    ]
    mechanism = jp.Mechanism(bodies, joints, [jp.gravity()], cut=["C"], velocities=velocities)
    return mechanism, {"A": jp.Start(0.3, velocity=1.0), "D": jp.Start(0.2)}


CASES: Mapping[str, Callable[[Any], Made]] = {
    "body": body,
    "quadruped": quadruped,
    "4 balls": partial(balls, 4),
    "8 balls": partial(balls, 8),
    "linkage": linkage,
}


def figures(made: Callable[[Any], Made], velocities: str, start: Any) -> tuple[list[Any], Any, Any]:
    """A row of the table, the coordinates after 0.2 s, and the start in rates."""
    mechanism, starts = made(velocities)
    system, zero = mechanism.system, jnp.zeros(())
    if start is None:
        q, v = jm.assemble(system, *mechanism.guess(starts), 0.0, {})
        start = q, system.dynamics.speeds(q, v, zero, {})
    q, v = start[0], system.dynamics.from_speeds(*start, zero, {})
    Q, V = (jnp.broadcast_to(x, (BATCH, *x.shape)) for x in (q, v))

    def law(q: Any, v: Any) -> Any:
        return jm.acceleration(system, q, v, 0.0, {}).qdd

    def run(q: Any, v: Any, steps: int = STEPS) -> Any:
        ts = jnp.linspace(0.0, 0.002 * steps, 3)
        return jm.simulate(system, q, v, ts, {}, steps=jm.FixedSteps(steps))

    counts = [_operations(law, Q, V), _operations(run, Q, V)]
    clock = time.process_time()
    many, one = jax.jit(jax.vmap(run)), jax.jit(run)
    sol = jax.block_until_ready(many(Q, V))
    first = time.process_time() - clock
    assert (sol.status == jm.Status.OK).all()
    jax.block_until_ready(one(q, v))
    times = [
        _shortest(partial(many, Q, V), 1) / BATCH,
        _shortest(partial(one, q, v), 10),
    ]
    per_step = [f"{1e6 * seconds / (2 * STEPS):.3f}" for seconds in times]
    return [velocities, *counts, f"{first:.1f}", *per_step], sol.q[0, -1], start


def _operations(fn: Callable[..., Any], *args: Any) -> int:
    return sum(part.operations for part in jm.compiler.explain(fn, *args).parts)


def _shortest(run: Callable[[], Any], calls: int) -> float:
    seconds = []
    for _ in range(REPEATS):
        clock = time.process_time()
        for _ in range(calls):
            jax.block_until_ready(run())
        seconds.append((time.process_time() - clock) / calls)
    return min(seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    jax.config.update("jax_enable_x64", True)
    print("|", *(f"{cell} |" for cell in HEAD))
    print("|" + "---|" * len(HEAD))
    for name in parser.parse_args().cases:
        rates, expected, start = figures(CASES[name], "rates", None)
        spins, q, _ = figures(CASES[name], "spins", start)
        difference = f"{np.abs(q - expected).max():.0e}"
        for row, last in ((rates, ""), (spins, difference)):
            print("|", *(f"{cell} |" for cell in (name, *row, last)), flush=True)


if __name__ == "__main__":
    main()
