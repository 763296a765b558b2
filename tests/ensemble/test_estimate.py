"""Blocks as large as is good for a device, which are copied while the next one is computed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxmech import FixedSteps
from jaxmech.ensemble import Study, Times
from jaxmech.ensemble.blocks import (
    LARGEST_RESULTS,
    BlockProgram,
    block_of,
    computed_blocks,
    slice_of,
)
from jaxmech.ensemble.plan import with_stored_sizes

GB = 10**9


@dataclass(frozen=True)
class Device:
    """A stand-in for a device with the attributes that are read."""

    platform: str
    bytes_limit: int = 0

    def memory_stats(self) -> dict[str, int] | None:
        return {"bytes_limit": self.bytes_limit} if self.bytes_limit else None


H200 = Device("gpu", 130 * GB)
EACH = 56  # bytes of a save
FEW = Study(model="pendulum", size=10**6, times=Times(end=1.0, saves=2))


def block(study: Study, device: Device) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "devices", lambda: [device])
        return block_of(study, EACH * study.times.saves)


def test_a_gpu_is_filled_by_a_block() -> None:
    assert block(FEW, H200) == 65536
    assert block(replace(FEW, size=5000), H200) == 5056  # a whole number of 64
    assert block(replace(FEW, block=300), H200) == 300


@pytest.mark.parametrize("saves", [101, 5001])
@pytest.mark.parametrize("memory", [130 * GB, GB])
def test_results_take_a_part_of_the_memory(saves: int, memory: int) -> None:
    study = replace(FEW, times=Times(end=1.0, saves=saves))
    found = block(study, Device("gpu", memory))
    most = min(LARGEST_RESULTS, memory // 16)
    each = EACH * saves
    assert found * each <= most or found == 1024
    assert 2 * found * each > most or found == 65536


def test_the_block_of_a_run_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("block = 4096\n")
    assert with_stored_sizes(FEW, tmp_path).block == 4096
    assert with_stored_sizes(replace(FEW, block=64), tmp_path).block == 64
    assert with_stored_sizes(FEW, tmp_path / "none").block is None
    for text in ("block = 0", "block = 'all'", "block = ", ""):
        (tmp_path / "config.toml").write_text(text)
        assert with_stored_sizes(FEW, tmp_path).block is None


def test_short_trajectories_come_in_large_blocks_on_a_cpu() -> None:
    assert block(FEW, Device("cpu")) == 65536
    assert block(replace(FEW, times=Times(end=1.0, saves=1001)), Device("cpu")) == 1024
    slow = replace(FEW, steps=FixedSteps(per_save=10**4))
    assert block(slow, Device("cpu")) == 1024


def test_a_slice_is_a_part_of_a_block_whose_series_are_small() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "devices", lambda: [Device("cpu")])
        assert slice_of(FEW, 65536, 2) == 65536
        long = replace(FEW, times=Times(end=1.0, saves=1001))
        assert slice_of(long, 16384, 2) == 256
        assert slice_of(long, 1009, 2) == 1009  # rather than one at a time
        patch.setattr(jax, "devices", lambda: [H200])
        assert slice_of(long, 16384, 2) == 16384


def test_a_block_is_copied_while_the_next_one_is_computed() -> None:
    assert events([3, 5, 8], devices=1) == [
        ("started", 3), ("computed", 3), ("started", 5), ("stored", 3),
        ("computed", 5), ("started", 8), ("stored", 5), ("computed", 8), ("stored", 8),
    ]  # fmt: skip
    assert events([], devices=1) == []


def test_every_device_computes_a_block() -> None:
    assert events([3, 5, 8], devices=2) == [
        ("started", 3), ("started", 5), ("computed", 3), ("started", 8), ("stored", 3),
        ("computed", 5), ("stored", 5), ("computed", 8), ("stored", 8),
    ]  # fmt: skip
    assert events([3, 5], devices=4)[:3] == [("started", 3), ("started", 5), ("computed", 3)]


def events(blocks: list[int], devices: int) -> list[tuple[str, int]]:
    """What happens to blocks, in order."""
    found = list[tuple[str, int]]()

    class Program(BlockProgram):
        def devices(self) -> list[jax.Device]:
            return jax.devices()[:1] * devices

        def inputs(self, block: int) -> Any:
            return block

        def run(self, inputs: Any) -> Any:
            found.append(("started", int(inputs)))
            return inputs

        def finished(self, inputs: Any, begun: Any) -> Any:
            assert inputs is begun
            found.append(("computed", int(inputs)))
            return {"q": begun}

    for own, block in computed_blocks(object.__new__(Program), blocks):
        assert block["q"] == own  # type: ignore[index]
        found.append(("stored", int(own)))  # type: ignore[call-overload]
    return found
