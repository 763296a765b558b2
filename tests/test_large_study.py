"""The instrument of `experiments.large_study` for CPU seconds, and its table."""

import json
from pathlib import Path

import pytest

from experiments.large_study.__main__ import main


@pytest.mark.slow
def test_shares_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["two_saves"], 1e-3, tmp_path)
    found = json.loads((tmp_path / "large_study.json").read_text())["studies"]["two_saves"]
    assert sum(found["stages"].values()) == pytest.approx(found["cpu_seconds"])
    assert abs(found["stages"]["rest"]) < 0.2 * found["cpu_seconds"]
    assert found["stages"]["compile"] > 10 * found["stages"]["kernel"]
    assert capsys.readouterr().out.startswith("| CPU seconds (%) | 1,000 x 200 steps")
