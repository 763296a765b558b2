"""The command `jaxmech failure`, from the outside."""

import json
from pathlib import Path

import pytest

from jaxmech.cli.main import main

CONFIG = """
model = "pendulum"
size = 64

[times]
end = 1.0
saves = 6

[start]
theta = { distribution = "normal", mean = 0.0, sd = 0.3 }

[failure]
of = "x1"
above = 0.9
method = "importance"
coefficient_of_variation = 0.2
"""


def test_the_folder_of_a_probability_of_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = tmp_path / "swing.toml", tmp_path / "run"
    config.write_text(CONFIG)
    assert main(["failure", str(config), "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert (run / "failure.txt").read_text().strip() in printed
    assert 0.0 < json.loads((run / "failure.json").read_text())["probability"] < 0.1
    for command in (["report", str(run)], ["ensemble", str(config), "--out", str(run)]):
        assert main(command) == 2
        assert "holds a run of `jaxmech failure`" in capsys.readouterr().err
