"""`jaxmech doctor`: whether this installation computes, with what, and where it stores things."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from packaging.requirements import Requirement

from jaxmech import compiler
from jaxmech.compiler import cache_folder
from jaxmech.config import environment
from jaxmech.integrate import FixedSteps
from jaxmech.models import pendulum
from jaxmech.simulate import simulate
from jaxmech.utils.precision import USE_FLOAT64
from jaxmech.utils.text import titled_lines

NOT_FOR_USERS = {"bench", "dev", "docs"}  # extras of a clone
_WIDTH = 16  # of the titles
_GIB = 2**30
_SCARCE = 2**30  # bytes of free disk below which a study is likely to fail
_TS = np.linspace(0.0, 1.0, 21)


@dataclass(frozen=True)
class Check:
    """The result of a self-test: its name, why it failed or "", and the seconds that it took."""

    name: str
    failure: str
    seconds: float


def _facts() -> Iterator[tuple[str, str]]:
    """Titles and texts about versions, devices, folders and precision."""
    known = environment()
    for key, value in known.items():
        if value != "":
            yield key, str(value)
    for device in compiler.all_devices():
        how = compiler.backend_of(device)
        yield f"{device.platform}:{device.id}", f"{device.device_kind}; batches run as {how}"
    yield "cores", str(os.cpu_count())
    yield "commands", "compute in float64, unless a configuration sets float32"
    precision = "float64" if known["x64"] else f"float32; {USE_FLOAT64}"
    yield "Python", f"computes in {precision}"
    yield "native code", _kernel_cache()
    for name, folder in (("here", Path.cwd()), ("temporary", Path(tempfile.gettempdir()))):
        yield "disk", f"{name}, {folder}: {_space(folder)}"
    for extra in distribution("jaxmech").metadata.get_all("Provides-Extra") or ():
        if extra not in NOT_FOR_USERS:
            yield "extras", f"{extra}: {_installed(extra)}"


def _kernel_cache() -> str:
    folder = cache_folder()
    if folder is None:
        return "not stored, since JAXMECH_KERNEL_CACHE is off; every process compiles anew"
    if not folder.is_dir():
        return f"stored in {folder}, which is made when it is needed"
    sizes = [file.stat().st_size for file in folder.iterdir() if file.is_file()]
    stored = f"{len(sizes)} kernels, {sum(sizes) / 2**20:.1f} MiB, in {folder}"
    if os.access(folder, os.W_OK):
        return stored
    return f"{stored}, which cannot be written; set JAXMECH_KERNEL_CACHE to another folder"


def _space(folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    scarce = "; little for a study" if free < _SCARCE else ""
    unwritable = "" if os.access(folder, os.W_OK) else "; cannot be written"
    return f"{free / _GIB:.1f} GiB free{scarce}{unwritable}"


def _installed(extra: str) -> str:
    names = dict.fromkeys(_packages("jaxmech", extra))
    if any(_version(name) is None for name in names):
        needed = (_with_extras(requirement) for requirement in _requirements("jaxmech", extra))
        return f"not installed, pip install {' '.join(needed)}"
    return ", ".join(f"{name} {_version(name)}" for name in names)


def _with_extras(requirement: Requirement) -> str:
    extras = ",".join(sorted(requirement.extras))
    return f"'{requirement.name}[{extras}]'" if extras else requirement.name


def _packages(package: str, extra: str) -> Iterator[str]:
    """The packages that an extra adds, also through extras of theirs, such as `jax[cuda12]`."""
    for requirement in _requirements(package, extra):
        yield requirement.name
        for inner in requirement.extras:
            yield from _packages(requirement.name, inner)


def _version(package: str) -> str | None:
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return None


def _requirements(package: str, extra: str = "") -> list[Requirement]:
    """What a package needs, or what an extra adds to it."""

    def belongs(requirement: Requirement) -> bool:
        if requirement.marker is None:
            return not extra
        always = requirement.marker.evaluate({"extra": ""})
        if not extra:
            return always
        return not always and requirement.marker.evaluate({"extra": extra})

    lines = distribution(package).requires or () if _version(package) else ()
    return [requirement for requirement in map(Requirement, lines) if belongs(requirement)]


def unmet_requirements() -> Iterator[str]:
    """The packages that jaxmech needs and that are missing or of another version."""
    for requirement in _requirements("jaxmech"):
        present = _version(requirement.name)
        if present is None:
            yield f"{requirement.name} is missing; pip install '{requirement}'"
        elif not requirement.specifier.contains(present, prereleases=True):
            yield f"{requirement.name} is {present}; pip install '{requirement}'"


def self_tests() -> Iterator[Check]:
    """Compute a few small motions, and compare them with what is known of them."""
    for name, test in _TESTS.items():
        start = time.perf_counter()
        try:
            failure = test()
        except Exception as error:  # noqa: BLE001  whatever fails is what is wrong here
            failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        yield Check(name, failure, time.perf_counter() - start)


def _motion(theta: jax.Array) -> jax.Array:
    model = pendulum()
    q, v = model.initial({"theta": theta})
    return simulate(model.system, q, v, _TS, model.params, steps=FixedSteps(20)).q


def _constraints() -> str:
    model = pendulum()
    sol = simulate(model.system, *model.initial(), _TS, model.params)
    residual, drift = float(sol.position_residual.max()), float(sol.energy_drift)
    if residual < 1e-10 and drift < 1e-4:
        return ""
    return f"residual {residual:.1e}, energy drift {drift:.1e} J"


def _batches() -> str:
    thetas = jnp.linspace(0.5, 2.0, 16)
    native = jax.vmap(_motion)(thetas)
    with compiler.off():
        plain = jax.vmap(_motion)(thetas)
    return _compared(native, plain, 1e-9, "native code", "plain vmap")


def _gradients() -> str:
    def end(theta: jax.Array) -> jax.Array:
        return _motion(theta)[-1, 0]

    step = 1e-5
    slope = jax.grad(end)(jnp.asarray(1.0))
    difference = (end(jnp.asarray(1.0 + step)) - end(jnp.asarray(1.0 - step))) / (2 * step)
    return _compared(slope, difference, 1e-6, "gradient", "difference")


def _compared(a: jax.Array, b: jax.Array, tolerance: float, first: str, second: str) -> str:
    distance = float(jnp.abs(a - b).max())
    if distance <= tolerance:
        return ""
    return f"{first} and {second} differ by {distance:.1e}"


_TESTS: dict[str, Callable[[], str]] = {
    "constraints hold": _constraints,
    "native code agrees with plain vmap": _batches,
    "gradients agree with differences": _gradients,
}


def facts_as_text() -> str:
    """The facts, as they are printed."""
    return "\n".join(titled_lines(_facts(), _WIDTH))
