"""What derivatives of a motion cost, in motions: operations of a step, and time in a batch.

    python -m experiments.derivatives [--cases "arm 2" "arm 6"] [--steps fixed adaptive]
        [--spans 0.5 2 20] [--rate 100] [--event 0.02] [--single] [--counts]

A step is one of RK4, of 1 ms, with projection, or of `Adaptive()`, in float64, or in float32 with
`--single`. Operations are those
on scalars, as the compiler counts them: for fixed steps those of a step, for adaptive ones those of
the whole program. Times are the shortest of some, in CPU time, for a batch of 1,024, that of the
motion for each ms of it. States are saved `rate` times a second. A tangent is that of one
parameter, a gradient that of both. With `--event` the motion is turned back, with 0.8 of its
velocities, where the second coordinate has grown by that much. With `--counts` nothing is run:
there are operations alone, also those of a row of the Hessian, the tangent of the gradient.
"""

import argparse
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

import jaxmech as jm
from experiments.measuring import quaternion_of, table_head, table_row, timed
from jaxmech import parts as jp

BATCH, MS = 1024, 1e-3
KINDS = "fixed", "adaptive"
AXES = ((0, 0, 1), (0, 1, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1))
HEAD = ("mechanism", "steps", "span [s]", "operations", "tangent", "gradient", "motion [us]",
        "tangent, time", "gradient, time", "first motion [CPU s]",
        "first gradient [CPU s]")  # fmt: skip
Params = dict[str, Any]


class Case(NamedTuple):
    """A motion from a state, as a function of two of its parameters."""

    system: jm.System
    q: Any
    v: Any
    params: Params
    varied: tuple[str, str] = ("m", "c")  # the first differs in the batch


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
        attitude = quaternion_of(Rotation.from_matrix(np.stack([x, np.cross(z, x), z], 1)))
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


def case_of(made: Made) -> Case:
    """A mechanism at its start."""
    mechanism, starts = made
    q, v = mechanism.guess(starts)
    if mechanism.system.constraints:
        q, v = jm.assemble(mechanism.system, q, v, 0.0, mechanism.params)
    return Case(mechanism.system, q, v, dict(mechanism.params))


def double_pendulum() -> Case:
    """The one of the catalogue, in Cartesian coordinates."""
    model = jm.models.double_pendulum()
    return Case(model.system, *model.initial(), dict(model.params), ("m1", "l1"))


CASES: dict[str, Callable[[], Case]] = {
    "double pendulum": double_pendulum,
    "arm 2": lambda: case_of(arm(2)),
    "arm 3": lambda: case_of(arm(3)),
    "arm 6": lambda: case_of(arm(6)),
    "arm 12": lambda: case_of(arm(12)),
    "four-bar": lambda: case_of(four_bar()),
    "Stewart": lambda: case_of(stewart()),
}


def event_of(case: Case, growth: float | None) -> tuple[jm.Event, ...]:
    """The event that turns a motion back where the second coordinate has grown by so much."""
    if growth is None:
        return ()
    turned_back = jm.Transition(lambda q, v, t, p: (q, -0.8 * v))
    limit = case.q[1] + growth
    return (jm.Event(lambda q, v, t, p: q[1] - limit, direction=1, transition=turned_back),)


def end_of(
    case: Case, kind: str, span: float, given: argparse.Namespace
) -> Callable[[Params], Any]:
    """A number of the last state as a function of two parameters."""
    rate, events = given.rate, event_of(case, given.event)
    ts = jnp.linspace(0.0, span, round(span * rate) + 1)
    fixed = jm.FixedSteps(per_save=max(1, round(1 / (rate * MS))))
    steps = fixed if kind == "fixed" else jm.Adaptive()
    system, q, v, params, _ = case

    def end(p: Params) -> Any:
        return (
            jm.simulate(system, q, v, ts, {**params, **p}, steps=steps, events=events).q[-1].sum()
        )

    return end


def batch_of(case: Case) -> Params:
    """Parameters of a batch."""
    first, second = case.varied
    return {
        first: jnp.linspace(0.9, 1.1, BATCH) * case.params[first],
        second: jnp.full(BATCH, case.params[second]),
    }


def row(name: str, kind: str, span: float, given: argparse.Namespace) -> tuple[Any, ...]:
    """A row of the table, or with `--counts` of that of operations alone."""
    case = CASES[name]()
    end, p = end_of(case, kind, span, given), batch_of(case)
    directions = dict(zip(case.varied, (jnp.ones(()), jnp.zeros(())), strict=True))

    def tangent_of(fn: Callable[[Params], Any]) -> Callable[[Params], Any]:
        return lambda p: jax.jvp(fn, (p,), (directions,))[1]

    functions = [end, tangent_of(end), jax.grad(end)]
    if given.counts:
        functions.append(tangent_of(jax.grad(end)))
    step, *others = (jm.compiler.explain(fn, p).parts[-1].operations for fn in functions)
    operations = name, kind, span, step, *(count / step for count in others)
    if given.counts:
        return operations
    batches = [jax.jit(jax.vmap(fn)) for fn in functions]
    motion, tangent, gradient = (timed(partial(batch, p)) for batch in batches)
    ratios = tangent.best / motion.best, gradient.best / motion.best
    per_ms = motion.best / BATCH / (span / MS) * 1e6
    return *operations, per_ms, *ratios, motion.first, gradient.first


def main() -> None:
    """Print a table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=["arm 2", "arm 6"], choices=CASES)
    parser.add_argument("--steps", nargs="*", default=["fixed"], choices=KINDS)
    parser.add_argument("--spans", nargs="*", type=float, default=[0.5])
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--event", type=float, metavar="GROWTH", help="with an event, see above")
    parser.add_argument("--single", action="store_true", help="in float32")
    parser.add_argument("--counts", action="store_true", help="operations alone")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", not arguments.single)
    names = (*HEAD[:6], "row of the Hessian") if arguments.counts else HEAD
    print(table_head(names))
    runs = itertools.product(arguments.steps, arguments.cases, arguments.spans)
    for kind, name, span in runs:
        print(table_row(row(name, kind, span, arguments)), flush=True)


if __name__ == "__main__":
    main()
