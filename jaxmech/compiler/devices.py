"""The devices, and how batches run on each."""

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp

from jaxmech.compiler.backends.cpu.runtime import vector_registers
from jaxmech.compiler.backends.cuda.driver import CudaError, driver
from jaxmech.compiler.backends.cuda.self_test import gpu, verdict_on
from jaxmech.compiler.backends.primitive import over_batch
from jaxmech.compiler.platforms import likely_platform, platform_of, why_not

_THREADS = 1024  # of a GPU, which has as many for a batch as the batch has trajectories


def all_devices() -> list[jax.Device]:
    """The devices of the default platform, and those of the CPU if JAX has them."""
    devices = list(jax.devices())
    if devices[0].platform != "cpu":
        with suppress(RuntimeError):  # JAX_PLATFORMS may exclude it
            devices += jax.devices("cpu")
    return devices


def lanes(dtype: Any) -> int:
    """The trajectories of a small batch that the default device computes side by side."""
    side_by_side = vector_registers()[0] if likely_platform() == "cpu" else _THREADS
    return side_by_side * 8 // jnp.dtype(dtype).itemsize


def backend_of(device: jax.Device) -> str:
    """Describe how batches run on a device."""
    platform = platform_of(device)
    if (reason := why_not(platform)) is not None:
        return f"plain vmap, because of {reason}"
    if platform == "cpu":
        return "native code, in lanes"
    try:
        cuda = driver()
    except CudaError as error:
        return f"plain vmap, because {error}"
    driver_version = f" (driver for CUDA {cuda.version})" if cuda else ""
    if gpu() is None:
        return f"GPU kernels, a thread for each trajectory{driver_version}"
    verdict = verdict_on(device, over_batch)
    if not verdict.passed:
        return f"plain vmap, because GPU kernels failed the self-test: {verdict.text}"
    return (
        f"GPU kernels, a thread for each trajectory{driver_version}; the self-test {verdict.text}"
    )
