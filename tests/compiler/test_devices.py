"""Descriptions of the devices of a machine."""

from dataclasses import dataclass, field
from typing import Any

import jax
import pytest

from jaxmech.compiler import off
from jaxmech.compiler.backends import primitive
from jaxmech.compiler.backends.cuda import Driver
from jaxmech.compiler.backends.primitive import all_devices, backend_of
from tests.compiler.backends.cuda.fake_driver import FakeDriver


@dataclass(frozen=True)
class Client:
    platform_version: str


@dataclass(frozen=True)
class Device:
    """The attributes of a device that are used."""

    platform: str
    client: Client = field(default=Client("PJRT C API\ncuda 12080"))


def test_what_runs_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitive, "driver", lambda: Driver(FakeDriver(version=12080)))
    monkeypatch.setattr(primitive, "gpu", lambda: None)  # no self-test of a GPU that may be there
    told: dict[Any, str] = {
        Device("cpu"): "native code, in lanes",
        Device("gpu"): "GPU kernels, a thread for each trajectory (driver for CUDA 12.8)",
        Device("gpu", Client("rocm 60000")): "and this is rocm",
        Device("tpu"): "plain vmap, because of the platform: native code runs on cpu and cuda",
    }
    for device, text in told.items():
        assert text in backend_of(device)
    with off():
        assert backend_of(jax.devices("cpu")[0]) == "plain vmap, because of `compiler.off()`"


def test_the_cpu_is_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (cpu, *_), gpu = jax.devices("cpu"), Device("gpu")
    monkeypatch.setattr(jax, "devices", lambda kind=None: [cpu])
    assert all_devices() == [cpu]
    monkeypatch.setattr(jax, "devices", lambda kind=None: [cpu] if kind == "cpu" else [gpu])
    assert all_devices() == [gpu, cpu]

    def without_cpu(kind: str | None = None) -> list[Any]:
        if kind == "cpu":
            raise RuntimeError("Unknown backend cpu")
        return [gpu]

    monkeypatch.setattr(jax, "devices", without_cpu)
    assert all_devices() == [gpu]
