"""White noise as an input, as draws of a study and as `simulate` sees it."""

from pathlib import Path

import numpy as np

import jaxmech as jm
from jaxmech.config.toml import read
from jaxmech.ensemble import Study, open_results, run_study
from jaxmech.ensemble.store import array_of
from jaxmech.system import Signal
from tests.ensemble.studies import CAR, replayed

STUDY = """
model = "car.py:car"
size = 6
block = 6

[times]
end = 1.9
saves = 20

[steps]
per_save = 4

[coordinates]
height = 0.0

[parameters]
m = 1.0
c = 1.0
k = 40.0

[inputs.road]
"""
NOISE = "kind = 'white-noise'\nintensity = 2e-6\ninterval = 0.1\n"


def study_of(folder: Path, text: str) -> Path:
    (folder / "car.py").write_text(CAR)
    (folder / "study.toml").write_text(STUDY + text)
    return folder / "study.toml"


def test_a_trajectory_has_an_input_of_its_own(tmp_path: Path) -> None:
    config, out = study_of(tmp_path, NOISE), tmp_path / "run"
    run_study(read(config, Study), out, folder=tmp_path)
    draws = np.asarray(array_of(open_results(out).group, "parameter_road")[...])
    assert draws.shape == (6, 19)
    trajectory = replayed(out, 4)
    assert all(trajectory.compared.values())
    road = Signal(0.1 * np.arange(19), np.sqrt(2e-6 / 0.1) * draws[4], "hold")
    np.testing.assert_allclose(trajectory.params["road"].values, road.values, atol=1e-12)
    system = trajectory.subject.system
    params = {"m": 1.0, "c": 1.0, "k": 40.0, "road": road}
    ts = np.linspace(0.0, 1.9, 20)
    sol = jm.simulate(system, [0.0], [0.0], ts, params, steps=jm.FixedSteps(4))
    np.testing.assert_allclose(trajectory.values["q"], sol.q, atol=1e-9)
    assert np.abs(sol.q).max() > 1e-4
    assert "input road from white noise" in (out / "summary.txt").read_text()
