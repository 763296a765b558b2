"""The self-test of a GPU: a kernel compared with plain `jax.vmap`, before any other is used.

This package generates the kernels, so on a device, with a driver or with a release of JAX or LLVM
on which none has run yet, they are not known to be right. The first batch of a process waits for
the verdict. It is kept on disk, beside the kernels, until one of them or this package changes. A
test that could not start is repeated by the next process: the reason may have gone.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxmech.compiler.backends import disk_cache
from jaxmech.compiler.backends.cuda import driver
from jaxmech.compiler.frontend.build import Kernel, function_kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.compiler.platforms import lowered_for
from jaxmech.utils.digests import sha256
from jaxmech.utils.jax_internals import eval_context

SIZE = 67  # trajectories: two warps and a part of a third
STEPS = 64
TOLERANCE = 300  # largest difference, in units of round-off; the test does not amplify errors
_DRIVER_RELEASE = Path("/proc/driver/nvidia/version")

# The results of a kernel over a batch, from flags of the arguments that have its axis, the size of
# the batch, and the arguments.
Native = Callable[[Kernel, Sequence[bool], int, Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class Verdict:
    """The result of the self-test.

    Attributes:
        passed: whether kernels may be used.
        text: what was found, for people.
    """

    passed: bool
    text: str


class _Tests:
    """The verdicts of this process, by device."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.one_at_a_time = Lock()


_TESTS = _Tests()
_IS_TESTING = ContextVar("is_testing", default=False)


def require_passed(native: Native) -> None:
    """Raise an UnsupportedError if kernels failed the self-test on the GPU of this process.

    Without a GPU there is nothing to test: programs for it can be inspected, but not run.
    """
    if _IS_TESTING.get() or (device := gpu()) is None:
        return
    verdict = verdict_on(device, native)
    if not verdict.passed:
        raise UnsupportedError(f"the self-test of GPU kernels: {verdict.text}")


def gpu() -> jax.Device | None:
    """The first NVIDIA GPU that JAX sees; None without one."""
    try:
        return jax.devices("cuda")[0]
    except RuntimeError:
        return None


def verdict_on(device: jax.Device, native: Native) -> Verdict:
    """The verdict of this process, of an earlier one, or of a test that is made now."""
    key = sha256("self-test", json.dumps(_conditions(device), sort_keys=True))
    with _TESTS.one_at_a_time:
        if key not in _TESTS.verdicts:
            entry = disk_cache.load(key)
            stored = None if entry is None else Verdict(**json.loads(entry))
            _TESTS.verdicts[key] = stored or _made(key, device, native)
        return _TESTS.verdicts[key]


def _made(key: str, device: jax.Device, native: Native) -> Verdict:
    try:
        verdict = compared(device, native)
    except Exception as error:  # noqa: BLE001  (whatever it is, plain `vmap` runs)
        lines = str(error).splitlines() or [""]
        return Verdict(False, f"it could not run: {type(error).__name__}: {lines[0]}")
    disk_cache.store(key, json.dumps(asdict(verdict)).encode())
    return verdict


def _conditions(device: jax.Device) -> dict[str, Any]:
    """The device, driver, versions and precision that a verdict holds for."""
    cuda, release = driver(), _DRIVER_RELEASE
    return {
        "device": device.device_kind,
        "client": device.client.platform_version,
        "cuda": cuda.version if cuda else "",
        "driver": release.read_text(encoding="utf-8") if release.is_file() else "",
        "source": disk_cache.environment(),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "jaxlib": version("jaxlib"),
    }


def compared(device: jax.Device, native: Native) -> Verdict:
    """Run a batch in every precision as kernels and by plain `jax.vmap`, and compare."""
    precisions = (np.float32, np.float64) if jax.config.read("jax_enable_x64") else (np.float32,)
    differences = []
    for precision in precisions:
        x = np.linspace(-2.0, 2.0, 3 * SIZE).reshape(SIZE, 3).astype(precision)
        x[5, 1] = np.nan
        closed = jax.make_jaxpr(exercise)(jax.ShapeDtypeStruct((3,), precision))
        kernel = function_kernel(closed)
        with _alone(device):
            ours = native(kernel, [True], SIZE, [jnp.asarray(x)])
            expected = jax.jit(jax.vmap(kernel.plain))(jnp.asarray(x))
        difference = _difference([*map(np.asarray, ours)], [*map(np.asarray, expected)])
        differences.append(difference)
        if not difference <= TOLERANCE:
            return Verdict(
                False,
                f"in {np.dtype(precision).name} they differ from plain `jax.vmap` on the "
                f"{device.device_kind} by {difference:.1g} units of round-off",
            )
    largest = ", ".join(f"{x:.1g}" for x in differences)
    return Verdict(True, f"agrees with plain `jax.vmap` within {largest} units of round-off")


@contextmanager
def _alone(device: jax.Device) -> Iterator[None]:
    """Run programs at once on a device, whatever is being traced or lowered."""
    token, platform = _IS_TESTING.set(True), "cuda" if device.platform == "gpu" else None
    try:
        with (
            eval_context(),
            jax.default_device(device),
            jax.disable_jit(False),
            lowered_for(platform),
        ):
            yield
    finally:
        _IS_TESTING.reset(token)


def _difference(ours: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference in units of round-off; infinite if integers or NaNs differ."""
    worst = 0.0
    for mine, theirs in zip(ours, expected, strict=True):
        if theirs.dtype.kind != "f":
            if not np.array_equal(mine, theirs):
                return np.inf
            continue
        if not np.array_equal(np.isnan(mine), np.isnan(theirs)):
            return np.inf
        size = np.maximum(np.abs(theirs), 1.0) * np.finfo(theirs.dtype).eps
        worst = max(worst, float(np.nanmax(np.abs(mine - theirs) / size)))
    return worst


def exercise(x: Array) -> tuple[Array, ...]:
    """Use loops, branches, tables, integers and elementary functions on a state x (3,)."""
    table = jnp.asarray(np.sin(np.arange(16)), x.dtype)
    matrix = jnp.asarray([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], x.dtype)

    def step(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        y, count = carry
        position = (count + k) % 16
        waves = jnp.sin(y) + jnp.cos(2 * y) * jnp.exp(-(y**2)) + 0.1 * jnp.tanh(y)
        roots = jnp.sqrt(1 + y**2) + jnp.log1p(jnp.abs(y)) + jnp.arctan2(y, 1 + y**2)
        new = jnp.where(y > 0, waves, 0.5 * roots) + table[position]
        new = matrix @ new / 8
        count = lax.cond(position > 7, lambda n: 3 * n + 1, lambda n: n // 2 + 5, count)
        return 0.5 * y + 0.25 * new, count % 1000

    y, count = lax.fori_loop(0, STEPS, step, (x, jnp.asarray(7, jnp.int32)))

    def root_is_open(carry: tuple[Array, Array]) -> Array:
        root, steps = carry
        return (steps < 30) & (jnp.abs(root**2 - 2) > 1e-5)

    def improved(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        root, steps = carry
        return 0.5 * (root + 2 / root), steps + 1

    start = 1 + jnp.abs(x[0])
    root, _ = lax.while_loop(root_is_open, improved, (start, jnp.asarray(0, jnp.int32)))
    return y, root, count, y > 0
