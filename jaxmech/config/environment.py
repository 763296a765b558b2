"""The environment of a run: versions, device, digests of files and functions.

Digests of functions are equal if JAX traces them to the same operations on the same constants. The
first two derivatives count, too; names of functions, comments and paths of files do not.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.config.load import Subject
from jaxmech.system import DryFriction, Params, System, Unilateral
from jaxmech.utils.digests import jaxpr_texts, sha256, sources_digest
from jaxmech.utils.trees import as_dtype


def digest(fn: Callable[..., Any], *args: Any) -> str:
    """Compute the digest of a function, with its derivatives, for arguments of given types.

    Different versions of JAX yield different digests, since they trace to different operations.
    """
    arrays = jax.tree.map(jnp.asarray, args)
    floats, constants = eqx.partition(arrays, lambda x: jnp.issubdtype(x.dtype, jnp.floating))

    def rejoined(floats: Any, constants: Any) -> Any:
        return fn(*eqx.combine(floats, constants))

    jaxprs = [
        jax.make_jaxpr(rejoined)(floats, constants),
        *_derivatives(rejoined, floats, constants),
    ]
    return sha256(str(jax.tree.structure(arrays)), *jaxpr_texts(*jaxprs))


def system_digests(system: System, params: Params, dtype: Any = float) -> dict[str, str]:
    """The digest of each function of a system: "lagrangian", "force", "constraint <name>" ..."""
    dtype = jnp.result_type(dtype)
    q, t = np.zeros(system.n, dtype), np.zeros((), dtype)  # numpy, so that JAX compiles nothing
    u = np.zeros(system.n_velocities, dtype)
    params = as_dtype(system.with_outputs(params), dtype)
    state = (q, q, t, params)
    digests = {
        "coordinates": sha256(repr(tuple(system.coordinates))),
        "lagrangian": digest(system.lagrangian, *state),
    }
    if system.mass_and_force is not None:
        digests["mass_and_force"] = digest(system.mass_and_force, *state)
    if system.force is not None:
        digests["force"] = digest(system.force, *state)
    if system.nonideal is not None:
        at_rest = jax.tree.map(jnp.asarray, (q, u, t, params))
        forces = np.zeros(sum(system.dynamics.sizes(*at_rest)), dtype)
        digests["nonideal"] = digest(system.nonideal, q, q, forces, t, params)
    if system.rates is not None:
        digests["rates"] = digest(system.rates, *state)
    if system.sampling is not None:
        before = np.asarray(system.sampling.before, dtype)
        updates = digest(system.sampling, before, q, u, t, params)
        digests["controllers"] = sha256(repr(system.sampling), repr(before.tolist()), updates)
    digests |= _of_quasi_velocities(system, q, u, t, params)
    for constraint in system.constraints:
        code = digest(constraint.residual, q, q, q, t, params)
        digests[f"constraint {constraint.name}"] = sha256(type(constraint).__name__, code)
    for inequality in system.unilateral:
        key = f"constraint {inequality.name}"
        if isinstance(inequality, DryFriction):
            digests[key] = _of_friction(inequality, q, t, params)
        else:
            digests[key] = _of_gap(inequality, q, t, params)
    return digests


def _of_gap(gap: Unilateral, q: Any, t: Any, params: Params) -> str:
    e = gap.restitution
    impacts = digest(e, params) if callable(e) else repr(e)
    return sha256("Unilateral", digest(gap.gap, q, t, params), impacts, repr(gap.rest_speed))


def _of_friction(friction: DryFriction, q: Any, t: Any, params: Params) -> str:
    limits = [
        digest(limit, params) if callable(limit) else repr(limit)
        for limit in (friction.static, friction.kinetic)
    ]
    velocity = digest(friction.velocity, q, q, t, params)
    return sha256("DryFriction", velocity, *limits, repr(friction.normal))


def _of_quasi_velocities(system: System, q: Any, u: Any, t: Any, params: Params) -> dict[str, str]:
    if system.kinematics is None:
        return {}
    digests = {
        "velocities": sha256(repr(system.velocities)),
        "kinematics": digest(system.kinematics, q, t, params),
    }
    if system.quasi_mass_and_force is not None:
        digests["quasi_mass_and_force"] = digest(system.quasi_mass_and_force, q, u, t, params)
    for invariant in system.invariants:
        digests[f"invariant {invariant.name}"] = digest(invariant.fn, q, t, params)
    return digests


def differing(stored: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """The names, in order, whose digests differ or exist in only one of the two."""
    return [name for name in {**current, **stored} if stored.get(name) != current.get(name)]


def _derivatives(function: Callable[..., Any], floats: Any, constants: Any) -> list[Any]:
    """The traced second derivative along a direction, else the reverse-mode gradient, if any."""

    def first(x: Any, along: Any, constants: Any) -> Any:
        return jax.jvp(lambda x: function(x, constants), (x,), (along,))

    def second(x: Any, along: Any, constants: Any) -> Any:
        return jax.jvp(lambda x, along: first(x, along, constants), (x, along), (along, along))

    def reverse(x: Any, constants: Any) -> Any:
        value, back = jax.vjp(lambda x: function(x, constants), x)
        return back(jax.tree.map(jnp.ones_like, value))

    for derivative, arguments in (
        (second, (floats, floats, constants)),
        (reverse, (floats, constants)),
    ):
        try:
            return [jax.make_jaxpr(derivative)(*arguments)]
        except (TypeError, ValueError, NotImplementedError):  # raised by JAX
            continue
    return []


# A change of any of these may change the last bits of the results.
DECISIVE = (
    "jaxmech", "jaxmech_sha256", "jax", "jaxlib", "platform", "device", "devices", "processor",
    "xla_flags", "x64", "functions", "data_sha256", "draws",
)  # fmt: skip
INPUT = ("functions", "data_sha256", "draws")  # must agree even for displaying a finished run
_DECIDES_TRACES = ("jax", "x64")  # digests of functions are comparable only if these agree
VERSIONS = ("jaxmech", "jax")  # differences that are reported, but allowed
_PACKAGES = ("jaxmech", "jax", "jaxlib", "numpy", "scipy", "zarr")


def environment(subject: Subject | None = None) -> dict[str, Any]:
    """The versions, devices and settings of this process, as stored with the results."""
    device = jax.devices()[0]
    facts = {
        **{package: _version(package) for package in _PACKAGES},
        "jaxmech_sha256": sources_digest(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "platform": device.platform,
        "device": device.device_kind,
        "devices": jax.device_count(),
        "processor": processor(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }
    if subject and subject.sha256:
        facts["model"] = subject.name
        facts["model_sha256"] = subject.sha256
    return facts


def environment_json(facts: Mapping[str, Any]) -> str:
    """The text of `environment.json`: the facts and the current time."""
    timestamp = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({**facts, "started": timestamp}, indent=2) + "\n"


def changes(
    stored: Mapping[str, Any], current: Mapping[str, Any], decisive: Iterable[str] = DECISIVE
) -> list[str]:
    """One predicate for each decisive fact that differs between two environments."""
    comparable = all(stored.get(key) == current.get(key) for key in _DECIDES_TRACES)
    messages = []
    for key in decisive:
        old, new = stored.get(key), current.get(key)
        if key == "functions":
            messages += _functions(stored, current, comparable)
        elif key in ("draws", "first_draws"):
            names = differing(old or {}, new or {})
            messages += [f"different values are drawn for {', '.join(names)}"] if names else []
        elif old != new:
            texts = f"{json.dumps(old)} there and {json.dumps(new)} here"
            messages.append(_TOLD.get(key, f"{key} is {texts}"))
    return messages


def _functions(
    stored: Mapping[str, Any], current: Mapping[str, Any], comparable: bool
) -> list[str]:
    old, new = stored.get("model_sha256"), current.get("model_sha256")
    if not comparable:
        return ["the model file has changed"] if old != new else []
    names = differing(stored.get("functions") or {}, current.get("functions") or {})
    if not names:
        return []
    why = ""
    if old != new:
        why = " (its file there is different)"
    elif old:
        why = " (its file is the same, but not what it imports)"
    return [f"the model differs in {', '.join(names)}{why}"]


_TOLD = {
    "jaxmech_sha256": "the source files of jaxmech differ",
    "data_sha256": "the measurements differ",
    "model_sha256": "the model file has changed",
}


@cache
def processor() -> str:
    """The kind of processor, which determines the instructions available to the compiler."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor()) or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
