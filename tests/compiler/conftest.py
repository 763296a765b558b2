"""The compiler is tested without the programs of earlier runs, and of earlier tests."""

from collections.abc import Callable
from weakref import WeakValueDictionary

import pytest

from jaxmech.compiler.frontend import build


@pytest.fixture(autouse=True)
def without_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", "off")


@pytest.fixture(autouse=True)
def forget_readings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have every program read anew, and so again where a test changes a limit."""

    def forget() -> None:
        monkeypatch.setattr(build, "_READINGS", WeakValueDictionary())

    forget()
    return forget
