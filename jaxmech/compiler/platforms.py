"""Where native code runs: on CPUs and on NVIDIA's GPUs, unless it is switched off.

What a program becomes is decided when it is lowered, for the platform that it is lowered for. While
it is traced, the platform is not known, and what is decided then must be right on all of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

NATIVE = ("cpu", "cuda")  # platforms with native code

_IS_ON = ContextVar("lanes", default=True)


@contextmanager
def off() -> Iterator[None]:
    """Run batches through plain `jax.vmap` within this context, to compare it with native code.

    JAX' caches of compiled programs are cleared at both ends.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxmech.compiler import batched
        >>> with off():
        ...     print(jax.vmap(batched(lambda x: 2 * x))(jnp.arange(3.0)))
        [0. 2. 4.]
    """
    token = _IS_ON.set(False)
    jax.clear_caches()
    try:
        yield
    finally:
        _IS_ON.reset(token)
        jax.clear_caches()


def is_on() -> bool:
    """Whether a program that is traced here may run as native code, where its platform has any."""
    return _IS_ON.get()


def why_not(platform: str | None = None) -> str | None:
    """The reason why no native code runs on a platform; None if it does.

    A program can be placed on another platform than the default one, so this may choose between
    forms of a function that are right everywhere, but not between answers.

    Args:
        platform: "cpu", "cuda", "rocm", "tpu", ...; by default that of the default device.

    Example:
        >>> print(why_not("tpu"))
        the platform: native code runs on cpu and cuda, and this is tpu
        >>> with off():
        ...     print(why_not())
        `compiler.off()`
    """
    if not is_on():
        return "`compiler.off()`"
    platform = platform or default_platform()
    if platform in NATIVE:
        return None
    return f"the platform: native code runs on {' and '.join(NATIVE)}, and this is {platform}"


def default_platform() -> str:
    """The platform of the default device: "cpu", "cuda", "rocm", "tpu", ..."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if isinstance(device, str):
        return device
    return jax.default_backend() if device is None else platform_of(device)


def platform_of(device: jax.Device) -> str:
    """The platform of a device, where JAX calls those of two vendors "gpu"."""
    if device.platform != "gpu":
        return device.platform
    return "cuda" if "cuda" in device.client.platform_version.lower() else "rocm"
