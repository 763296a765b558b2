"""Fixtures for all tests."""

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

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


@pytest.fixture(scope="module", autouse=True)
def clear_compiled_programs() -> Iterator[None]:
    """Drop compiled programs after each file of tests: they use gigabytes and are not reused."""
    yield
    jax.clear_caches()
    gc.collect()
