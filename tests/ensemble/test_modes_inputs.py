"""Studies of modes with recorded inputs: their values at the time of the equilibrium count."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.cli.main import main
from jaxmech.config.errors import StudyError
from jaxmech.ensemble import Fixed, ModesStudy, RecordedInput, Uniform, open_results, run_study

SPRING = """
import jaxmech as jm


def lagrangian(q, v, t, p):
    return 0.5 * p["m"] * v @ v - 0.5 * p["k"](t) * q @ q


def force(q, v, t, p):
    return p["load"](t)[None]


spring = jm.System(lagrangian, force=force, coordinates=("x",))
"""
CONFIG = """
model = "spring.py:spring"
size = 6
time = 1.5
coordinates = { x = 0.0 }
parameters = { m = { distribution = "uniform", low = 1.0, high = 3.0 } }

[inputs.k]
file = "springs/*.csv"
column = "stiffness"

[inputs.load]
file = "load.csv"
column = "load"
"""
STIFFNESS = {"hard": 30.0, "soft": 10.0}  # at the time 1.5 s, in the order of the files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spring.py").write_text(SPRING)
    (tmp_path / "study.toml").write_text(CONFIG)
    (tmp_path / "load.csv").write_text("t [ms],load [mN]\n1500,2000\n3000,9000\n")
    (tmp_path / "springs").mkdir()
    for name, k in STIFFNESS.items():
        text = f"t,stiffness\n1.0,{k - 5}\n2.0,{k + 5}\n"
        (tmp_path / "springs" / f"{name}.csv").write_text(text)
    return tmp_path


def array(run: Path, name: str) -> np.ndarray:
    return np.asarray(open_results(run).group[name][...])  # type: ignore[index]


def test_frequencies_and_places_of_a_spring_of_recorded_stiffness(folder: Path) -> None:
    """f = sqrt(k / m) / (2 pi) and x = F / k, at the time of the study."""
    run = folder / "run"
    assert main(["modes", str(folder / "study.toml"), "--out", str(run)]) == 0
    numbers, m = array(run, "parameter_k").astype(int), array(run, "parameter_m")
    assert {*numbers.tolist()} == {0, 1}
    k = np.array([*STIFFNESS.values()])[numbers]
    np.testing.assert_allclose(
        array(run, "frequencies")[:, 0], np.sqrt(k / m) / (2 * np.pi), rtol=1e-9
    )
    np.testing.assert_allclose(array(run, "q")[:, 0], 2.0 / k, rtol=1e-9)
    summary = (run / "summary.txt").read_text()
    assert "input k from 0 hard.csv, 1 soft.csv" in summary
    assert "load [mN] was converted to N" in summary


def spectra(folder: Path, **changed: Any) -> None:
    inputs = {
        "k": RecordedInput(file="springs/soft.csv", column="stiffness"),
        "load": RecordedInput(file="load.csv", column="load"),
    }
    study = ModesStudy(
        model="spring.py:spring", size=2, time=changed.pop("time", 1.5),
        coordinates={"x": Fixed(0.0)}, parameters={"m": Uniform(1.0, 3.0)},
        inputs=inputs | changed,
    )  # fmt: skip
    run_study(study, folder / "run", folder=folder)


def test_inputs_must_cover_the_time(folder: Path) -> None:
    message = r"inputs.load.file` must hold samples at 1.25 s, the time of the equilibria, but"
    with pytest.raises(StudyError, match=message):
        spectra(folder, time=1.25)


def test_an_input_that_nothing_reads_is_refused(folder: Path) -> None:
    road = RecordedInput(file="load.csv", column="load")
    with pytest.raises(StudyError, match=r"inputs.road` is not read by the system"):
        spectra(folder, road=road)
    assert jm.ensemble.ModesStudy(model="pendulum", size=2).inputs == {}
