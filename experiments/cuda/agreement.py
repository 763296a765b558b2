"""Agreement of the GPU with the CPU of the same machine: all models, all transformations."""

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from experiments.cuda.cases import Case, case
from experiments.measuring import in_float64
from jaxmech.models import CATALOGUE

STEPS, SIZE = 1000, 1001
LARGEST = {"solution": 1e-12, "gradient": 1e-10}  # relative differences in float64
SINGLE = 1e-3  # in float32, over the same steps
PROCESSES = 6
GPU, CPU = "cuda", "cpu"
Row = dict[str, Any]


def all_models() -> list[Row]:
    """Yield a row for each model, way and type, computed by processes that share the GPU."""
    jobs = [(name, way, "float64") for way in LARGEST for name in CATALOGUE]
    jobs += [(name, "solution", "float32") for name in CATALOGUE]
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), in_float64) as pool:
        return list(pool.map(_compared, jobs))


def _compared(job: tuple[str, str, str]) -> Row:
    name, way, dtype = job
    return comparison(case(name, way, SIZE, STEPS, np.dtype(dtype)), way)


def comparison(one: Case, way: str) -> Row:
    """Compute the largest difference of a case between the devices."""
    ours, expected = (on(platform, one.batched, *one.args) for platform in (GPU, CPU))
    dtype = str(one.q0.dtype)
    largest = LARGEST[way] if dtype == "float64" else SINGLE
    row = {"model": one.model, "way": way, "type": dtype, "allowed": largest}
    return {**row, **difference(ours, expected, largest)}


def on(platform: str, fn: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """Evaluate a function on a device, as a list of arrays."""
    args = jax.device_put(args, jax.devices(platform)[0])
    return [np.asarray(x) for x in jax.tree.leaves(jax.jit(fn)(*args))]


def difference(ours: list[np.ndarray], expected: list[np.ndarray], allowed: float) -> Row:
    """Differences relative to the largest of each array, residuals to 1; integers must be equal."""
    worst, equal = 0.0, len(ours) == len(expected)
    for x, y in zip(ours, expected, strict=False):
        if y.dtype.kind != "f":
            equal &= bool(np.array_equal(x, y))
            continue
        equal &= bool(np.array_equal(np.isnan(x), np.isnan(y)))
        scale = max(float(np.nanmax(np.abs(y), initial=0.0)), 1.0)
        worst = max(worst, float(np.nanmax(np.abs(x - y), initial=0.0)) / scale)
    return {"difference": worst, "exact_equal": equal, "agrees": equal and worst <= allowed}


def transformations() -> list[Row]:
    """A row for each transformation: nested vmap, gradients, `shard_map`, `jit` in a `scan`."""
    rows, one, allowed = [], case("pendulum", "projection", 12, 200), LARGEST["gradient"]
    ours, expected = (_transformations(one, platform) for platform in (GPU, CPU))
    for name, (fn, args) in ours.items():
        pair = on(GPU, fn, *args), on(CPU, *expected[name][:1], *args)
        row = {"transformation": name, "allowed": allowed}
        rows.append({**row, **difference(*pair, allowed)})
    return rows


def _transformations(
    one: Case, platform: str
) -> Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    q, v, params = one.args

    def total(q: Array, v: Array, params: Any) -> Array:
        q, v = one.batched(q, v, params)
        return (q**2).sum() + (v**2).sum()

    def again(q: Array, v: Array, params: Any) -> Any:
        step = jax.jit(one.batched)
        return jax.lax.scan(lambda x, _: (step(*x, params), x[0]), (q, v), None, length=5)

    def mapped(q: Array, v: Array, params: Any) -> Any:
        mesh = Mesh(np.array(jax.devices(platform)[:1]), ("batch",))
        whole, parts = PartitionSpec(), PartitionSpec("batch")
        return jax.shard_map(
            one.batched, mesh=mesh, in_specs=(parts, parts, whole), out_specs=parts
        )(q, v, params)

    def sweep(q: Array, v: Array, g: Array) -> Any:
        return jax.vmap(lambda g: one.batched(q, v, {**params, "g": g}))(g)

    gravity = jnp.linspace(1.0, 9.0, 5)
    return {
        "vmap": (one.batched, one.args),
        "nested vmap": (sweep, (q, v, gravity)),
        "vmap of grad": (case("pendulum", "gradient", 12, 200).batched, one.args),
        "grad of vmap": (jax.grad(total, (0, 1, 2)), one.args),
        "grad of nested vmap": (
            lambda q, v, g: jax.grad(lambda g: sum(x.sum() for x in sweep(q, v, g)))(g),
            (q, v, gravity),
        ),
        "jit in scan": (again, one.args),
        "a batch of one": (one.batched, (q[:1], v[:1], params)),
        "an empty batch": (one.batched, (q[:0], v[:0], params)),
    } | ({"shard_map": (mapped, one.args)} if hasattr(jax, "shard_map") else {})
