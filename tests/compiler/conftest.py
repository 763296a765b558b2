"""The compiler is tested without what earlier runs have compiled."""

import pytest


@pytest.fixture(autouse=True)
def without_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", "off")
