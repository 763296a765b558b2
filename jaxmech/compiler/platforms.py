"""Platforms with native code: CPUs and NVIDIA GPUs, unless it is switched off.

The form of a program is decided when it is lowered, for the platform that it is lowered for. During
tracing the platform is unknown, and decisions made then must be right on all platforms.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

import jax

from jaxmech.compiler.ir.graph import Origins
from jaxmech.utils.jit_cache import FINITE_ARGUMENTS, forget_frames

T = TypeVar("T")

NATIVE = ("cpu", "cuda")  # platforms with native code

_IS_ON = ContextVar("lanes", default=True)
_OPTIMIZES = ContextVar("optimizes", default=True)
_CHECKS_ZEROS = ContextVar("checks_zeros", default=True)
_LOWERED_FOR = ContextVar[str | None]("platform", default=None)


@contextmanager
def off() -> Iterator[None]:
    """Run batches through plain `jax.vmap` within this context, to compare it with native code.

    JAX' caches of compiled programs are cleared at both ends.
    """
    _clear_caches()
    try:
        with _setting(_IS_ON, False):
            yield
    finally:
        _clear_caches()


def _clear_caches() -> None:
    jax.clear_caches()
    forget_frames()


@contextmanager
def _setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a variable a value within this context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def is_on() -> bool:
    """Whether a program traced here may run as native code, if its platform supports it."""
    return _IS_ON.get()


def unoptimized() -> AbstractContextManager[None]:
    """Compile native code without optimization within this context, to the same bits.

    For a program that runs so briefly that optimizing it takes longer than it saves.
    """
    return _setting(_OPTIMIZES, False)


def optimizes() -> bool:
    """Whether a program lowered here should be optimized, by `unoptimized` and the flags of JAX."""
    return _OPTIMIZES.get() and not jax.config.read("jax_disable_most_optimizations")


def unchecked() -> AbstractContextManager[None]:
    """Fold all products with zero within this context, even where that may hide a NaN.

    For a program whose results nobody sees, because searching for such products takes a third of
    the time of reading it (`optimize.fold_zeros`).
    """
    return _setting(_CHECKS_ZEROS, False)


def finite_arguments(are_finite: bool) -> AbstractContextManager[None]:
    """Take the arguments of programs lowered within this context for finite numbers."""
    return _setting(FINITE_ARGUMENTS, are_finite or FINITE_ARGUMENTS.get())


def origins_of_nan() -> Origins:
    """What a program lowered here must not hide by folding a product with zero."""
    if not _CHECKS_ZEROS.get():
        return Origins.NOWHERE
    return Origins.OPERATIONS if FINITE_ARGUMENTS.get() else Origins.ANYWHERE


def why_not(platform: str | None = None) -> str | None:
    """The reason why native code does not run on a platform; None if it does.

    While a program is traced, this may choose between equivalent forms of a function, but not
    between answers: the program can be placed on another platform than the likely one.

    Args:
        platform: "cpu", "cuda", "rocm", "tpu", ...; by default the likely one.
    """
    if not is_on():
        return "`compiler.off()`"
    platform = platform or likely_platform()
    if platform in NATIVE:
        return None
    return f"the platform: native code runs on {' and '.join(NATIVE)}, and this is {platform}"


def lowered_for(platform: str | None) -> AbstractContextManager[None]:
    """Lower programs for a platform within this context."""
    return _setting(_LOWERED_FOR, platform)


def likely_platform() -> str:
    """The platform of the program being lowered; outside lowering, that of the default device."""
    if (platform := _LOWERED_FOR.get()) is not None:
        return platform
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is not None:
        return platform_of(jax.devices(device)[0] if isinstance(device, str) else device)
    platform = jax.default_backend()
    return platform_of(jax.devices()[0]) if platform == "gpu" else platform


def platform_of(device: jax.Device) -> str:
    """The platform of a device, resolved to "cuda" or "rocm" where JAX calls both "gpu"."""
    if device.platform != "gpu":
        return device.platform
    return "cuda" if "cuda" in device.client.platform_version.lower() else "rocm"
