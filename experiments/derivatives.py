"""What derivatives of a motion cost, in motions: operations of a step, and time in a batch.

    python -m experiments.derivatives [--cases "arm 2" "arm 6"] [--steps fixed adaptive]

A step is one of RK4, of 1 ms, with projection, or of `Adaptive()`, in float64. Operations are those
on scalars, as the compiler counts them: for fixed steps those of a step, for adaptive ones those of
the whole program. Times are the shortest of some, for a batch of 1,024. A tangent is that of one
parameter, a gradient that of both.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp

TS, BATCH, REPEATS = jnp.linspace(0.0, 0.5, 51), 1024, 5
STEPS = {"fixed": jm.FixedSteps(per_save=10), "adaptive": jm.Adaptive()}
AXES = ((0, 0, 1), (0, 1, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1))
HEAD = ("mechanism", "steps", "operations", "tangent", "gradient", "motion [us]", "gradient, time",
        "first motion [CPU s]", "first gradient [CPU s]")  # fmt: skip
Params = dict[str, Any]
Made = tuple[jp.Mechanism, Mapping[str, jp.Start]]


def arm(count: int) -> Made:
    """Links on hinges, of which the first is vertical; lengths are those of a small robot."""
    links = [
        jp.spatial_body(f"b{k}", mass="m", inertia=(0.02, 0.02, 0.003), center=(0, 0, "c"))
        for k in range(count)
    ]
    hinges = [
        jp.revolute(f"j{k}", before, (0, 0, 0.4 if k else 0), link, (0, 0, 0), axis=AXES[k % 6])
        for k, (before, link) in enumerate(zip([jp.ground, *links], links, strict=False))
    ]
    starts = {f"j{k}": jp.Start(0.3 + 0.1 * k, velocity=0.5) for k in range(count)}
    return jp.Mechanism(links, hinges, [jp.gravity()], params={"m": 1.5, "c": 0.2}), starts


def four_bar() -> Made:
    """A planar four-bar linkage."""
    crank, coupler, rocker = bodies = [
        jp.planar_body(name, mass="m", inertia=0.01, center=("c", 0))
        for name in ("crank", "coupler", "rocker")
    ]
    joints = [
        jp.revolute("O", jp.ground, (0, 0), crank, (0, 0)),
        jp.revolute("A", crank, (0.3, 0), coupler, (0, 0)),
        jp.revolute("B", coupler, (0.8, 0), rocker, (0.6, 0)),
        jp.revolute("C", jp.ground, (0.7, 0), rocker, (0, 0)),
    ]
    mechanism = jp.Mechanism(bodies, joints, [jp.gravity()], params={"m": 1.5, "c": 0.2})
    return mechanism, {"O": jp.Start(1.2), "A": jp.Start(-0.8), "C": jp.Start(1.6)}


def stewart() -> Made:
    """A platform on six legs, each with a universal joint, a slide with a spring, and a ball."""
    lift = np.array([0, 0, 1.0])
    angles = np.radians([[-10, 10, 110, 130, 230, 250], [-50, 50, 70, 170, 190, 290]])
    low_points, high_points = (
        np.stack([r * np.cos(a), r * np.sin(a), 0 * a], 1)
        for r, a in zip((1.0, 0.5), angles, strict=True)
    )
    top = jp.spatial_body("top", mass=20.0, inertia=(1.0, 1.0, 2.0))
    bodies, joints, starts = [top], list[Any](), {"top": jp.Start(tuple(lift))}
    forces: list[Any] = [jp.gravity()]
    for k, (foot, head) in enumerate(zip(low_points, high_points, strict=True)):
        span = head + lift - foot
        length = float(np.linalg.norm(span))
        # The slide is along the leg, and the first axis of the universal joint along y.
        z = span / length
        x = np.cross([0, 1, 0], z) / np.linalg.norm(np.cross([0, 1, 0], z))
        attitude = _quaternion(np.stack([x, np.cross(z, x), z], 1))
        low = jp.spatial_body(f"low{k}", mass="m", inertia=(0.03, 0.03, 0.002), center=(0, 0, 0.3))
        up = jp.spatial_body(f"up{k}", mass=1.0, inertia=(0.02, 0.02, 0.001), center=(0, 0, "c"))
        bodies += [low, up]
        ends = (jp.ground, tuple(foot), top, tuple(head))
        joints += [
            jp.universal(
                f"U{k}", jp.ground, tuple(foot), low, (0, 0, 0), axis_a=(0, 1, 0), axis_b=(1, 0, 0)
            ),
            jp.prismatic(f"P{k}", low, (0, 0, 0), up, (0, 0, 0), axis=(0, 0, 1)),
            jp.spherical(f"S{k}", up, (0, 0, 0), top, tuple(head)),
        ]
        forces += [
            jp.spring(f"k{k}", *ends, stiffness=3e4, length=length + 0.005),
            jp.damper(f"c{k}", *ends, damping=50.0),
        ]
        starts[f"low{k}"] = jp.Start(tuple(foot), attitude=attitude)
        starts[f"up{k}"] = jp.Start(tuple(head + lift), attitude=attitude)
    return jp.Mechanism(bodies, joints, forces, params={"m": 2.0, "c": -0.3}), starts


def _quaternion(R: np.ndarray) -> np.ndarray:
    w = np.sqrt(1 + np.trace(R)) / 2
    turn = np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    return np.array([w, *(turn / 4 / w)])


CASES: dict[str, Callable[[], Made]] = {
    "arm 2": lambda: arm(2),
    "arm 3": lambda: arm(3),
    "arm 6": lambda: arm(6),
    "arm 12": lambda: arm(12),
    "four-bar": four_bar,
    "Stewart": stewart,
}


def end_of(made: Made, steps: Any) -> Callable[[Params], Any]:
    """A number of the last state as a function of the parameters."""
    mechanism, starts = made
    q, v = mechanism.guess(starts)
    if mechanism.system.constraints:
        q, v = jm.assemble(mechanism.system, q, v, 0.0, mechanism.params)
    return lambda p: jm.simulate(mechanism.system, q, v, TS, p, steps=steps).q[-1].sum()


def measured(name: str, kind: str) -> tuple[Any, ...]:
    """A row of the table."""
    made = CASES[name]()
    end = end_of(made, STEPS[kind])
    p = {
        "m": jnp.linspace(0.9, 1.1, BATCH) * made[0].params["m"],
        "c": jnp.full(BATCH, made[0].params["c"]),
    }
    directions = {"m": jnp.ones(()), "c": jnp.zeros(())}
    motion = _operations(end, p)
    tangent = _operations(lambda p: jax.jvp(end, (p,), (directions,))[1], p)
    gradient = _operations(jax.grad(end), p)
    runs, first = zip(*(_timed(fn, p) for fn in (end, jax.grad(end))), strict=True)
    ratios = tangent / motion, gradient / motion
    per_step = runs[0] / BATCH / 500 * 1e6
    return (name, kind, motion, *ratios, per_step, runs[1] / runs[0], *first)


def _operations(fn: Callable[[Params], Any], p: Params) -> int:
    return jm.compiler.explain(fn, p).parts[-1].operations


def _timed(fn: Callable[[Params], Any], p: Params) -> tuple[float, float]:
    """The shortest time of a batch, and the CPU time of its first call."""
    batch = jax.jit(jax.vmap(fn))
    began = time.process_time()
    jax.block_until_ready(batch(p))
    first, seconds = time.process_time() - began, []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(batch(p))
        seconds.append(time.perf_counter() - began)
    return min(seconds), first


def main() -> None:
    """Print a table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=["arm 2", "arm 6"], choices=CASES)
    parser.add_argument("--steps", nargs="*", default=["fixed"], choices=STEPS)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}")
    for kind in arguments.steps:
        for name in arguments.cases:
            row = [f"{x:.3g}" if isinstance(x, float) else str(x) for x in measured(name, kind)]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
