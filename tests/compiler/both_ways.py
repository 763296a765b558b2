"""Batches of models, of failures, of sizes and of gradients, for `test_agreement`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments import cases as of_models
from jaxmech.compiler import Explanation, off, operation
from jaxmech.compiler.platforms import why_not
from jaxmech.compiler.vectorize import run_jaxpr
from jaxmech.models import CATALOGUE

Arrays = dict[str, Any]
STEPS = 400
SIZES = (1, 63, 64, 65, 16_385, 40_000)
SEGMENTS = (12, 1, 60)  # of 60 steps between two save times

GENTLE = {name: of_models.GENTLE[name] for name in of_models.GENTLE if name in CATALOGUE}
COARSE = np.array([0.0, 0.3, 0.6, 18.6])  # 60 steps each: a pendulum fails in the last, if g > 9
OFF, NAN = 1, 2  # what is wrong with a start


def made(name: str) -> tuple[jm.models.Model, Arrays]:
    model = of_models.made(name)
    return model, {key: jnp.asarray(value, float) for key, value in model.params.items()}


def states(name: str, *sizes: int) -> tuple[Any, Any]:
    """Batches of consistent q and v, one after the other.

    The last two of a batch of more are one state off its constraints and one NaN.
    """
    q, v = of_models.states(name, np.concatenate([np.linspace(0.0, 1.0, size) for size in sizes]))
    faults = [[0] * (size - 2) + [OFF, NAN] if size > 2 else [0] * size for size in sizes]
    fault = np.concatenate(faults)[:, None]
    q = jnp.where(fault == OFF, 1.1 * q + 0.1, q)
    return jnp.where(fault == NAN, jnp.nan, q), jnp.where(fault == NAN, jnp.nan, v)


def answers(sol: jm.Solution) -> Arrays:
    names = ("q", "v", "energy", "position_residual", "velocity_residual")
    return {name: getattr(sol, name) for name in (*names, "rank", "status", "t_failed")}


def motion(name: str, **policies: Any) -> Arrays:
    """A batch of a model over STEPS steps."""
    model, params = made(name)
    ts = jnp.linspace(0.0, STEPS * GENTLE[name][1], 5)
    policies = {"steps": jm.FixedSteps(STEPS // 4), **policies}

    def run(q: Any, v: Any) -> jm.Solution:
        return jm.simulate(model.system, q, v, ts, params, **policies)

    return answers(jax.jit(jax.vmap(run))(*states(name, 8)))


def solved_by(solver: Any) -> Any:
    projection = jm.Projection(solver=solver)
    return {"formulation": jm.laws.UdwadiaKalaba(solver=solver), "projection": projection}


def endings() -> Arrays:
    """A pendulum for each `Status`."""
    model, _ = made("pendulum")
    q, v = np.tile([-0.9, -np.sqrt(0.19)], (7, 1)), np.zeros((7, 2))
    m, l, g = np.ones(7), np.ones(7), np.ones(7)  # noqa: E741
    g[1] = 1e300  # NONFINITE
    q[2, 0] = 0.0  # INCONSISTENT
    q[3], v[3, 0], l[3] = 0.0, 1.0, 0.0  # CONTRADICTORY
    g[4:6] = 10.0, 20.0  # PROJECTION_FAILED, after a while
    m[6] = 0.0  # SINGULAR_MASS
    ts = jnp.asarray(1.0 + COARSE)

    def run(q: Any, v: Any, m: Any, l: Any, g: Any) -> jm.Solution:  # noqa: E741
        params = {"m": m, "l": l, "g": g}
        return jm.simulate(model.system, q, v, ts, params, steps=jm.FixedSteps(60))

    return answers(jax.jit(jax.vmap(run))(q, v, m, l, g))


def sizes() -> Arrays:
    """Batches of pendulums, few steps.

    Under plain vmap, which compiles for each size anew, all are one batch.
    """
    model, params = made("pendulum")
    ts = jnp.linspace(0.0, 0.1, 3)

    @jax.jit
    @jax.vmap
    def run(q: Any, v: Any) -> jm.Solution:
        return jm.simulate(model.system, q, v, ts, params, steps=jm.FixedSteps(5))

    def parts(x: Any) -> list[np.ndarray]:
        return np.split(np.asarray(x), np.cumsum(SIZES)[:-1])

    q, v = states("pendulum", *SIZES)
    if why_not():
        found = {key: parts(x) for key, x in answers(run(q, v)).items()}
    else:
        batches = [answers(run(*start)) for start in zip(parts(q), parts(v), strict=True)]
        found = {key: [one[key] for one in batches] for key in batches[0]}
    return {
        f"{key} {size}": x for key, xs in found.items() for size, x in zip(SIZES, xs, strict=True)
    }


def layouts() -> Arrays:
    """Parameters and times that are batched or shared, and one vmap in another."""
    model, params = made("pendulum")
    q, v = states("pendulum", 5)
    along = jnp.linspace(1.0, 1.3, 5)
    heavy, later = {**params, "g": 9.81 * along}, jnp.outer(along, jnp.linspace(0.0, 0.5, 3))
    one, some = dict.fromkeys(params), {**dict.fromkeys(params), "g": 0}

    def over(*axes: Any) -> Any:
        return jax.vmap(run, axes)

    def run(q: Any, v: Any, params: Any, ts: Any) -> jm.Solution:
        return jm.simulate(model.system, q, v, ts, params, steps=jm.FixedSteps(20))

    ways = {
        "ts": over(None, None, one, 0)(q[0], v[0], params, later),
        "all": over(0, 0, some, 0)(q, v, heavy, later),
        "table": jax.vmap(over(None, None, some, None), (0, 0, None, 0))(q, v, heavy, later),
        "other table": jax.vmap(over(0, 0, one, 0), (None, None, some, None))(q, v, heavy, later),
    }
    return {f"{key} {way}": x for way, sol in ways.items() for key, x in answers(sol).items()}


def heard(sol: jm.Solution) -> Any:
    """A number to which every q and v that was computed contributes."""
    both = jnp.stack([sol.q, sol.v])
    weights = jnp.linspace(0.5, 1.5, both.size).reshape(both.shape)
    return (weights * jnp.sin(jnp.where(jnp.isnan(both), 0.0, both))).sum()


def push(q: Any, v: Any, t: Any, params: Any) -> Any:
    """A force that depends on time, so that the time of each stage matters."""
    return jnp.stack([jnp.sin(2.0 * t), 0.0 * t])


def slopes(name: str, segment: int | None = None) -> Arrays:
    """vmap of grad and grad of the mean, by q0, v0, parameters and ts."""
    model, params = made(name)
    q, v = states(name, 6)
    system, own, ts = model.system, {}, jnp.linspace(0.0, 180 * GENTLE[name][1], 4)
    if name == "pendulum":  # two members of which do not reach the last save
        system, ts = replace(system, force=push), jnp.asarray(COARSE)
        own = {"g": jnp.array([9.81, 20.0, 1.0, 2.0, 1.0, 1.0])}

    def one(q: Any, v: Any, own: Any, shared: Any, ts: Any) -> Any:
        how = {"steps": jm.FixedSteps(60), "derivative": jm.integrate.ReverseMode(segment)}
        return heard(jm.simulate(system, q, v, ts, {**shared, **own}, **how))

    def mean(*args: Any) -> Any:
        return jax.vmap(one, (0, 0, 0, None, None))(*args).mean()

    by, args = (0, 1, 2, 3, 4), (q, v, own, params, ts)
    each = jax.jit(jax.vmap(jax.grad(one, by), (0, 0, 0, None, None)))(*args)
    whole = jax.jit(jax.grad(mean, by))(*args)
    return {
        f"{part} {key}": x
        for key, (q, v, own, params, ts) in {"each": each, "mean": whole}.items()
        for part, x in {"q": q, "v": v, "ts": ts, **params, **own}.items()
    }


POLICIES: dict[str, Callable[[], Arrays]] = {
    "Baumgarte": partial(motion, "double_pendulum", projection=jm.Baumgarte(20.0, 20.0)),
    "no projection": partial(motion, "rolling_wheel", projection=None),
    "DormandPrince5": partial(
        motion, "bead_on_parabola", method=jm.DormandPrince5(), steps=jm.FixedSteps(STEPS // 4)
    ),
}
CASES: dict[str, Callable[[], Arrays]] = {
    f"{name} {type(solver).__name__}": partial(motion, name, **solved_by(solver))
    for solver in (jm.laws.LDL(), jm.laws.QR(), jm.laws.SVD())
    for name in GENTLE
}
CASES |= {"endings": endings, "sizes": sizes, "layouts": layouts, **POLICIES}
CASES |= {f"slopes {name}": partial(slopes, name) for name in GENTLE}
CASES |= {
    f"slopes pendulum {segment}": partial(slopes, "pendulum", segment) for segment in SEGMENTS
}


@contextmanager
def plain() -> Iterator[None]:
    """Run batches by XLA, which need not optimize what native code is compared with."""
    option = "jax_disable_most_optimizations"
    before = jax.config.read(option)
    jax.config.update(option, True)
    try:
        with off():
            yield
    finally:
        jax.config.update(option, before)


def computed(cases: list[str], lanes: bool) -> Arrays:
    """Every array of every case under `case/name`, and why parts fell back under `case/as`."""
    arrays: Arrays = {}
    for case in cases:
        found: list[Explanation] = []

        def noted(call: Any, flags: Any, args: Any, found: list[Explanation] = found) -> Any:
            found.append(Explanation())
            return run_jaxpr(call, flags, args, found[-1])

        with patch.object(operation, "run_jaxpr", noted), nullcontext() if lanes else plain():
            arrays |= {f"{case}/{key}": np.asarray(x) for key, x in CASES[case]().items()}
        arrays[f"{case}/as"] = np.array([part.reason for whole in found for part in whole.parts])
    return arrays
