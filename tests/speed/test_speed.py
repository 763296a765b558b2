"""The benchmark: its measurements, crashing routes, and written results."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from experiments.speed.settings import Speed
from jaxmech.cli.main import main
from jaxmech.config.toml import read

ROOT = Path(__file__).resolve().parents[2]
TINY = """\
parts = ["table"]
timing = { rounds = 2, least = 0.0 }
[table]
routes = ["jaxmech, bare kernel", "Cholesky"]
cases.chain_1 = { batch = 3, steps = 4, step = 0.01 }
[gradient]
cases.chain_1 = { batch = 3, steps = 4, step = 0.01 }
"""


def test_it_belongs_to_a_clone(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench"]) == 2
    assert "call `jaxmech bench` in a clone" in capsys.readouterr().err


@pytest.mark.slow
def test_a_tiny_table_from_the_outside(tmp_path, capfd) -> None:
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    command = [sys.executable, "-m", "jaxmech", "bench", str(tmp_path / "tiny.toml")]
    subprocess.run([*command, "--out", str(tmp_path / "run")], cwd=ROOT, check=True)
    found = json.loads((tmp_path / "run" / "speed.json").read_text(encoding="utf-8"))
    assert found["finished"]
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"speed.json", "speed.md"}
    assert found["devices"]["cpu"]["jax"] == jax.__version__
    (case,) = found["table"]
    assert (case["n"], case["m"], case["batch"], case["steps"]) == (2, 1, 3, 4)
    assert case["platform"] == "cpu"
    for outcome in case["outcomes"].values():
        assert outcome["problem"] == ""
        assert len(outcome["seconds"]) == 2
        assert outcome["steps_per_second"] == 3 * 4 / min(outcome["seconds"])
        assert outcome["compile_seconds"] > 0
        assert outcome["difference"] < 1e-12
        assert outcome["position_residual"] < 1e-6
    shown = (tmp_path / "run" / "speed.md").read_text(encoding="utf-8")
    assert "\n| Cholesky | " in shown
    assert "Cholesky" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["speed", "speed_quick"])
def test_the_configurations_of_the_project_are_read(name: str) -> None:
    config = read(ROOT / "configs" / f"{name}.toml", Speed)
    assert config.parts == ("table", "gradient")
