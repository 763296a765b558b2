"""Fixtures for all tests."""

import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from jaxmech.utils.caller import forget_shown


@pytest.fixture(autouse=True)
def without_traces_of_other_tests() -> None:
    """Show warnings again that a process shows once."""
    forget_shown()


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
