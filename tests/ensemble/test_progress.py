"""Progress messages of a run, and estimates that are skipped if nothing is shown."""

import json

import pytest

from jaxmech.ensemble.blocks.accumulate import RunProgress


def test_nothing_is_estimated_that_is_not_shown() -> None:
    asked: list[int] = []

    def estimates() -> dict[str, tuple[float, float, float]]:
        asked.append(1)
        return {"mean": (1.0, 0.5, 1.5)}

    with RunProgress(10, 0, "none") as told:
        told.add(4, 1, estimates)
        told.add(6, 0, estimates)
    assert not asked
    assert told.failed == 1


def test_the_end_is_reported_even_if_early(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(10, 2, "json") as told:
        for _ in range(8):
            told.add(1, 0, lambda: {"mean": (1.0, 0.5, float("nan"))})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[-1]["done"] == lines[-1]["size"] == 10
    assert lines[-1]["estimates"]["mean"] == {"value": 1.0, "low": 0.5, "high": None}
    assert len(lines) <= 2  # not one for each block
