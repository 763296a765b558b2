"""The instrument of `experiments.large_study` for CPU seconds, and its table."""

import json
import threading
import time
from pathlib import Path

import pytest

from experiments.large_study.__main__ import main
from experiments.large_study.stages import STAGES, Stages
from experiments.large_study.table import as_markdown


def _busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_stage_within_another_is_counted_once() -> None:
    stages = Stages()
    inner = stages.timed("draw", lambda: _busy(0.02))

    def outer() -> None:
        _busy(0.05)
        inner()
        inner()

    begun = time.thread_time()
    stages.timed("kernel", outer)()
    whole = time.thread_time() - begun
    assert stages.seconds["kernel"] == pytest.approx(0.05, abs=0.01)
    assert stages.seconds["draw"] == pytest.approx(0.04, abs=0.01)
    assert sum(stages.seconds.values()) == pytest.approx(whole, abs=2e-3)


def test_threads_of_others_are_counted_where_they_belong_and_timed_ones_once() -> None:
    stages = Stages()
    stages.note_others("start", "start")
    before = dict(stages.seconds)
    done, leave = threading.Barrier(3), threading.Event()

    def of_zarr() -> None:
        _busy(0.05)
        done.wait()
        leave.wait()

    def timed() -> None:
        stages.timed("merge", lambda: _busy(0.03))()
        done.wait()
        leave.wait()

    threads = [
        threading.Thread(target=of_zarr, name="zarr_io_of_a_test"),
        threading.Thread(target=timed, name="asyncio_of_a_test"),
    ]
    for thread in threads:
        thread.start()
    done.wait()
    stages.note_others("kernel", "write")
    leave.set()
    for thread in threads:
        thread.join()
    found = {name: x - before.get(name, 0.0) for name, x in stages.seconds.items()}
    assert found["write"] == pytest.approx(0.05, abs=0.02)
    assert found["merge"] == pytest.approx(0.03, abs=0.01)


def test_the_table_holds_every_stage() -> None:
    one = {
        "size": 1000, "steps": 200, "stored": "two saves", "cpu_seconds": 4.0, "share": 0.5,
        "own_steps_per_cpu_second": 5e4, "bare_steps_per_cpu_second": 1e5,
        "initial_states_cpu_seconds": 0.01, "wall_seconds_after_start": 2.0,
        "peak_memory_mib": 300.0, "stages": dict.fromkeys(STAGES, 0.4),
    }  # fmt: skip
    lines = as_markdown({"studies": {"two_saves": one}}).splitlines()
    assert lines[0] == "| CPU seconds (%) | 1,000 x 200 steps, two saves |"
    assert sum("0.40 (10%)" in line for line in lines) == len(STAGES)
    assert "| share of its speed | 50% |" in lines


@pytest.mark.slow
def test_shares_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["two_saves"], 1e-3, tmp_path)
    found = json.loads((tmp_path / "large_study.json").read_text())["studies"]["two_saves"]
    assert sum(found["stages"].values()) == pytest.approx(found["cpu_seconds"])
    assert abs(found["stages"]["rest"]) < 0.2 * found["cpu_seconds"]
    assert found["stages"]["compile"] > 10 * found["stages"]["kernel"]
    assert capsys.readouterr().out.startswith("| CPU seconds (%) | 1,000 x 200 steps")
