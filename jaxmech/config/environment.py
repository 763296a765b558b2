"""The environment of a run: versions, device, digests of files and functions."""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from jaxmech.config.digest import differing
from jaxmech.config.load import Subject
from jaxmech.utils.digests import sources_digest

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
    """One predicate for each decisive fact that differs between two environments.

    Example:
        >>> changes({"jax": "0.9.2"}, {"jax": "0.12.0"})
        ['jax is "0.9.2" there and "0.12.0" here']
    """
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
