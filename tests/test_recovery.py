"""The study of synthetic recordings with few repeats."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.recovery import __main__ as recovery
from experiments.recovery.study import Recovery
from jaxmech.config.toml import read

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SHORT = """
exact = 2

[[series]]
mechanism = "double pendulum"
starts = "exact"
repeats = 12
recordings = 2
duration = 0.5

[[series]]
mechanism = "pendulum"
starts = "positions"
repeats = 30
recordings = 2
noise = 0.01
duration = 0.5
"""


@pytest.mark.slow
def test_study_on_a_short_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "short.toml"
    config.write_text(SHORT, encoding="utf-8")
    recovery.main(config, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    result, positions = facts["results"]
    assert result["converged"] == positions["converged"] == 1.0
    assert result["warned"] == positions["warned"] == 0.0
    assert [row["name"] for row in result["rows"]] == ["c1", "c2", "l1", "l2", "m2"]
    assert max(row["error"] for row in result["rows"]) < 1e-6
    scores = np.array([row["scores"] for row in result["rows"]])
    assert scores.shape == (5, 12)
    np.testing.assert_allclose(np.sqrt(np.mean(scores**2)), 1.0, atol=0.4)
    assert abs(result["noise"] - 1) < 0.1
    for row in positions["rows"]:
        assert row["error"] < 1e-6
        assert row["coverage"] >= 0.8
        np.testing.assert_allclose(row["scatter"], row["stated"], rtol=0.4)
    assert abs(positions["noise"] - 1) < 0.1
    assert (tmp_path / "run" / "quantiles.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert shown.count("| double pendulum | exact | 1 mrad | 2 | 5 |") == 1
    table = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    assert table.count("| double pendulum | exact | 1 mrad | 2 | ") == 6
    assert table.count("| pendulum | positions | 10 mrad | 2 | ") == 3


def test_the_configuration_is_the_default() -> None:
    assert read(CONFIGS / "recovery.toml", Recovery) == Recovery()
