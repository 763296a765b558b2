"""Speed: batches of several sizes, gradients, and other routes."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from experiments.cuda.cases import Case, case
from experiments.cuda.kernels import kernels
from jaxmech.compiler import off

STEPS = 1000
BATCHES = (10**3, 10**4, 10**5, 10**6)
COMPARED, LARGEST = 10**5, 10**7  # trajectories of the other measurements
CASES = (  # model, type, and the target of steps per second on an H100 or H200
    ("double_pendulum", "float64", 5e9),
    ("double_pendulum", "float32", 10e9),
    ("chain_10", "float64", 250e6),
    ("four_bar", "float64", 600e6),
    ("rolling_wheel", "float64", None),
    ("andrews", "float64", None),
)
# Floating-point operations per second, in float64 and float32, of NVIDIA's data sheets, where a
# fused multiply-add is two of them.
PEAKS = {"H200": (34e12, 67e12), "H100": (34e12, 67e12), "A100": (9.7e12, 19.5e12)}
GPU = "cuda"
ENOUGH, MOST = 0.3, 5  # seconds of timing, and repetitions
Row = dict[str, Any]


def timed(fn: Callable[..., Any], args: tuple[Any, ...], platform: str) -> Row:
    """Measure the seconds until the first result, and of the fastest run after it."""
    args = jax.device_put(args, jax.devices(platform)[0])
    begun = time.perf_counter()
    compiled = jax.jit(fn).lower(*args).compile()
    compiling = time.perf_counter() - begun
    jax.block_until_ready(compiled(*args))
    _, best = fastest(compiled, args)
    return {"compile_seconds": compiling, "seconds": best}


def fastest(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, float]:
    """Call a function several times; return its result, and the seconds of the fastest call."""
    best, since = np.inf, time.perf_counter()
    for _ in range(MOST):
        begun = time.perf_counter()
        result = jax.block_until_ready(fn(*args))
        best = min(best, time.perf_counter() - begun)
        if time.perf_counter() - since > ENOUGH:
            break
    return result, best


def rate(one: Case, steps: int, platform: str | None = None) -> Row:
    """Measure the speed of a case in trajectory-steps per second, by default on the GPU."""
    found = timed(one.batched, one.args, platform or GPU)
    speed = len(one.q0) * steps / found["seconds"]
    row = {"model": one.model, "way": one.way, "type": str(one.q0.dtype), "batch": len(one.q0)}
    return {**row, **found, "steps_per_second": speed}


def batches() -> Iterator[Row]:
    """Measure every case over the size of the batch."""
    name = jax.devices(GPU)[0].device_kind
    peaks = next((peak for key, peak in PEAKS.items() if key in name), None)
    for model, dtype, goal in CASES:
        few = case(model, "forward", 7, STEPS, np.dtype(dtype))
        (first, *_) = kernels(few.batched, *few.args)
        for size in BATCHES:
            row = rate(case(model, "forward", size, STEPS, np.dtype(dtype)), STEPS)
            row |= {"operations": first.kernel.executed / STEPS, "goal": goal}  # of a step
            if peaks is not None:
                peak = peaks[dtype == "float32"]
                row["share_of_peak"] = row["operations"] * row["steps_per_second"] / peak
            yield row


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
