"""Fixtures for all tests."""

import gc
import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxmech.utils import announce
from jaxmech.utils.caller import forget_shown

REFERENCES = Path(__file__).resolve().parents[2] / "shared" / "references"


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, Any]]:
    """`reference("andrews")` reads andrews.json of the published solutions, or skips the test."""

    def load(name: str) -> dict[str, Any]:
        path = REFERENCES / f"{name}.json"
        if not path.is_file():
            pytest.skip(f"the published solution {path.name} is missing in {path.parent}")
        return json.loads(path.read_text(encoding="utf-8"))

    return load


@pytest.fixture(autouse=True)
def without_traces_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show warnings again that a process shows once, and say nothing because a machine is slow."""
    forget_shown()
    monkeypatch.setattr(announce, "WAIT", 3600.0)


MOST_MEMORY = 3e9  # bytes that a test process may hold before it drops its compiled programs


@pytest.fixture(scope="module", autouse=True)
def clear_compiled_programs() -> Iterator[None]:
    """Drop compiled programs between two files of tests, when they use gigabytes."""
    yield
    # Not after every file: searching gigabytes for garbage, and compiling small programs that the
    # next file needs too, takes a tenth of the time of all tests.
    if memory_in_use() > MOST_MEMORY:
        jax.clear_caches()
        gc.collect()


def memory_in_use() -> float:
    """Bytes of memory of this process; infinite where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return float("inf")
    return pages * resource.getpagesize()
