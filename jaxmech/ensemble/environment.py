"""What a run was computed with: versions, device, and the digest of the model's file."""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from jaxmech.ensemble.subject import Subject

# The results of a run may change in their last bits with any of these.
DECISIVE = (
    "jaxmech",
    "jax",
    "jaxlib",
    "platform",
    "device",
    "devices",
    "processor",
    "xla_flags",
    "model_sha256",
    "data_sha256",
)
_PACKAGES = ("jaxmech", "jax", "jaxlib", "numpy", "scipy", "zarr")


def environment(subject: Subject | None = None) -> dict[str, Any]:
    """Versions, devices and settings of this process, as they are stored beside the results.

    Example:
        >>> environment()["platform"] in ("cpu", "gpu", "tpu")
        True
    """
    device = jax.devices()[0]
    facts = {
        **{package: _version(package) for package in _PACKAGES},
        "python": platform.python_version(),
        "platform": device.platform,
        "device": device.device_kind,
        "devices": jax.device_count(),
        "processor": processor(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }
    if subject and subject.sha256:
        facts["model_sha256"] = subject.sha256
    return facts


def started(facts: Mapping[str, Any]) -> str:
    """The text of `environment.json`: the facts, and the time of now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({**facts, "started": now}, indent=2) + "\n"


def first_change(
    then: Mapping[str, Any], now: Mapping[str, Any], decisive: Iterable[str] = DECISIVE
) -> str | None:
    """The first decisive fact that differs between two environments."""
    return next((key for key in decisive if then.get(key) != now.get(key)), None)


def processor() -> str:
    """The kind of processor, whose instructions the compiler chooses from.

    Example:
        >>> bool(processor())
        True
    """
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor()) or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
