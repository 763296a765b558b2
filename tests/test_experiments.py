"""The experiments run from a short configuration."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from experiments import derivative_peers, fit_evaluation, slider_crank

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def singular_pose() -> ModuleType:
    path = ROOT / "experiments" / "singular_pose.py"
    spec = importlib.util.spec_from_file_location("singular_pose", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["singular_pose"] = module  # where dataclasses look for its names
    spec.loader.exec_module(module)
    return module


def test_the_recordings_of_the_tutorial_are_those_of_their_script(tmp_path: Path) -> None:
    slider_crank.main(str(tmp_path / "new.csv"))
    kept = ROOT / "docs" / "data" / "slider_crank.csv"
    tables = [
        np.genfromtxt(file, delimiter=",", names=True) for file in (tmp_path / "new.csv", kept)
    ]
    assert tables[0].dtype.names == tables[1].dtype.names
    for name in tables[0].dtype.names:
        np.testing.assert_allclose(tables[0][name], tables[1][name], atol=2e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")
def test_singular_pose_on_a_short_configuration(
    singular_pose: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "short.toml"
    config.write_text("bars = 1\nend = 0.2\nstep = 0.01\nsaves = 3\n", encoding="utf-8")
    singular_pose.main(config, tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert {p["status"] for p in results["passages"]} == {"OK"}
    assert max(p["error"] for p in results["passages"]) < 1e-6
    assert (tmp_path / "run" / "errors.png").stat().st_size > 10_000
    assert capsys.readouterr().out.count("\n|") == len(results["passages"]) + 1


@pytest.mark.slow
def test_the_speed_of_a_fit_is_that_of_derivatives_that_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "short.toml"
    config.write_text("recordings = 3\nsamples = 21\nrounds = 1\n", encoding="utf-8")
    assert fit_evaluation.main(config, tmp_path / "run") == 0
    found = json.loads((tmp_path / "run" / "fit_evaluation.json").read_text(encoding="utf-8"))
    assert found["difference"] < 1e-8
    assert found["steps"] == 60
    assert list(found["table"]) == [
        "forward run",
        "reverse gradient",
        "Jacobian",
        "rows of the trust region",
    ]
    assert "10 parameters, 60 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_derivatives_of_an_arm_agree_with_those_of_mujoco(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivative_peers, "BATCH", 8)
    rows = derivative_peers.arm_rows()
    assert [row["route"] for row in rows] == [
        "jaxmech",
        "MuJoCo, differences",
        "MuJoCo, matrices",
    ]
    assert rows[1]["difference"] < 1e-4
    assert rows[2]["difference"] < 0.05  # Euler steps
