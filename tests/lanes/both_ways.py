"""Batches computed in a process of their own: `python -m tests.lanes.both_ways HOW FILE CASE...`.

HOW is `lanes` or `vmap`: whether `tune_cpu` is called, which must precede the first computation and
holds for the whole process. FILE gets every array of every case under `case/name`.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech.lanes import Explanation, batching

Arrays = dict[str, Any]
STEPS = 1000
SIZES = (1, 63, 64, 65, 16_385, 40_000)
SEGMENTS = (1, 12, 60)  # of 60 steps between two save times

# Where a batch starts, from ... to for start variables, and the step [s]. The motions are calm:
# round-off does not grow on them.
GENTLE: dict[str, tuple[Mapping[str, Any], float]] = {
    "pendulum": ({"theta": (-1.2, 0.6), "omega": (0.0, 0.5)}, 2e-3),
    "double_pendulum": ({"theta1": (-0.5, 0.4), "theta2": (0.3, 0.6)}, 2e-3),
    "double_pendulum_angles": ({"theta1": (-0.5, 0.4), "theta2": (0.3, 0.6)}, 2e-3),
    "chain": ({"theta": ([0.1, 0.2, 0.3], [0.4, 0.3, -0.1])}, 2e-3),
    "bead_on_parabola": ({"x1": (0.2, 0.6), "v1": (0.0, 0.2)}, 2e-3),
    "bead_on_rod": ({"r": (0.2, 0.6), "r_rate": (-0.1, 0.2)}, 1e-3),
    "particle_on_curve": ({"x1": (1.3, 1.4)}, 2e-3),
    "rolling_wheel": ({"spin": (-3.0, 2.0), "turn": (0.3, 1.0)}, 2e-3),
    "chaplygin_sleigh": ({"speed": (-0.5, 0.5), "omega": (0.5, 1.1)}, 2e-3),
    "four_bars": ({"angle": (-1.2, -1.8), "omega": (-0.3, 0.3)}, 1e-3),  # hanging
    "free_body": ({"w": ([0.9, 0.0, 0.6], [0.2, 0.3, 0.9])}, 2e-3),
    "andrews": ({"beta": (-0.06, 0.02)}, 1e-6),
}
OPTIONS = {"chain": {"links": 3}}
OFF, NAN = 1, 2  # what is wrong with a start


def made(name: str) -> tuple[jm.models.Model, Arrays]:
    model = jm.models.make(name, OPTIONS.get(name, {}))
    return model, {key: jnp.asarray(value, float) for key, value in model.params.items()}


def states(name: str, size: int) -> tuple[Any, Any]:
    """Consistent q and v, and as the last two members one off its constraints and one NaN."""
    model, params = made(name)

    def state(along: Any, fault: Any) -> tuple[Any, Any]:
        start = {
            key: (1 - along) * jnp.asarray(a) + along * jnp.asarray(b)
            for key, (a, b) in GENTLE[name][0].items()
        }
        q, v = model.state({**model.start, **start}, params)
        return jnp.where(fault == NAN, jnp.nan, jnp.where(fault == OFF, 1.1 * q + 0.1, q)), v

    fault = np.zeros(size, int)
    fault[-2:] = [OFF, NAN][-size:]
    return jax.jit(jax.vmap(state))(jnp.linspace(0.0, 1.0, size), jnp.asarray(fault))


def answers(sol: jm.Solution) -> Arrays:
    names = ("q", "v", "energy", "position_residual", "velocity_residual")
    return {name: getattr(sol, name) for name in (*names, "rank", "status", "t_failed")}


def motion(name: str, **policies: Any) -> Arrays:
    """A batch of a model over STEPS steps."""
    model, params = made(name)
    ts = jnp.linspace(0.0, STEPS * GENTLE[name][1], 5)
    policies = {"method": jm.RK4(STEPS // 4), **policies}

    def run(q: Any, v: Any) -> jm.Solution:
        return jm.simulate(model.system, q, v, ts, params, **policies)

    return answers(jax.jit(jax.vmap(run))(*states(name, 8)))


def solved_by(solver: Any) -> Any:
    projection = jm.Projection(solver=solver)
    return {"formulation": jm.UdwadiaKalaba(solver=solver), "projection": projection}


def endings() -> Arrays:
    """A pendulum for each `Status`, and failures in the middle of a run."""
    model, _ = made("pendulum")
    q, v = np.tile([0.6, -0.8], (8, 1)), np.tile([0.8, 0.6], (8, 1))
    m, l, g = np.ones(8), np.ones(8), np.full(8, 9.81)  # noqa: E741
    g[1] = 1e300  # NONFINITE
    v[2] += 0.1  # INCONSISTENT
    q[3], v[3], l[3] = 0.0, [1.0, 0.0], 0.0  # CONTRADICTORY
    m[4] = 0.0  # SINGULAR_MASS
    g[5:], v[5:] = [1e3, 2e3, 4e3], 0.0  # PROJECTION_FAILED, once it has fallen for a while
    ts = jnp.linspace(1.0, 2.0, 11)

    def run(q: Any, v: Any, m: Any, l: Any, g: Any) -> jm.Solution:  # noqa: E741
        params = {"m": m, "l": l, "g": g}
        return jm.simulate(model.system, q, v, ts, params, method=jm.RK4(20))

    return answers(jax.jit(jax.vmap(run))(q, v, m, l, g))


def sizes() -> Arrays:
    """Batches of pendulums, few steps."""
    model, params = made("pendulum")
    ts = jnp.linspace(0.0, 0.1, 3)

    @jax.jit
    @jax.vmap
    def run(q: Any, v: Any) -> jm.Solution:
        return jm.simulate(model.system, q, v, ts, params, method=jm.RK4(5))

    found = {size: answers(run(*states("pendulum", size))) for size in SIZES}
    return {f"{key} {size}": x for size, one in found.items() for key, x in one.items()}


def layouts() -> Arrays:
    """What is batched and what is shared, and one vmap in another."""
    model, params = made("double_pendulum")
    q, v = states("double_pendulum", 5)
    many = jnp.linspace(1.0, 1.3, 5)
    lighter, later = {**params, "m2": many}, jnp.linspace(0.0, 0.5, 3) * many[:, None]
    one, some = dict.fromkeys(params), {**dict.fromkeys(params), "m2": 0}

    def run(q: Any, v: Any, params: Any, ts: Any) -> jm.Solution:
        return jm.simulate(model.system, q, v, ts, params, method=jm.RK4(20))

    def inner(axes: Any) -> Any:
        return jax.vmap(run, axes)

    ways = {
        "params": inner((None, None, some, None))(q[0], v[0], lighter, later[0]),
        "ts": inner((None, None, one, 0))(q[0], v[0], params, later),
        "all": inner((0, 0, some, 0))(q, v, lighter, later),
        "q alone": inner((0, None, one, None))(q, v[0], params, later[0]),
        "nested": jax.vmap(inner((None, None, some, None)), (0, 0, None, 0))(q, v, lighter, later),
        "twice": jax.vmap(inner((0, 0, one, 0)), (None, None, some, None))(q, v, lighter, later),
    }
    return {f"{key} {way}": x for way, sol in ways.items() for key, x in answers(sol).items()}


def heard(sol: jm.Solution) -> Any:
    """A number to which every q and v that was computed contributes."""
    weights = jnp.linspace(0.5, 1.5, sol.q.size).reshape(sol.q.shape)
    both = jnp.stack([sol.q, jnp.sin(sol.v)])
    return (weights * jnp.where(jnp.isnan(both), 0.0, both)).sum()


def slopes(name: str, derivative: jm.ReverseMode = jm.ReverseMode()) -> Arrays:
    """vmap of grad and grad of the mean, by q0, v0, params and ts."""
    model, params = made(name)
    q, v = states(name, 6)
    ts = jnp.linspace(0.0, 200 * GENTLE[name][1], 4)

    def one(q: Any, v: Any, params: Any, ts: Any) -> Any:
        how = {"method": jm.RK4(60), "derivative": derivative}
        return heard(jm.simulate(model.system, q, v, ts, params, **how))

    def mean(*args: Any) -> Any:
        return jax.vmap(one, (0, 0, None, None))(*args).mean()

    by = (0, 1, 2, 3)
    each = jax.jit(jax.vmap(jax.grad(one, by), (0, 0, None, None)))(q, v, params, ts)
    whole = jax.jit(jax.grad(mean, by))(q, v, params, ts)
    return {
        f"{key} {part}": x
        for key, (q, v, params, ts) in {"each": each, "whole": whole}.items()
        for part, x in {"q": q, "v": v, "ts": ts, **params}.items()
    }


CASES: dict[str, Callable[[], Arrays]] = {
    f"{name} {type(solver).__name__}": partial(motion, name, **solved_by(solver))
    for solver in (jm.LDL(), jm.QR(), jm.SVD())
    for name in GENTLE
}
CASES |= {"endings": endings, "sizes": sizes, "layouts": layouts}
CASES |= {f"slopes {name}": partial(slopes, name) for name in GENTLE}
CASES |= {
    f"slopes pendulum {segment}": partial(slopes, "pendulum", jm.ReverseMode(segment))
    for segment in SEGMENTS
}
CASES |= {
    "Baumgarte": partial(motion, "double_pendulum", projection=jm.Baumgarte(20.0, 20.0)),
    "no projection": partial(motion, "rolling_wheel", projection=None),
    "Midpoint": partial(motion, "bead_on_rod", method=jm.Midpoint(STEPS // 4)),
    "DormandPrince5": partial(motion, "free_body", method=jm.DormandPrince5(STEPS // 4)),
}


def main(how: str, file: str, *cases: str) -> None:
    if how == "lanes":
        jm.tune_cpu(2)
    jax.config.update("jax_enable_x64", True)
    arrays: Arrays = {"devices": len(jax.devices())}
    for case in cases:
        import time; print(case, time.time(), flush=True)
        found: list[Explanation] = []

        def noted(found: list[Explanation] = found) -> Explanation:
            found.append(Explanation())
            return found[-1]

        with patch.object(batching, "Explanation", noted):
            arrays |= {f"{case}/{key}": x for key, x in CASES[case]().items()}
        arrays[f"{case}/as"] = [part.reason for whole in found for part in whole.parts]
    np.savez(file, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
