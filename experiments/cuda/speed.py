"""Speed: batches of several sizes, gradients, and other routes."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from experiments.cuda.cases import Case, case
from experiments.cuda.kernels import kernels
from experiments.measuring import Times, timed
from jaxmech.compiler import off

STEPS = 1000
BATCHES = (10**3, 10**4, 10**5, 10**6)
COMPARED, LARGEST = 10**5, 10**7  # trajectories of the other measurements
CASES = (  # model and type
    ("double_pendulum", "float64"),
    ("double_pendulum", "float32"),
    ("chain_10", "float64"),
    ("four_bar", "float64"),
    ("rolling_wheel", "float64"),
    ("andrews", "float64"),
)
GPU = "cuda"
ENOUGH, MOST = 0.3, 5  # seconds of timing, and repetitions
Row = dict[str, Any]


def fastest(fn: Callable[..., Any], args: tuple[Any, ...]) -> Times:
    """Wall time of the first call, and of the fastest of those after it."""
    return timed(lambda: fn(*args), MOST, time.perf_counter, ENOUGH)


def compiled(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, Any]:
    """Compile a function; return the seconds that it took, and the program."""
    made = timed(lambda: jax.jit(fn).lower(*args).compile(), 0, time.perf_counter)
    return made.first, made.result


def rate(one: Case, steps: int, platform: str | None = None) -> Row:
    """Measure the speed of a case in trajectory-steps per second, by default on the GPU."""
    args = jax.device_put(one.args, jax.devices(platform or GPU)[0])
    compiling, program = compiled(one.batched, args)
    seconds = fastest(program, args).best
    return {
        "model": one.model,
        "way": one.way,
        "type": str(one.q0.dtype),
        "batch": len(one.q0),
        "compile_seconds": compiling,
        "seconds": seconds,
        "steps_per_second": len(one.q0) * steps / seconds,
    }


def batches() -> Iterator[Row]:
    """Measure every case over the size of the batch."""
    for model, dtype in CASES:
        few = case(model, "forward", 7, STEPS, np.dtype(dtype))
        (first, *_) = kernels(few.batched, *few.args)
        for size in BATCHES:
            row = rate(case(model, "forward", size, STEPS, np.dtype(dtype)), STEPS)
            yield {**row, "operations": first.kernel.executed / STEPS}  # of a step


def compared() -> Iterator[Row]:
    """Measure the double pendulum by plain `vmap` on the GPU, on the CPU, and its gradients."""
    size, model = COMPARED, "double_pendulum"
    for way in ("projection", "gradient", "sensitivities", "solution"):
        yield {"route": "kernel", **rate(case(model, way, size, STEPS), STEPS)}
    forward = case(model, "forward", size, STEPS)
    yield {"route": "kernel", **rate(forward, STEPS)}
    yield {"route": "CPU", **rate(forward, STEPS, "cpu")}
    with off():
        yield {"route": "plain vmap", **rate(case(model, "forward", size, 20), 20)}


def largest() -> Row:
    """Measure ten million double pendulums in one call."""
    return rate(case("double_pendulum", "forward", LARGEST, STEPS), STEPS)
