"""The environment of a run: versions, device, digests of files and functions.

Digests of functions are equal if JAX traces them to the same operations on the same constants.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.config.load import Subject
from jaxmech.system import DryFriction, Params, System
from jaxmech.utils.digests import jaxpr_digest, sha256, sources_digest
from jaxmech.utils.trees import as_dtype


def digest(fn: Callable[..., Any], *args: Any) -> str:
    """The digest of the operations and constants to which JAX traces a function.

    Names of functions, comments and paths of files do not count. Different versions of JAX yield
    different digests, since they trace to different operations.
    """
    arrays = jax.tree.map(jnp.asarray, args)
    return sha256(str(jax.tree.structure(arrays)), jaxpr_digest(jax.make_jaxpr(fn)(*arrays)))


def system_digest(system: System, params: Params, dtype: Any = float) -> str:
    """The digest of all functions of a system, and of what else its motions depend on."""
    dtype = jnp.result_type(dtype)
    q, t = np.zeros(system.n, dtype), np.zeros((), dtype)  # numpy, so that JAX compiles nothing
    u, memory = np.zeros(system.n_velocities, dtype), np.zeros(0, dtype)
    params = as_dtype(system.with_outputs(params), dtype)
    names: list[Any] = [system.coordinates, system.velocities, system.sampling]
    if system.sampling is not None:
        memory = np.asarray(system.sampling.before, dtype)
        names.append(memory.tolist())

    def functions(q: Any, u: Any, t: Any, params: Any, memory: Any) -> Any:
        equations = system.equations(q, u, t, params)  # with derivatives, by rules of the user's
        values = [equations.M, equations.Q, equations.A, equations.b]
        values += [system.lagrangian(q, q, t, params)]
        values += [system.rates(q, q, t, params)] if system.rates is not None else []
        values += [system.kinematics(q, t, params)] if system.kinematics is not None else []
        if system.nonideal is not None:
            forces = jnp.zeros(sum(system.dynamics.sizes(q, u, t, params)), dtype)
            values.append(system.nonideal(q, q, forces, t, params))
        if system.sampling is not None:
            values.append(system.sampling(memory, q, u, t, params))
        for constraint in system.constraints:
            names.append((type(constraint).__name__, constraint.name))
            values.append(constraint.residual(q, q, q, t, params))
        values += [invariant.fn(q, t, params) for invariant in system.invariants]
        for one in system.unilateral:
            if isinstance(one, DryFriction):
                values.append(one.velocity(q, q, t, params))
                rules: tuple[Any, ...] = (one.static, one.kinetic, one.normal)
            else:
                values.append(one.gap(q, t, params))
                rules = (one.restitution, one.rest_speed)
            values += [rule(params) for rule in rules if callable(rule)]
            plain = tuple(None if callable(rule) else rule for rule in rules)
            names.append((type(one).__name__, one.name, plain))
        return values

    code = digest(functions, q, u, t, params, memory)  # which fills in the names
    return sha256(repr(names), code)


def differing(stored: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """The names, in order, whose digests differ or exist in only one of the two."""
    return [name for name in {**current, **stored} if stored.get(name) != current.get(name)]


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
        **{package: version(package) for package in _PACKAGES},
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
    models = stored.get("model_sha256"), current.get("model_sha256")
    messages = []
    for key in decisive:
        old, new = stored.get(key), current.get(key)
        if key == "functions" and not comparable:
            messages += ["the model file has changed"] if models[0] != models[1] else []
        elif key == "functions":
            why = " (its file is the same, but not what it imports)" if models[0] else ""
            why = " (its file there is different)" if models[0] != models[1] else why
            names = ", ".join(differing(old or {}, new or {}))
            messages += [f"the model differs in {names}{why}"] if names else []
        elif key == "draws":
            names = ", ".join(differing(old or {}, new or {}))
            messages += [f"different values are drawn for {names}"] if names else []
        elif old != new:
            texts = f"{json.dumps(old)} there and {json.dumps(new)} here"
            messages.append(_TOLD.get(key, f"{key} is {texts}"))
    return messages


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
