"""Chains of spatial bodies in joint coordinates, over the batch, beside MJX on the same GPU.

Every chain and type has a process of its own: all compile at once, and are timed one at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from multiprocessing import get_context
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments import mechanisms
from experiments.cuda import speed

Row = dict[str, Any]
BODIES = (20, 12, 6, 2)  # the slowest to compile first
BATCHES = {"jaxmech": (10**3, 10**4, 10**5), "MJX": (8192,)}
STEPS = 100  # of 1 ms
TYPES = ("float64", "float32")
ALLOWED = {"float64": 1e-9, "float32": 1e-3}  # differences of angles [rad]
PATIENCE = 150.0  # seconds for all of them
SPREAD = 1e-2  # of the initial angles in a batch [rad]
Job = tuple[str, int, str]  # engine, bodies, type

turn: AbstractContextManager[Any] = nullcontext()  # taken by the process that measures


def measured() -> Iterator[Row]:
    """Yield a row for each engine, chain, type and batch, with its difference from the CPU.

    Those that are not compiled after `PATIENCE` seconds have a row without figures.
    """
    context = get_context("spawn")
    jobs = [("CPU", n, "float64") for n in BODIES] + [*product(ENGINES, BODIES, TYPES)]
    pool = ProcessPoolExecutor(len(jobs), context, _begin, (context.Lock(),))
    futures = {job: pool.submit(run, job, speed.GPU, BATCHES) for job in jobs}
    done, _ = wait(futures.values(), PATIENCE)
    for process in pool._processes.values():
        process.terminate()
    results = {
        job: future.result()
        for job, future in futures.items()
        if future in done and future.exception() is None
    }
    for job in jobs[len(BODIES) :]:
        about = dict(zip(("engine", "bodies", "type"), job, strict=True))
        expected = results.get(("CPU", job[1], "float64"))
        for row in results.get(job, [{"batch": None}]):
            yield about | (_compared(row, expected, job[2]) if row["batch"] else row)


def _compared(row: Row, expected: Any, dtype: str) -> Row:
    turned = np.asarray(row["ends"]) - (np.nan if expected is None else np.asarray(expected))
    far = float(np.abs(np.angle(np.exp(1j * turned))).max())
    row = {key: value for key, value in row.items() if key != "ends"}
    return {**row, "difference": far, "agrees": far <= ALLOWED[dtype]}


def _begin(lock: Any) -> None:
    global turn  # noqa: PLW0603  locks reach a process only where it starts
    turn = lock


def run(job: Job, platform: str, sizes: Mapping[str, Sequence[int]]) -> Any:
    """Compute a job in a process whose types are those of the job."""
    engine, bodies, dtype = job
    jax.config.update("jax_enable_x64", dtype == "float64")  # MJX has no other choice of a type
    if engine == "CPU":
        return ends_on_cpu(bodies)
    return rows(engine, bodies, dtype, platform, sizes[engine])


def start(bodies: int, size: int, dtype: str) -> tuple[jax.Array, jax.Array]:
    """Angles and rates of a batch, of shape (size, bodies); those of the first are the chain's."""
    angles, rates = mechanisms.state(bodies)
    shift = np.linspace(0.0, SPREAD, size)[:, None]
    return jnp.asarray(angles + shift, dtype), jnp.asarray(rates + 0 * shift, dtype)


def ends_on_cpu(bodies: int) -> list[list[float]]:
    """The last angles of the first and the last trajectory of a batch, in float64 on the CPU."""
    fn, args = ours(bodies, "float64"), start(bodies, 2, "float64")
    return np.asarray(jax.jit(fn)(*jax.device_put(args, jax.devices("cpu")[0]))).tolist()


def ours(bodies: int, dtype: str) -> Callable[..., Any]:
    """The last angles of a batch of chains in jaxmech."""
    mechanism = mechanisms.chain(bodies, "joints")
    params = jax.tree.map(lambda x: np.asarray(x, dtype), dict(mechanism.params))
    ts = np.asarray([0.0, mechanisms.STEP * STEPS], dtype)

    def run(q: Any, v: Any) -> Any:
        steps = jm.FixedSteps(STEPS)
        return jm.simulate(mechanism.system, q, v, ts, params, steps=steps).q[-1]

    return jax.vmap(run)


def mjx(bodies: int, dtype: str) -> Callable[..., Any]:
    """The last angles of a batch of chains in MJX."""
    import mujoco
    from mujoco import mjx

    # By default matrix products in float32 have the 10 bits of TF32 on this GPU.
    jax.config.update("jax_default_matmul_precision", "highest")
    text = mechanisms.peer_chain(bodies).xml(mechanisms.STEP)
    model = mjx.put_model(mujoco.MjModel.from_xml_string(text))
    empty = mjx.make_data(model)

    def run(q: Any, v: Any) -> Any:
        begin = empty.replace(qpos=q, qvel=v)
        return jax.lax.fori_loop(0, STEPS, lambda _, x: mjx.step(model, x), begin).qpos

    return jax.vmap(run)


ENGINES = {"jaxmech": ours, "MJX": mjx}


def rows(engine: str, bodies: int, dtype: str, platform: str, sizes: Sequence[int]) -> list[Row]:
    """Measure an engine over the batch; no rows where it is not installed."""
    measured = []
    with jax.default_device(jax.devices(platform)[0]):
        try:
            fn = ENGINES[engine](bodies, dtype)
        except ImportError:
            return []
        for size in sizes:
            args = start(bodies, size, dtype)
            compiling, program = speed.compiled(fn, args)
            with turn:
                _, best, angles = speed.fastest(program, args)
            measured.append({
                "batch": size,
                "compile_seconds": compiling,
                "seconds": best,
                "steps_per_second": size * STEPS / best,
                "ends": np.asarray(angles[jnp.array([0, -1])]).tolist(),
            })  # fmt: skip
    return measured
