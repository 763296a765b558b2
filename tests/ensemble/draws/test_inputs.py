"""Studies with a recorded input: each trajectory is that of `simulate`, and files are named."""

from pathlib import Path

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.cli.main import main
from jaxmech.config.load import load
from tests.ensemble.studies import CAR, replayed

STUDY = """
model = "car.py:car"
size = 6
block = 4

[times]
end = 1.9
saves = 20

[coordinates]
height = 0.0

[parameters]
m = 1.0
c = 1.0
k = { distribution = "uniform", low = 30.0, high = 50.0 }

[inputs.road]
file = "road.csv"
column = "road"
"""
TIMES = np.arange(41) / 20
ROAD = 0.02 * np.random.default_rng(0).normal(size=41)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("car")
    (folder / "car.py").write_text(CAR)
    write_road(folder, ROAD)
    (folder / "study.toml").write_text(STUDY)
    assert main(["ensemble", str(folder / "study.toml"), "--out", str(folder / "run")]) == 0
    return folder


def write_road(folder: Path, heights: np.ndarray) -> None:
    rows = np.stack([TIMES, heights], axis=1)
    np.savetxt(folder / "road.csv", rows, delimiter=",", header="t,road", comments="")


def test_a_trajectory_is_that_of_simulate(folder: Path) -> None:
    trajectory = replayed(folder / "run", 5)
    assert all(trajectory.compared.values())
    system, road = load("car.py:car", {}, folder).system, jm.Signal(TIMES, ROAD)
    params = {"m": 1.0, "c": 1.0, "k": float(trajectory.params["k"]), "road": road}
    ts = np.linspace(0.0, 1.9, 20)
    sol = jm.simulate(system, [0.0], [0.0], ts, params, steps=jm.FixedSteps(8))
    np.testing.assert_allclose(trajectory.values["q"], sol.q, atol=1e-8)
    assert np.abs(sol.q).max() > 1e-3


def test_a_run_has_a_copy_of_its_input(folder: Path) -> None:
    write_road(folder, 0 * ROAD)  # a replay reads what the configuration names
    assert not replayed(folder / "run", 5).compared["q"]
    assert (folder / "run" / "road.csv").is_file()
    # but a run is not continued with it
    assert main(["ensemble", str(folder / "study.toml"), "--out", str(folder / "run")]) == 2
    write_road(folder, ROAD)
