"""Batches divided among four devices, in a process of its own that prints the results.

    JAX_NUM_CPU_DEVICES=4 JAX_ENABLE_X64=1 python -m tests.compiler.sharded Auto batch simulate

The arguments are the type of the axes of the mesh, "without jit" if `jax.set_mesh` is to be used in
place of `jit`, and cases. For each it prints as JSON how large
the batch of each native call is on one device, what the devices exchange, how far the numbers are
from those of a single device, and how the first result is divided.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxmech import FixedSteps, simulate
from jaxmech.analysis import sensitivities
from jaxmech.compiler import batched, vectorize
from jaxmech.integrate import ForwardMode
from tests.small import PENDULUM

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(256, 3))
FACTOR, FACTORS = np.asarray(0.3), RANDOM.normal(size=(4,))
EXCHANGES = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
SPEEDS, LENGTH = np.linspace(0.5, 1.0, 256), np.asarray(2.0)
TS = np.linspace(0.0, 0.1, 3)


@cache
def mesh(*shape: int) -> Mesh:
    """A mesh of four devices, which only this process has."""
    kinds = (getattr(AxisType, sys.argv[1]),) * len(shape)
    return jax.make_mesh(shape, ("x", "y")[: len(shape)], axis_types=kinds)


def put(x: Any, *spec: Any) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh(4), P(*spec)))


def put_on_grid(x: Any, *spec: Any) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh(2, 2), P(*spec)))


def loop(x: Any, factor: Any) -> Any:
    return jax.lax.fori_loop(0, 20, lambda _, y: jnp.sin(y) + factor * x, x)


one = batched(loop)


def several(x: Any, factor: Any) -> Any:
    return each(one)(x, factor)


def grid(x: Any, factors: Any) -> Any:
    return jax.vmap(lambda factor: several(x, factor))(factors)


def square(x: Any, factor: Any) -> Any:
    return (several(x, factor) ** 2).sum()


def trajectories(speeds: Any, length: Any, derivative: Any = None) -> Any:
    """Ends of pendulums of the same length, and the status of each."""
    more = {} if derivative is None else {"derivative": derivative}

    def end(speed: Any) -> Any:
        params = {**PENDULUM.params, "l": length}
        q = PENDULUM.q * length / PENDULUM.params["l"]
        v = speed * PENDULUM.v
        solution = simulate(
            PENDULUM.system, q, v, TS, params, steps=FixedSteps(2), throw=False, **more
        )
        return solution.q[-1], solution.status

    return jax.vmap(end)(speeds)


def swing(speeds: Any, length: Any, derivative: Any = None) -> Any:
    return trajectories(speeds, length, derivative)[0].sum()


def tangent(fn: Callable[..., Any], *args: Any) -> Any:
    return jax.jvp(fn, args, args)


def slopes(speeds: Any, length: Any) -> Any:
    def start(theta: Any) -> Any:
        return (
            PENDULUM.q * theta / PENDULUM.params["l"],
            PENDULUM.v,
            {**PENDULUM.params, "l": theta},
        )

    def one(speed: Any) -> Any:
        return sensitivities(PENDULUM.system, start, length * speed, TS, steps=FixedSteps(2)).q

    return jax.vmap(one)(speeds)


def each(fn: Callable[..., Any]) -> Callable[..., Any]:
    return jax.vmap(fn, (0, None))


def repeated(x: Any, factor: Any) -> Any:
    return jax.lax.scan(lambda y, _: (several(y, factor), None), x, None, 3)[0]


def scanned(xs: Any, factor: Any) -> Any:
    return jax.lax.scan(lambda carry, x: (carry, several(x, factor)), 0.0, xs)[1]


def constrained(x: Any, *spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh(4), P(*spec)))


def halves(x: Any, factor: Any) -> Any:
    return each(several)(x.reshape(2, 128, 3), factor).reshape(256, 3)


def several_by_hand(x: Any, factor: Any) -> Any:
    """Along one axis of the mesh."""
    specs = {"in_specs": (P("x"), P()), "out_specs": P("x"), "axis_names": {"x"}}
    return jax.shard_map(several, mesh=mesh(2, 2), **specs)(x, factor)


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    split, shared = put(X, "x"), put(FACTOR)
    crosswise = put(RANDOM.normal(size=(256, 4)), None, "x")
    starts, length = put(SPEEDS, "x"), put(LENGTH)
    on_grid = put_on_grid(FACTOR)
    return {
        "batch": (several, (split, shared)),
        "host parameter": (several, (split, FACTOR)),
        "vectorize": (lambda x, f: vectorize(loop, (0, None))(x, f) + x, (split, shared)),
        "replicated": (several, (put(X), shared)),
        "other axis": (several, (crosswise, shared)),
        "gradient, shared": (jax.grad(square, 1), (split, shared)),
        "gradient, own": (jax.grad(square), (split, shared)),
        "gradient, other axis": (jax.grad(square), (crosswise, shared)),
        "gradient inside": (each(jax.grad(lambda x, f: one(x, f).sum(), 1)), (split, shared)),
        "Jacobian": (jax.jacfwd(lambda x, f: several(x, f).sum(1), 1), (split, put(FACTORS[:3]))),
        "checkpoint": (jax.grad(jax.checkpoint(square), 1), (split, shared)),
        "in scan": (repeated, (split, shared)),
        "scanned": (scanned, (put(X.reshape(4, 64, 3), None, "x"), shared)),
        "outer axis shared": (grid, (split, put(FACTORS))),
        "outer axis divided": (grid, (put(X), put(FACTORS, "x"))),
        "both axes want it": (grid, (split, put(FACTORS, "x"))),
        "first of a grid": (several, (put_on_grid(X, "x"), on_grid)),
        "second of a grid": (several, (put_on_grid(X, "y"), on_grid)),
        "whole grid, turned": (several, (put_on_grid(X, ("y", "x")), on_grid)),
        "two axes on a grid": (grid, (put_on_grid(X, "x"), put_on_grid(FACTORS, "y"))),
        "fewer than lanes": (several, (put(X[:12], "x"), shared)),
        "one each": (several, (put(X[:4], "x"), shared)),
        "none": (several, (put(X[:0], "x"), shared)),
        "single": (one, (put(X[0]), shared)),
        "part of the mesh manual": (several_by_hand, (put_on_grid(X, "x"), on_grid)),
        "parts of an axis": (halves, (split, shared)),
        "uneven": (lambda x, f: several(constrained(x, "x"), f), (put(X[:101]), shared)),
        "result everywhere": (lambda x, f: constrained(several(x, f)), (split, shared)),
        "simulate": (trajectories, (starts, length)),
        "simulate, gradient": (jax.grad(swing, 1), (starts, length)),
        "simulate, forward": (
            jax.grad(partial(swing, derivative=ForwardMode()), 1),
            (starts, length),
        ),
        "simulate, tangent": (partial(tangent, swing), (starts, length)),
        "simulate, each": (each(jax.grad(lambda s, n: swing(s[None], n))), (starts, length)),
        "simulate, Hessian": (jax.hessian(swing, 1), (starts, length)),
        "sensitivities": (slopes, (starts, length)),
    }


def found(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    program = jax.jit(fn).lower(*args).compile()
    result, text = program(*args), program.as_text()
    plain = jax.jit(several if fn is several_by_hand else fn)(*map(np.asarray, args))
    pairs = list(zip(jax.tree.leaves(result), jax.tree.leaves(plain), strict=True))
    errors = [abs(np.asarray(a, float) - np.asarray(b, float)).max(initial=0.0) for a, b in pairs]
    calls = [line for line in text.splitlines() if 'custom_call_target="jaxmech' in line]
    results = [line.split(" custom-call(")[0].split(" = ")[1] for line in calls]
    return {
        "sizes": sorted({int(size) for line in results for size in re.findall(r"\[(\d+)", line)}),
        "exchanged": sorted(set(re.findall(rf" ({EXCHANGES})\(", text))),
        "error": max(errors),
        "divided": str(pairs[0][0].sharding.spec).replace(", None", "").replace(",)", ")"),
    }


def found_without_jit(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """The error of the result under `jax.set_mesh`."""
    with jax.set_mesh(mesh(4)):
        result = fn(*args)
    plain = fn(*map(np.asarray, args))
    pairs = list(zip(jax.tree.leaves(result), jax.tree.leaves(plain), strict=True))
    return {
        "error": max(float(abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs),
        "divided": str(pairs[0][0].sharding.spec),
    }


if __name__ == "__main__":
    every = cases()
    look = found_without_jit if sys.argv[2] == "without jit" else found
    names = [name for name in sys.argv[2:] if name != "without jit"]
    print(json.dumps({name: look(*every[name]) for name in names}))
