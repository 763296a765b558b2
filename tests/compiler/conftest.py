"""The compiler is tested without the programs of earlier runs."""

import pytest


@pytest.fixture(autouse=True)
def without_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", "off")
